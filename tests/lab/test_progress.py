from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from olss.lab import progress_view
from olss.lab.executor import Event
from olss.lab.progress import Board
from olss.lab.progress_view import Lines, LiveTable, view_of
from olss.streams.record import Record
from tests.lab.small import small_experiment

JOBS = small_experiment(seeds="0-1").jobs()


def record(tasks: int, score: float = 0.5, seconds: float = 1.0) -> Record:
    accuracy = np.where(np.tri(tasks, dtype=bool), score, np.nan)
    return Record(
        accuracy=accuracy,
        tasks=[f"task {i}" for i in range(tasks)],
        task_seconds={"train": np.full(tasks, seconds)},
    )


def text_of(board: Board, now: bool = True) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(board.table(now=now))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_time_left_counts_each_learner_at_its_own_pace() -> None:
    board = Board(JOBS, tasks=3, processes=2)
    sgd_0, sketch_0, sgd_1, sketch_1 = JOBS
    assert board.seconds_left() is None
    board.take(Event("start", sgd_0))
    board.take(Event("task", sgd_0, record(1, seconds=2.0)))
    # Nothing of sketch is known: it is taken to be as fast. 11 tasks of 2 s, two at a time.
    assert board.seconds_left() == pytest.approx(11.0)
    board.take(Event("done", sgd_0, record(3, seconds=2.0)))
    board.take(Event("task", sketch_0, record(2, seconds=10.0)))
    # One task of sketch, then three of sgd and three of sketch.
    assert board.seconds_left() == pytest.approx((10 + 3 * 2 + 3 * 10) / 2)
    for job in (sketch_0, sgd_1, sketch_1):
        board.take(Event("done", job, record(3)))
    assert board.seconds_left() == 0
    assert len(board.finished()) == 4


def test_the_table_says_what_each_is_doing() -> None:
    board = Board(JOBS, tasks=4)
    assert text_of(board).count("to come") == 2
    board.take(Event("task", JOBS[0], record(2, 0.25)))
    running = text_of(board)
    assert "2/4" in running
    assert "25.0" in running
    board.take(Event("done", JOBS[0], record(4, 0.5)))
    board.take(Event("done", JOBS[2], record(4, 0.6)))
    board.take(Event("failed", JOBS[1], text="no luck"))
    board.take(Event("waiting", JOBS[3]))
    done = text_of(board)
    assert "55.0 ± 7.1" in done
    assert "another process is at it" in done
    assert "0 of 2 1 failed" in text_of(board, now=False)
    assert [(job.label, why) for job, why in board.failed()] == [("sketch", "no luck")]


def test_regression_scores_are_no_percentages() -> None:
    board = Board(JOBS[:1])
    board.take(Event("done", JOBS[0], Record(accuracy=[[0.9]], tasks=["a"], metric="r2")))
    assert "0.900" in text_of(board)


def test_lines_elsewhere_than_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    board = Board(JOBS, tasks=3)
    with view_of(board, Console(file=out, width=20)) as view:
        assert isinstance(view, Lines)
        view.show(Event("start", JOBS[0]))
        view.show(Event("task", JOBS[0], record(1)))
        assert out.getvalue() == ""  # quiet while it works
        monkeypatch.setattr(progress_view, "PAUSE", 0.0)
        view.show(Event("task", JOBS[0], record(2)))
        view.show(Event("done", JOBS[0], record(3)))
        view.show(Event("note", JOBS[1], text="slow [this] way"))
        view.show(Event("waiting", JOBS[1]))
        view.show(Event("failed", JOBS[1], text="no luck"))
    assert out.getvalue().splitlines() == [
        "sgd, seed 0: task 2 of 3, average 50.0, task 1 50.0",
        "sgd, seed 0: average 50.0, task 1 50.0 (1 of 4 runs, about 9 s left)",
        "sketch, seed 0: slow [this] way",
        "sketch, seed 0: another process is at it; waiting.",
    ]
    assert capsys.readouterr().err == "sketch, seed 0: failed: no luck\n"


def test_a_live_table_on_a_terminal() -> None:
    out = io.StringIO()
    board = Board(JOBS, tasks=3)
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    with view_of(board, console) as view:
        assert isinstance(view, LiveTable)
        view.show(Event("start", JOBS[0]))
        view.show(Event("task", JOBS[0], record(1)))
        view.show(Event("note", JOBS[0], text="slow [this] way"))
        view.progress_view.refresh()
    assert "1/3" in out.getvalue()
    assert "slow [this] way" in out.getvalue()
    assert "0 of 4 runs" in out.getvalue()
