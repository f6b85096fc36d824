"""The script of docs/tutorials/every-night.md, run as cron would run it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from olss import compress
from olss.tables.sources import Source

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "every-night.md"


@pytest.fixture
def night(tmp_path):
    script = tmp_path / "nightly.sh"
    script.write_text(re.search(r"```bash\n(.*?)```", PAGE.read_text(), re.S)[1])
    folder = tmp_path / "incoming"
    folder.mkdir()
    rng = np.random.default_rng(0)

    def run(*days, shift=0.0):
        for day in days:
            x = rng.standard_normal((400, 3)) + shift
            frame = pd.DataFrame(x, columns=list("abc")).assign(label=x[:, 0] > 0)
            frame.to_parquet(folder / f"{day}.parquet")
        command = ["bash", script, folder, tmp_path / "sketch.parquet"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return run


def test_days_come_in_and_a_different_one_is_noticed(night):
    first = night("01")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["new"] == 400
    second = night("02")
    assert second.returncode == 0, second.stderr
    again = night()
    assert again.returncode == 0, again.stderr
    assert '"new": 0' in again.stdout
    other = night("03", shift=3.0)
    assert other.returncode == 4
    assert "looks different" in other.stderr


def test_a_file_that_cannot_be_read_stops_the_job(night, tmp_path):
    night("01")
    before = (tmp_path / "sketch.parquet").read_bytes()
    (tmp_path / "incoming" / "02.parquet").write_bytes(b"PAR1 and nothing else")
    failed = night()
    assert failed.returncode == 1
    assert "as it was yesterday" in failed.stderr
    assert (tmp_path / "sketch.parquet").read_bytes() == before


def test_only_new_files_of_a_folder_are_opened(tmp_path, monkeypatch):
    opened, into, folder = [], tmp_path / "sketch.parquet", tmp_path / "incoming"
    folder.mkdir()
    fingerprint = Source.fingerprint
    monkeypatch.setattr(
        Source, "fingerprint", lambda self: opened.append(self.address) or fingerprint(self)
    )
    for day in range(30):
        np.save(folder / f"{day:02}.npy", np.random.default_rng(day).standard_normal((50, 3)))
    assert compress(folder, into=into, size=100, seed=0).new == 1_500
    opened.clear()
    np.save(folder / "30.npy", np.random.default_rng(30).standard_normal((50, 3)))
    summary = compress(folder, into=into)
    assert (summary.known, summary.new) == (30, 50)
    assert opened == [str(folder / "30.npy")]
