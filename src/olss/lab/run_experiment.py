"""Running an experiment: what is left to do, having it done, watching."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from olss.lab import run_directory
from olss.lab.executor import Event, Executor
from olss.lab.experiment import Experiment, Job
from olss.lab.process_executor import Workers
from olss.lab.progress import Board
from olss.lab.progress_view import view_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["conduct", "executor_for"]

Watch = Callable[[Event], None]


def executor_for(root: Path, jobs: int, scheduler: str | None) -> Executor:
    """Give what does the runs: processes here, or the cluster of that address."""
    if scheduler is None:
        return Workers(root, jobs)
    from olss.lab.dask_executor import Cluster

    return Cluster(root, scheduler)


def conduct(
    experiment: Experiment,
    root: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    jobs: int = 1,
    scheduler: str | None = None,
    watchers: Sequence[Watch] = (),
    executor: Executor | None = None,
) -> Board:
    """Run an experiment, or what is left of it.

    Parameters
    ----------
    experiment : Experiment
    root : Path
        Folder of results, such as ``runs``.
    console : rich.console.Console
        Where to show what happens.
    only : sequence of str
        These learners alone.
    jobs : int
        Runs at the same time.
    scheduler : str, optional
        Address of a Dask cluster to run on instead.
    watchers : sequence of callables
        Told every event, too.
    executor : Executor, optional
        One already there to do the runs; it is left open.

    Returns
    -------
    Board
        What came of each run.
    """
    all_jobs = (experiment.only(only) if only else experiment).jobs()
    board = Board(all_jobs, processes=max(1, jobs))
    left = _left(board, root, all_jobs)
    run_directory.note_experiment(root, experiment)
    if not left:
        return board
    if len(left) < len(all_jobs):
        console.print(f"{board.counts} were finished before and are kept.", style="dim")
    board.processes = min(jobs, len(left))
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = executor_for(root, board.processes, scheduler)
            stack.callback(executor.close)
        board.tasks = executor.check(left)
        _watch(executor, left, board, console, watchers)
    return board


def _watch(
    executor: Executor,
    left: Sequence[Job],
    board: Board,
    console: Console,
    watchers: Sequence[Watch],
) -> None:
    with view_of(board, console) as view:
        for job in left:
            executor.submit(job)
        for event in executor.events():
            view.show(event)
            for watch in watchers:
                watch(event)


def _left(board: Board, root: Path, jobs: Sequence[Job]) -> list[Job]:
    """Give the runs not yet finished, putting the others on the board."""
    left = []
    for job in jobs:
        record = run_directory.finished_record(root / job.folder, job)
        if record is None:
            left.append(job)
        else:
            board.take(Event("done", job, record))
    return left
