"""Every example runs as a user would run it, and ends in something to look at."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Name: arguments that make it quick, what it must print, a file it must leave.
RUNS = {
    "drift_alarm": ([], "alarm from batch 16", "drift.png"),
    "forgetting": (["picture.svg", "1", "2"], "the paper's sketch", "picture.svg"),
    "half_life": (["picture.png", "1"], "nothing forgotten", "picture.png"),
    "kernel_leverage": (["2"], "kernel leverage", None),
    "lightning_replay": ([], "300 rows, half a batch", None),
    "next_month": ([], "months so far", "memory.parquet"),
    "own_policy": ([], "rare_first", None),
    "pictures": ([], "shares.png", "draw.png"),
    "sklearn_digits": ([], "300 rows, balanced", None),
    "sklearn_stream": ([], "boosted, 1,000 rows, weighted", None),
    "torch_loop": ([], "300 rows, half a batch", None),
    "which_policy": (["1", "1", "balanced"], "balanced", None),
}
OTHERS = {"compress_tables"}  # run by the tests of olss.files


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} - OTHERS == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_example(name, tmp_path):
    if name.startswith("lightning") and not importlib.util.find_spec("lightning"):
        pytest.skip("lightning is not installed")
    arguments, words, file = RUNS[name]
    done = subprocess.run(
        [sys.executable, "-W", "error::olss.OlssWarning", EXAMPLES / f"{name}.py", *arguments],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    if file:
        assert (tmp_path / file).stat().st_size > 1_000
