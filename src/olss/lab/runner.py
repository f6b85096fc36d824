"""Running an experiment: what is left to do, having it done, watching."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.errors import InputError
from olss.lab.executors import DaskExecutor, Event, Executor, ProcessExecutor
from olss.lab.experiment import Experiment, RunSpec
from olss.lab.progress import ExperimentProgress, view_of_progress
from olss.lab.single_run import finished_record, note_experiment

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TensorBoardLog", "executor_for", "run_experiment"]


log = logging.getLogger(__name__)
Watch = Callable[[Event], None]


def executor_for(root: Path, jobs: int, scheduler: str | None) -> Executor:
    """Return what does the runs: processes here, or the cluster of that address."""
    if scheduler is None:
        return ProcessExecutor(root, jobs)
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
    note_experiment(root, experiment)
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
        record = finished_record(root / spec.folder, spec)
        if record is None:
            left.append(spec)
        else:
            progress.take(Event("done", spec, record))
    return left


# ------------------------------------------------------------------ tensorboard log


class TensorBoardLog:
    """Scalars in each run's own folder: ``tensorboard --logdir runs``.

    Each task of each run is logged once; after a resumption, those before it first.

    Parameters
    ----------
    root : Path
        Folder of results.
    """

    def __init__(self, root: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("--tensorboard needs tensorboard: pip install tensorboard") from error
        self._writer, self.root = SummaryWriter, root
        self._writers: dict[Path, Any] = {}
        self._logged: dict[Path, int] = {}

    def __call__(self, event: Event) -> None:
        """Log what an event tells of tasks not logged yet: the average and each task's score."""
        record, folder = event.record, event.spec.folder
        if record is None or event.kind not in ("task", "done"):
            return
        if folder not in self._writers:
            self._writers[folder] = self._writer(str(self.root / folder))
        writer = self._writers[folder]
        for after in range(self._logged.get(folder, 0), len(record.tasks)):
            average = float(record.average_accuracy[after])
            writer.add_scalar(f"average {record.metric}", average, after + 1)
            for number, score in enumerate(record.accuracy[after, : after + 1], start=1):
                writer.add_scalar(f"task {number}", float(score), after + 1)
        writer.flush()
        self._logged[folder] = len(record.tasks)
        if event.kind == "done":
            self._writers.pop(folder).close()
