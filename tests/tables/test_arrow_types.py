"""NumPy arrays as Arrow ones and back, against pyarrow's own conversion."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from olss.tables.arrow_types import arrow_array, numpy_array, taken

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


COLUMNS = {
    "whole": pa.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], pa.int8()),
    "whole with gaps": pa.array([1, None, 3, 4, None, 6, 7, 8, None, 10], pa.uint16()),
    "floats": pa.array([0.5, np.nan, 1, -np.inf, 2, 3, 4, 5, 6, 7], pa.float64()),
    "floats with gaps": pa.array([None, np.nan, 1, 2, None, 3, 4, 5, 6, None], pa.float32()),
    "all gaps": pa.array([None] * 10, pa.float32()),
    "half": pa.array(np.arange(10, dtype=np.float16)),
    "truth": pa.array([True, False] * 5),
    "text": pa.array([*"abcdefghi", None]),
    "days": pa.array(np.arange(10), pa.timestamp("ms")),
}


@pytest.mark.parametrize("part", [slice(0, 10), slice(1, 4), slice(9, 10), slice(3, 3)])
@pytest.mark.parametrize("name", COLUMNS)
def test_as_numpy_it_is_what_pyarrow_makes(name: str, part: slice) -> None:
    array = COLUMNS[name].slice(part.start, part.stop - part.start)
    expected = array.to_numpy(zero_copy_only=False)
    for found in (numpy_array(array), numpy_array(pa.chunked_array([array]))):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    chunks = pa.chunked_array([array, COLUMNS[name]])
    np.testing.assert_array_equal(numpy_array(chunks), chunks.to_numpy())


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_those_that_pyarrow_takes(name: str) -> None:
    array, rows = COLUMNS[name].slice(1), np.array([8, 0, 0, 3])
    found = taken(array, rows)
    found.validate(full=True)
    assert found.type == array.type
    assert str(found.to_pylist()) == str(array.take(pa.array(rows)).to_pylist())


@pytest.mark.parametrize("policy", ["reservoir", "weighted"])
@pytest.mark.parametrize("text", [False, True])
def test_a_sample_of_a_file_loads_no_pandas(policy: str, text: bool, tmp_path: object) -> None:
    heavy = ("pandas", "scipy.optimize", "torch", *(() if text else ("pyarrow.compute",)))
    code = f"""
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
class Watch:
    def find_spec(self, name, path, target=None):
        if name in {heavy!r}:
            raise SystemExit("loads " + name)
from olss.tables.arrow_types import arrow_array
sys.meta_path.insert(0, Watch())
x = np.random.default_rng(0).standard_normal(5_000)
table = {{"x": arrow_array(x), "n": arrow_array(np.arange(5_000))}}
if {text}:
    table["kind"] = arrow_array(np.repeat(["a", "b"], 2_500))
pq.write_table(pa.table(table), "{tmp_path}/in.parquet")
from olss.files import compress
compress("{tmp_path}/in.parquet", into="{tmp_path}/out.parquet", size=50, policy="{policy}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
