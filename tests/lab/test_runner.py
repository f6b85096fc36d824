from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from olss.errors import InputError
from olss.lab import runner
from olss.lab.executors import Event
from olss.lab.runner import ExperimentProgress, TensorBoardLog, show_progress
from olss.streams.record import Record
from tests.lab.small import small_experiment, small_spec


def test_tensorboard_has_every_task_once_also_after_a_resumption(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec, log = small_spec(), TensorBoardLog(tmp_path)
    log(Event("start", spec))
    log(Event("task", spec, record(2, 0.25)))  # the first heard of: one task was there before
    log(Event("task", spec, record(3, 0.5)))
    log(Event("done", spec, record(3, 0.5)))
    found = EventAccumulator(str(tmp_path / spec.folder)).Reload()
    average = [(event.step, event.value) for event in found.Scalars("average accuracy")]
    assert average == [(1, 0.25), (2, 0.25), (3, 0.5)]
    assert [event.step for event in found.Scalars("task 3")] == [3]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="pip install"):
        TensorBoardLog(tmp_path)


JOBS = small_experiment(seeds="0-1").run_specs()


def record(tasks: int, score: float = 0.5, seconds: float = 1.0) -> Record:
    accuracy = np.where(np.tri(tasks, dtype=bool), score, np.nan)
    return Record(
        accuracy=accuracy,
        tasks=[f"task {i}" for i in range(tasks)],
        task_seconds={"train": np.full(tasks, seconds)},
    )


def text_of(progress: ExperimentProgress, now: bool = True) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(progress.table(now=now))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_time_left_counts_each_learner_at_its_own_pace() -> None:
    progress = ExperimentProgress(JOBS, tasks=3, processes=2)
    sgd_0, sketch_0, sgd_1, sketch_1 = JOBS
    assert progress.seconds_left() is None
    progress.update(Event("start", sgd_0))
    progress.update(Event("task", sgd_0, record(1, seconds=2.0)))
    # Nothing of sketch is known: it is taken to be as fast. 11 tasks of 2 s, two at a time.
    assert progress.seconds_left() == pytest.approx(11.0)
    progress.update(Event("done", sgd_0, record(3, seconds=2.0)))
    progress.update(Event("task", sketch_0, record(2, seconds=10.0)))
    # One task of sketch, then three of sgd and three of sketch.
    assert progress.seconds_left() == pytest.approx((10 + 3 * 2 + 3 * 10) / 2)
    for spec in (sketch_0, sgd_1, sketch_1):
        progress.update(Event("done", spec, record(3)))
    assert progress.seconds_left() == 0
    assert len(progress.finished_records()) == 4


def test_the_table_says_what_each_is_doing() -> None:
    progress = ExperimentProgress(JOBS, tasks=4)
    assert text_of(progress).count("to come") == 2
    progress.update(Event("task", JOBS[0], record(2, 0.25)))
    running = text_of(progress)
    assert "2/4" in running
    assert "25.0" in running
    progress.update(Event("done", JOBS[0], record(4, 0.5)))
    progress.update(Event("done", JOBS[2], record(4, 0.6)))
    progress.update(Event("failed", JOBS[1], text="no luck"))
    progress.update(Event("waiting", JOBS[3]))
    done = text_of(progress)
    assert "55.0 (50.0–60.0)" in done
    assert "brackets hold the lowest and the highest seed" in " ".join(done.split())
    assert "±" not in done
    assert "running in another process" in done
    assert "0 of 2 1 failed" in text_of(progress, now=False)
    assert [(spec.label, why) for spec, why in progress.failed_runs()] == [("sketch", "no luck")]


def test_regression_scores_are_no_percentages() -> None:
    progress = ExperimentProgress(JOBS[:1])
    progress.update(Event("done", JOBS[0], Record(accuracy=[[0.9]], tasks=["a"], metric="r2")))
    assert "0.900" in text_of(progress)


def test_lines_elsewhere_than_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    progress = ExperimentProgress(JOBS, tasks=3)
    with show_progress(progress, Console(file=out, width=20)) as view:
        view.show(Event("start", JOBS[0]))
        view.show(Event("task", JOBS[0], record(1)))
        assert out.getvalue() == ""  # quiet while it works
        monkeypatch.setattr(runner, "PAUSE", 0.0)
        view.show(Event("task", JOBS[0], record(2)))
        view.show(Event("done", JOBS[0], record(3)))
        view.show(Event("note", JOBS[1], text="slow [this] way"))
        view.show(Event("waiting", JOBS[1]))
        view.show(Event("failed", JOBS[1], text="no luck"))
    assert out.getvalue().splitlines() == [
        "sgd, seed 0: task 2 of 3, average 50.0, task 1 50.0",
        "sgd, seed 0: average 50.0, task 1 50.0 (1 of 4 runs, about 9 s left)",
        "sketch, seed 0: slow [this] way",
        "sketch, seed 0: running in another process; waiting for it.",
    ]
    assert capsys.readouterr().err == "sketch, seed 0: failed: no luck\n"


def test_a_live_table_on_a_terminal() -> None:
    out = io.StringIO()
    progress = ExperimentProgress(JOBS, tasks=3)
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    with show_progress(progress, console) as view:
        view.show(Event("start", JOBS[0]))
        view.show(Event("task", JOBS[0], record(1)))
        view.show(Event("note", JOBS[0], text="slow [this] way"))
        view.live.refresh()
    assert "1/3" in out.getvalue()
    assert "slow [this] way" in out.getvalue()
    assert "0 of 4 runs" in out.getvalue()
