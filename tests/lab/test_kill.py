"""The command killed at random moments: nothing is lost, and the record is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from olss.lab.experiment import load
from olss.lab.single_run import run_once
from tests.lab.small import write_experiment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kill -9 is a thing of POSIX")

COMMAND = [sys.executable, "-c", "from olss.cli import app; app()"]
KILLS = 10
TASKS = 3 * KILLS  # more than can be learned between ten kills of at most three tasks each


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "run", "small.toml", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def learned(run: Path) -> int:
    states = [path.name for path in run.glob("checkpoint/after-*")]
    return max((int(name[6:10]) for name in states), default=0)


def test_killed_ten_times_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, tasks=TASKS)
    run = tmp_path / "runs/small/sketch/seed-0"
    rng = np.random.default_rng(6)
    before = []
    for kill in range(KILLS):
        process = start(tmp_path, "--only", "sketch")
        if kill % 3 == 0:  # while it starts, or soon after
            time.sleep(rng.uniform(0.1, 2.0))
        else:  # in the middle of learning
            goal = learned(run) + int(rng.integers(1, 3))
            deadline = time.monotonic() + 300  # a busy machine starts slowly
            while learned(run) < goal and time.monotonic() < deadline:
                assert process.poll() is None, process.communicate()[0].decode()
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.03))
        assert process.poll() is None
        if kill % 2:
            os.kill(process.pid, signal.SIGKILL)  # its worker must notice
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        before.append(learned(run))
    assert not (run / "record.json").exists()
    assert len(set(before)) > 3  # it was killed at different places and did go on
    last = start(tmp_path, "--only", "sketch")
    told = last.communicate(timeout=120)[0].decode()
    assert last.returncode == 0, told
    spec = load(path).only(["sketch"]).run_specs()[0]
    record, memory = run_once(spec)
    record.save(tmp_path)
    assert (run / "record.json").read_bytes() == (tmp_path / "record.json").read_bytes()
    assert np.array_equal(np.load(run / "memory.npz")["rows"], memory)
    assert {p.name for p in run.iterdir()} == {
        ".lock", "settings.json", "record.json", "timing.json", "memory.npz",
    }  # fmt: skip


def test_ctrl_c_saves_and_says_how_to_go_on_and_two_commands_share_the_work(
    tmp_path: Path,
) -> None:
    write_experiment(tmp_path, tasks=12)
    process = start(tmp_path)
    run = tmp_path / "runs/small/sgd/seed-0"
    deadline = time.monotonic() + 300  # a busy machine starts slowly
    while learned(run) < 1 and not (run / "record.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    told = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130, told
    assert "Every task learned is saved: the same command resumes" in told
    assert "Traceback" not in told

    both = [start(tmp_path), start(tmp_path)]
    tables = [process.communicate(timeout=120)[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], tables
    for spec in load(tmp_path / "small.toml").run_specs():
        record, _ = run_once(spec)
        record.save(tmp_path / spec.label)
        expected = (tmp_path / spec.label / "record.json").read_bytes()
        assert (tmp_path / "runs" / spec.folder / "record.json").read_bytes() == expected
        for told in tables:
            average = f"{100 * record.average_accuracy[-1]:.1f}"
            assert any(
                line.startswith(spec.label) and average in line for line in told.splitlines()
            ), told
