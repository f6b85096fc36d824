from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from olss.errors import InputError
from olss.lab.executors import Event, ProcessExecutor
from olss.lab.experiment import RunSpec
from olss.lab.single_run import run_once
from olss.util.files import file_lock
from tests.lab.small import small_experiment, small_spec


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessExecutor]:
    """Two processes for all tests of the module: starting them takes the time."""
    made = ProcessExecutor(tmp_path_factory.mktemp("runs"), 2)
    made.start()
    yield made
    made.close()


def do(workers: ProcessExecutor, *specs: RunSpec) -> list[Event]:
    for spec in specs:
        workers.submit(spec)
    return list(workers.events())


def with_root(spec: RunSpec, root: Path) -> RunSpec:
    """Processes keep the root they started with, so tests differ in the experiment's name."""
    return replace(spec, experiment=f"{spec.experiment}-{root.name}")


def test_mistakes_are_found_before_anything_runs(workers: ProcessExecutor, tmp_path: Path) -> None:
    specs = small_experiment().run_specs()
    assert workers.check(specs) == 3
    wrong = [specs[0], replace(specs[1], settings={"polcy": "paper"})]
    with pytest.raises(InputError, match=r"learner 'sketch': .*Did you mean 'policy'"):
        workers.check(wrong)
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        workers.check([replace(specs[0], stream={"name": "permuted", "dataset": "minst"})])
    own = {"regularizer": "operator:truediv", "a": 1, "b": 0}
    with pytest.raises(InputError, match=r"TypeError: .*truediv"):
        workers.check([replace(specs[0], settings=own)])
    assert not (workers.root / specs[0].folder).exists()


def test_two_processes_give_the_records_of_one(workers: ProcessExecutor, tmp_path: Path) -> None:
    experiment = small_experiment(seeds="0-1")
    specs = [with_root(spec, tmp_path) for spec in experiment.run_specs()]
    events = do(workers, *specs)
    done = [event for event in events if event.kind == "done"]
    assert len(done) == 4
    for event in done:
        assert event.record is not None
        assert event.record.content() == run_once(event.spec)[0].content()
    assert sum(event.kind == "task" for event in events) == 12


def test_a_process_that_is_killed_takes_nothing_with_it(
    workers: ProcessExecutor, tmp_path: Path
) -> None:
    spec = with_root(small_spec(tasks=20), tmp_path)
    other = with_root(small_spec("sgd"), tmp_path)
    workers.submit(spec)
    workers.submit(other)
    kinds, learned = [], []
    for event in workers.events():
        kinds.append(event.kind)
        if event.spec == spec and event.record is not None:
            learned.append(len(event.record.tasks))
            if len(learned) == 2:
                (connection,) = [c for c, busy in workers._busy.items() if busy == spec]
                os.kill(workers._processes[connection].pid, signal.SIGKILL)
    assert kinds.count("done") == 2
    assert kinds.count("note") == 1
    assert "failed" not in kinds
    # It went on from the task it was killed in, or at most one before what was told.
    assert learned[-1] == 20
    path = workers.root / spec.folder / "record.json"
    reference = run_once(spec)[0]
    reference.save(tmp_path)
    assert path.read_bytes() == (tmp_path / "record.json").read_bytes()


def test_a_run_that_fails_says_why_and_stops_no_other(
    workers: ProcessExecutor, tmp_path: Path
) -> None:
    good = with_root(small_spec("sgd"), tmp_path)
    wrong = replace(good, label="wrong", settings={**good.settings, "lr": -1.0})
    wild = replace(good, label="wild", settings={**good.settings, "lr": 1e30})
    failing = {**good.settings, "policy": "tests.lab.small:raise_error"}
    broken = replace(good, label="broken", recipe="olss", settings=failing)
    events = do(workers, wrong, wild, broken, good)
    said = {event.spec.label: event.text for event in events if event.kind == "failed"}
    assert said["wrong"] == "lr must be a number above 0, found -1.0."
    assert "smaller learning rate" in said["wild"]
    assert "ValueError: not written yet in " in said["broken"]
    assert f"{Path('tests', 'lab', 'small.py')}, line " in said["broken"]
    assert "error.txt" in said["broken"]
    assert "Traceback" in (workers.root / broken.folder / "error.txt").read_text()
    assert [event.spec for event in events if event.kind == "done"] == [good]


def test_asked_to_stop_it_ends_after_its_task(workers: ProcessExecutor, tmp_path: Path) -> None:
    spec = with_root(small_spec("sgd", tasks=50), tmp_path)
    workers.submit(spec)
    kinds = []
    for event in workers.events():
        kinds.append(event.kind)
        if kinds.count("task") == 1 and event.kind == "task":
            workers.stop(spec)
    assert kinds[-1] == "stopped"
    assert kinds.count("task") < 50


def test_waits_for_who_is_at_it(workers: ProcessExecutor, tmp_path: Path) -> None:
    spec = with_root(small_spec("sgd"), tmp_path)
    kinds = []
    with contextlib.ExitStack() as other:
        assert other.enter_context(file_lock(workers.root / spec.folder / ".lock"))
        workers.submit(spec)
        for event in workers.events():
            kinds.append(event.kind)
            if event.kind == "waiting":
                other.close()
    assert kinds == ["start", "waiting", "task", "task", "task", "done"]


def test_processes_that_died_while_idle_are_replaced(
    workers: ProcessExecutor, tmp_path: Path
) -> None:
    workers.start()
    for process in workers._processes.values():
        process.kill()
        process.join()
    events = do(workers, with_root(small_spec("sgd"), tmp_path))
    assert events[-1].kind == "done"
