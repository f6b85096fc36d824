from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from olss.cli import app


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", X=rng.standard_normal((500, 3)), y=rng.integers(0, 2, 500))
    return tmp_path


def test_compress_go_on_and_inspect(data):
    out = data / "out.parquet"
    options = ["--size", 50, "--target", "y", "--seed", 1, "--scores", "0.5", "--intercept"]
    first = call("compress", data / "a.npz", "--into", out, *options, "--exclude", "y")
    assert first.exit_code == 0, first.output
    assert "50 rows of 500 seen" in first.output
    assert "vector (3 numbers)" in first.output
    again = call("compress", data, "--into", out)
    assert "already ingested" in again.output
    shown = call("inspect", out)
    assert "rows by class" in shown.output
    assert "█" in shown.output
    assert call("compress", data, "--into", out, "--quiet").output == ""


def test_strata_and_a_holdout(data):
    out = data / "out.parquet"
    settings = ["--strata", "y", "--strata-share", 0.2, "--min-rows", 15, "--holdout", 0.2]
    done = call("compress", data / "a.npz", "--into", out, "--size", 50, "--target", "y", *settings)
    assert done.exit_code == 0, done.output
    shown = call("inspect", out).output
    assert "40 rows of 500 seen, 10 more held out" in shown
    assert "strata y" in shown
    found = json.loads(call("inspect", out, "--json").output)
    assert (found["rows"], found["strata"], found["held_out"]) == (40, ["y"], 10)


def test_errors_are_one_plain_line(data):
    for args in (
        ["compress", data / "none.csv", "--into", data / "o.parquet", "--size", 5],
        ["compress", data / "a.npz", "--into", data / "o.parquet"],
        ["inspect", data / "none.parquet"],
        ["inspect", data / "a.npz"],
    ):
        result = call(*args)
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert len(result.output.splitlines()) == 1
    assert call("compress", data / "a.npz").exit_code == 2


def test_ctrl_c_says_that_the_result_is_intact(data, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["olss.files.compress"], "compress", stop)
    result = call("compress", data / "a.npz", "--into", data / "o.parquet", "--size", 5)
    assert result.exit_code == 130
    assert "is unchanged" in result.output
