"""A real local cluster of two workers, one of them killed while it runs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from olss.lab import executors as module
from olss.lab.executors import DaskExecutor
from olss.lab.single_run import run_once
from olss.util.dask import ClusterLostError
from olss.util.files import file_lock
from tests.lab.small import small_experiment, small_spec

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, at start and at the end


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    made = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    with made:
        yield made


def test_a_killed_worker_s_run_is_done_by_another(local: Any, tmp_path: Path) -> None:
    specs = small_experiment(tasks=12).run_specs()
    executor = DaskExecutor(tmp_path, local.scheduler_address)
    kinds, victim = [], 0
    with contextlib.closing(executor):
        for spec in specs:
            executor.submit(spec)
        for event in executor.events():
            kinds.append(event.kind)
            if not victim and event.kind == "task":
                pids = executor._client.run(os.getpid)
                where = executor._client.processing()
                (address, *_) = [worker for worker, keys in where.items() if keys] or [*pids]
                victim = pids[address]
                os.kill(victim, signal.SIGKILL)
    assert victim
    assert kinds.count("done") == 2
    for spec in specs:
        record, memory = run_once(spec)
        record.save(tmp_path / "here")
        there = tmp_path / spec.folder
        expected = (tmp_path / "here" / "record.json").read_bytes()
        assert (there / "record.json").read_bytes() == expected
        assert (there / "memory.npz").exists() == (memory is not None)


def test_errors_of_a_run_come_back_as_words(local: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    spec = small_spec("sgd")
    wild = replace(spec, label="wild", settings={**spec.settings, "lr": 1e30})
    taken = replace(spec, label="taken")
    executor = DaskExecutor(tmp_path, local.scheduler_address)
    with contextlib.closing(executor), contextlib.ExitStack() as other:
        other.enter_context(file_lock(tmp_path / taken.folder / ".lock"))
        executor.submit(taken)
        executor.submit(wild)
        events = []
        for event in executor.events():
            events.append(event)
            if event.kind == "waiting":
                other.close()
    ends = {e.spec.label: e for e in events if e.kind in ("done", "failed")}
    assert "smaller learning rate" in ends["wild"].text
    assert ends["taken"].kind == "done"


def test_a_lost_scheduler_ends_the_command_and_lets_go_of_its_runs(tmp_path: Path) -> None:
    script = (
        "import distributed, time\n"
        "if __name__ == '__main__':\n"
        "    options = {'dashboard_address': None, 'memory_limit': 0}\n"
        "    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as made:\n"
        "        print(made.scheduler_address, flush=True)\n"
        "        time.sleep(120)\n"
    )
    (tmp_path / "scheduler.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "scheduler.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    spec = small_spec(tasks=200)
    executor = DaskExecutor(tmp_path, process.stdout.readline().strip())
    executor.submit(spec)
    with pytest.raises(ClusterLostError, match="the Dask scheduler was lost"):  # noqa: PT012
        for event in executor.events():
            assert event.kind == "task"
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    executor.close()
    process.stdout.close()
    with file_lock(tmp_path / spec.folder / ".lock") as free:
        assert free


def test_workers_that_are_all_gone_are_told(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr("olss.util.dask.NOTIFY_SECONDS", 0.05)
    # A run that does not end before its workers are missed.
    monkeypatch.setattr(module, "_run_on_worker", lambda spec, key: time.sleep(3))
    executor = DaskExecutor(tmp_path, local.scheduler_address)
    with contextlib.closing(executor):
        executor.submit(small_spec("sgd"))
        with monkeypatch.context() as gone:
            gone.setattr("olss.util.dask._count_workers", lambda client: 0)
            event = next(event for event in executor.events() if event.kind == "note")
        assert "all workers of the Dask cluster are gone" in event.text
