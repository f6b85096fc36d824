"""Running an experiment: what is left to do, having it done, watching."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from olss.lab import run_directory
from olss.lab.executor import Event, Executor
from olss.lab.experiment import Experiment, RunSpec
from olss.lab.process_executor import ProcessExecutor
from olss.lab.progress import ExperimentProgress
from olss.lab.progress_view import view_of_progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["executor_for", "run_experiment"]

log = logging.getLogger(__name__)
Watch = Callable[[Event], None]


def executor_for(root: Path, jobs: int, scheduler: str | None) -> Executor:
    """Return what does the runs: processes here, or the cluster of that address."""
    if scheduler is None:
        return ProcessExecutor(root, jobs)
    from olss.lab.dask_executor import DaskExecutor

    return DaskExecutor(root, scheduler)


def run_experiment(
    experiment: Experiment,
    root: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    jobs: int = 1,
    scheduler: str | None = None,
    watchers: Sequence[Watch] = (),
    executor: Executor | None = None,
) -> ExperimentProgress:
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
    ExperimentProgress
        What came of each run.
    """
    specs = (experiment.only(only) if only else experiment).run_specs()
    progress = ExperimentProgress(specs, processes=max(1, jobs))
    left = _left(progress, root, specs)
    log.info("%s: %d of %d runs are left to do", experiment.name, len(left), len(specs))
    run_directory.note_experiment(root, experiment)
    if not left:
        return progress
    if len(left) < len(specs):
        console.print(f"{progress.counts} were finished before and are kept.", style="dim")
    progress.processes = min(jobs, len(left))
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = executor_for(root, progress.processes, scheduler)
            stack.callback(executor.close)
        progress.tasks = executor.check(left)
        _watch(executor, left, progress, console, watchers)
    return progress


def _watch(
    executor: Executor,
    left: Sequence[RunSpec],
    progress: ExperimentProgress,
    console: Console,
    watchers: Sequence[Watch],
) -> None:
    with view_of_progress(progress, console) as view:
        for spec in left:
            executor.submit(spec)
        for event in executor.events():
            log.debug("%s, seed %d: %s %s", *_who(event), event.kind, event.text)
            view.show(event)
            for watch in watchers:
                watch(event)


def _who(event: Event) -> tuple[str, int]:
    return event.spec.label, event.spec.seed


def _left(progress: ExperimentProgress, root: Path, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the runs not yet finished, noting that the others are."""
    left = []
    for spec in specs:
        record = run_directory.finished_record(root / spec.folder, spec)
        if record is None:
            left.append(spec)
        else:
            progress.take(Event("done", spec, record))
    return left
