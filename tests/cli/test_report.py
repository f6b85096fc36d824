import errno
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from olss.cli.lab import register
from olss.errors import MissingExtraError
from olss.lab.report import write_report
from olss.lab.report.figures import PLOTS
from tests.lab.report.made import made, saved


def app():
    made = typer.Typer()
    made.callback()(lambda: None)
    register(made)
    return made


def test_writes_everything_and_says_where(tmp_path):
    saved(tmp_path / "runs", "sgd", 0, tasks=2)
    out = tmp_path / "out"
    done = CliRunner().invoke(app(), ["report", str(tmp_path / "runs"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "index.html" in done.output
    assert {path.name for path in out.iterdir()} == {
        "index.html", "report.json", "figures", "tables",
    }  # fmt: skip
    content = json.loads((out / "report.json").read_text())
    assert content["format"] == "olss-report"
    assert not list(out.rglob("*.part"))


def test_errors_are_one_plain_line(tmp_path):
    done = CliRunner().invoke(app(), ["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "no record.json was found" in done.output
    assert not (tmp_path / "out").exists()
    saved(tmp_path, "sgd", 0, tasks=2)
    file = tmp_path / "file"
    file.write_text("")
    done = CliRunner().invoke(app(), ["report", str(tmp_path), "--out", str(file)])
    assert done.exit_code == 1
    assert "out must be a folder" in done.output


@pytest.mark.parametrize("known", [True, False])
def test_scores_that_are_not_known_are_left_out(tmp_path, known):
    record = made("er", tasks=3)
    record.accuracy[:, 0] = np.nan
    record.save(tmp_path / "runs" / "er" / "seed-0")
    if known:
        saved(tmp_path / "runs", "sgd", 0, tasks=3)
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert (tmp_path / "out" / "index.html").exists()
    (stream,) = json.loads((tmp_path / "out" / "report.json").read_text())["streams"]
    assert ("sgd ends at" if known else "no method has an average") in stream["winner"]


def test_reporting_needs_no_torch(tmp_path):
    saved(tmp_path / "runs", "sgd", 0, tasks=2)
    script = (
        "import sys; sys.modules['torch'] = None; from pathlib import Path;"
        "import olss.cli.lab;"
        "assert 'matplotlib' not in sys.modules and 'jinja2' not in sys.modules;"
        "from olss.lab.report import figures, write_report;"
        "figures.PLOTS = {'average': figures.PLOTS['average']};"
        f"write_report([Path({str(tmp_path / 'runs')!r})], Path({str(tmp_path / 'out')!r}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    saved(tmp_path / "runs", "sgd", 0, tasks=2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(
        app(), ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert not (tmp_path / "out").exists()
    assert str(MissingExtraError("matplotlib", "lab", "A report")) in done.output


@pytest.mark.parametrize("works", [0, 1, 3, 9, 28, 29])
def test_a_full_disk_leaves_every_file_old_or_new_and_none_in_between(tmp_path, monkeypatch, works):
    plots = {"final": PLOTS["final"]}
    monkeypatch.setattr("olss.lab.report.figures.PLOTS", plots)
    saved(tmp_path / "runs", "sgd", 0, tasks=2)
    page = write_report([tmp_path / "runs"], tmp_path / "old")
    write_report([tmp_path / "runs"], tmp_path / "out")
    saved(tmp_path / "runs", "olss", 0, tasks=2)
    write_report([tmp_path / "runs"], tmp_path / "new")
    synced, count = os.fsync, itertools.count()

    def fsync(number):
        if next(count) >= works:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        write_report([tmp_path / "runs"], tmp_path / "out")
    assert (tmp_path / "out" / "index.html").read_bytes() == page.read_bytes()
    for path in (p for p in (tmp_path / "out").rglob("*") if p.is_file()):
        name = path.relative_to(tmp_path / "out")
        kept = [f / name for f in (tmp_path / "old", tmp_path / "new") if (f / name).exists()]
        assert path.read_bytes() in [other.read_bytes() for other in kept], name
