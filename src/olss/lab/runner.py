"""Run an experiment: find what is left to do, have it done, watch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.errors import InputError
from olss.lab.executors import DaskExecutor, Event, Executor, ProcessExecutor
from olss.lab.experiment import Experiment
from olss.lab.progress import ExperimentProgress, show_progress
from olss.lab.single_run import finished_record, note_experiment

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TensorBoardLog", "run_experiment"]

log = logging.getLogger(__name__)


def run_experiment(
    experiment: Experiment,
    root: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    jobs: int = 1,
    scheduler: str | None = None,
    watchers: Sequence[Callable[[Event], None]] = (),
    executor: Executor | None = None,
) -> ExperimentProgress:
    """Run an experiment, or what is left of it.

    Parameters
    ----------
    experiment : Experiment
    root : Path
        Folder of results, such as ``runs``.
    console : rich.console.Console
        Where to show progress.
    only : sequence of str
        Names of the learners to run; all of them by default.
    jobs : int
        Number of runs at the same time.
    scheduler : str, optional
        Address of a Dask scheduler, to run on its cluster instead.
    watchers : sequence of callables
        Called with every event.
    executor : Executor, optional
        One to use and leave open.

    Returns
    -------
    ExperimentProgress
        The outcome of each run.
    """
    specs = (experiment.only(only) if only else experiment).run_specs()
    progress = ExperimentProgress(specs)
    left = []
    for spec in specs:
        record = finished_record(root / spec.folder, spec)
        if record is None:
            left.append(spec)
        else:
            progress.update(Event("done", spec, record))
    log.info("%s: %d of %d runs are left to do", experiment.name, len(left), len(specs))
    note_experiment(root, experiment)  # all of it, so that a report can say what was not run
    if not left:
        return progress
    if len(left) < len(specs):
        console.print(f"{progress.counts} were finished before and are kept.", style="dim")
    progress.processes = min(jobs, len(left))
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = create_executor(root, progress.processes, scheduler)
            stack.callback(executor.close)
        progress.tasks = executor.check(left)
        view = stack.enter_context(show_progress(progress, console))
        for spec in left:
            executor.submit(spec)
        for event in executor.events():
            log.debug("%s: %s %s", event.spec.folder, event.kind, event.text)
            view.show(event)
            for watch in watchers:
                watch(event)
    return progress


def create_executor(root: Path, jobs: int, scheduler: str | None) -> Executor:
    """Return an executor of local processes, or on the cluster of a Dask scheduler."""
    return ProcessExecutor(root, jobs) if scheduler is None else DaskExecutor(root, scheduler)


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
        """Log the scores of tasks not logged yet: the average and each task's."""
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
