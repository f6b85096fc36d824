"""NumPy arrays as Arrow ones, against pyarrow's own conversion."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from olss.tables.arrow_types import arrow_array

ARRAYS = {
    "whole": np.arange(5),
    "small": np.arange(5, dtype=np.uint8),
    "strided": np.arange(10, dtype=np.int32)[::2],
    "nan": np.array([1.0, np.nan]),
    "single": np.array([0.5, -np.inf], dtype=np.float32),
    "text": np.array(["", "a", "äöü", "🦆"]),
    "no text": np.array([], dtype=np.str_),
    "nothing": np.array([], dtype=np.int64),
    "truth": np.array([True, False]),
    "days": np.array(["2026-11-16"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_it_is_what_pyarrow_makes(name: str) -> None:
    values = ARRAYS[name]
    found = arrow_array(values)
    found.validate(full=True)
    expected = pa.array(values)
    assert found.type == expected.type
    assert str(found.to_pylist()) == str(expected.to_pylist())  # NaN, too


def test_a_uniform_sample_of_a_file_loads_no_pandas(tmp_path: object) -> None:
    code = f"""
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
class Watch:
    def find_spec(self, name, path, target=None):
        if name in ("pandas", "scipy.optimize", "torch"):
            raise SystemExit("loads " + name)
from olss.tables.arrow_types import arrow_array
sys.meta_path.insert(0, Watch())
kind = arrow_array(np.repeat(["a", "b"], 2_500))
table = pa.table({{"x": arrow_array(np.arange(5_000)), "kind": kind}})
pq.write_table(table, "{tmp_path}/in.parquet")
from olss.files import compress
compress("{tmp_path}/in.parquet", into="{tmp_path}/out.parquet", size=50, policy="reservoir")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
