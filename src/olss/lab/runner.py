"""Run an experiment: find what is left to do, have it done, and show the progress."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.errors import InputError
from olss.lab.executors import DaskExecutor, Event, Executor, ProcessExecutor
from olss.lab.experiment import Experiment, RunSpec
from olss.lab.report.statistics import interval
from olss.lab.single_run import finished_record, note_experiment
from olss.streams.record import Record
from olss.util.terminal import echo
from olss.util.text import (
    escape_controls,
    explain_spread,
    format_duration,
    format_number,
    format_score,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

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
    """Run an experiment, or what is left of it."""
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


PAUSE = 60.0  # seconds between two lines on unfinished runs
STATES = {"start": "running", "task": "running", "waiting": "elsewhere"}


@dataclass
class _Run:
    """The state of one run."""

    spec: RunSpec
    state: str = "to come"
    record: Record | None = None
    text: str = ""

    @property
    def learned(self) -> int:
        """Number of tasks learned so far."""
        return 0 if self.record is None else len(self.record.tasks)


@dataclass
class ExperimentProgress:
    """The runs of an experiment, kept up to date by events."""

    specs: Sequence[RunSpec]
    tasks: int | None = None  # number of tasks of the stream, if known
    processes: int = 1  # number of runs at the same time, to estimate the time left
    began: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._runs: dict[Path, _Run] = {spec.folder: _Run(spec) for spec in self.specs}

    def update(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind != "note":
            run = self._runs[event.spec.folder]
            run.state, run.text = STATES.get(event.kind, event.kind), event.text
            run.record = event.record or run.record

    def finished_records(self) -> list[Record]:
        """Return the records of all finished runs."""
        return [run.record for run in self._runs_in("done") if run.record is not None]

    def failed_runs(self) -> list[tuple[RunSpec, str]]:
        """Return the runs that failed and why."""
        return [(run.spec, run.text) for run in self._runs_in("failed")]

    def _runs_in(self, *states: str) -> list[_Run]:
        return [run for run in self._runs.values() if run.state in states]

    @property
    def counts(self) -> str:
        """How many runs are finished, in words."""
        return f"{len(self._runs_in('done'))} of {len(self._runs)} runs"

    def seconds_left(self) -> float | None:
        """Estimate the time left from the pace of each learner; None while it is unknown."""
        paces: dict[str, list[float]] = {}
        for run in self._runs.values():
            if run.record is not None and (spent := sum(run.record.seconds.values())) > 0:
                paces.setdefault(run.spec.label, []).append(spent / run.learned)
        if not paces or self.tasks is None:
            return None
        typical = statistics.fmean(pace for of_learner in paces.values() for pace in of_learner)
        left = sum(
            statistics.fmean(paces.get(run.spec.label, [typical])) * (self.tasks - run.learned)
            for run in self._runs_in("running", "to come")
        )
        return left / self.processes

    def time_left(self) -> str:
        """Return the estimated time left in words, nothing while it is unknown."""
        left = self.seconds_left()
        return f", about {format_duration(left)} left" if left else ""

    def table(self, *, now: bool = True) -> Table:
        """Return a table with a row for each learner: its scores over seeds."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim", caption_justify="left")
        table.add_column("learner")
        for heading in ("average", "task 1", "newest", "seconds"):
            table.add_column(heading, justify="right")
        table.add_column("now" if now else "seeds")
        shown = ""
        for label in dict.fromkeys(spec.label for spec in self.specs):
            runs = [run for run in self._runs.values() if run.spec.label == label]
            scores = _format_scores(runs)
            shown += " ".join(scores)
            state = self._format_state(runs) if now else _format_counts(runs)
            table.add_row(escape(escape_controls(label)), *scores, state)
        if meaning := explain_spread(shown):
            table.caption = f"{meaning}."
        return table

    def _format_state(self, runs: Sequence[_Run]) -> str:
        if running := [run for run in runs if run.state == "running"]:
            return "[dim], [/]".join(self._bar(run) for run in running)
        if any(run.state == "elsewhere" for run in runs):
            return "[yellow]running in another process[/]"
        return _format_counts(runs)

    def _bar(self, run: _Run) -> str:
        if self.tasks is None:
            return f"seed {run.spec.seed}: {run.learned} tasks"
        done = round(10 * run.learned / self.tasks)
        bar = f"[cyan]{'━' * done}[/][dim]{'━' * (10 - done)}[/]"
        return f"seed {run.spec.seed} {bar} {run.learned}/{self.tasks}"


def _format_counts(runs: Sequence[_Run]) -> str:
    done = sum(run.state == "done" for run in runs)
    failed = sum(run.state == "failed" for run in runs)
    if not done and not failed:
        return "[dim]to come[/]"
    finished = str(done) if done == len(runs) else f"{done} of {len(runs)}"
    return finished + (f" [red]{failed} failed[/]" if failed else "")


def _format_scores(runs: Sequence[_Run]) -> list[str]:
    """Return the scores over finished seeds; before there are any, those of unfinished runs."""
    records = [run.record for run in runs if run.state == "done" and run.record]
    style = "none" if records else "dim"
    records = records or [run.record for run in runs if run.record]
    if not records:
        return [""] * 4
    values = [
        [record.average_accuracy[-1] for record in records],
        [record.accuracy[-1, 0] for record in records],
        [record.accuracy[-1, -1] for record in records],
    ]
    texts = [format_seeds(seeds, records[0].metric) for seeds in values]
    spent = statistics.fmean(sum(record.seconds.values()) for record in records)
    return [f"[{style}]{text}[/]" for text in (*texts, format_number(spent))]


def format_seeds(values: Sequence[float], metric: str = "accuracy") -> str:
    """Return the mean over seeds with its interval or range; accuracies in per cent.

    Examples
    --------
    >>> format_seeds([0.931])
    '93.1'
    >>> format_seeds([0.5, 0.6, 0.7])
    '60.0 (50.0–70.0)'
    >>> format_seeds([0.5, 0.6, 0.7, 0.8])
    '65.0 ± 20.5'
    """
    return format_score(interval(values).content(), metric)


def show_progress(
    progress: ExperimentProgress, console: Console
) -> AbstractContextManager[_Lines | _LiveTable]:
    """Return a view whose `show` takes events: a live table on a terminal, lines elsewhere."""
    view = _LiveTable if console.is_terminal else _Lines
    return view(progress, console)


class _Lines:
    """A line for each finished run, and now and then one on an unfinished run."""

    def __init__(self, progress: ExperimentProgress, console: Console) -> None:
        self.progress, self.console = progress, console
        self.printed = time.monotonic()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave things as they are: every line is already printed."""

    def show(self, event: Event) -> None:
        """Print what happened, if it is worth a line."""
        self.progress.update(event)
        text = self._text(event)
        if text and event.kind == "failed":
            echo(text, err=True)
        elif text:
            # Lines are never broken, so that a log can be searched.
            self.console.print(escape_controls(text), markup=False, highlight=False, soft_wrap=True)
            self.printed = time.monotonic()

    def _text(self, event: Event) -> str:
        run, record = _name(event), event.record
        if event.kind in ("failed", "note"):
            return f"{run}: {'failed: ' if event.kind == 'failed' else ''}{event.text}"
        if event.kind == "waiting":
            return f"{run}: running in another process; waiting for it."
        if record is None or event.kind not in ("task", "done"):
            return ""
        first, last = (
            format_seeds([float(value)], record.metric)
            for value in (record.accuracy[-1, 0], record.average_accuracy[-1])
        )
        scores = f"average {last}, task 1 {first}"
        if event.kind == "done":
            return f"{run}: {scores} ({self.progress.counts}{self.progress.time_left()})"
        if time.monotonic() - self.printed <= PAUSE:
            return ""
        of = "" if self.progress.tasks is None else f" of {self.progress.tasks}"
        return f"{run}: task {len(record.tasks)}{of}, {scores}"


class _LiveTable:
    """A table that fills in, redrawn in place."""

    def __init__(self, progress: ExperimentProgress, console: Console) -> None:
        from rich.live import Live

        self.progress = progress
        self.live = Live(
            get_renderable=self._render, console=console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> _LiveTable:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, event: Event) -> None:
        """Redraw; failures and notes stay above the table."""
        from rich.text import Text

        self.progress.update(event)
        if event.kind in ("failed", "note"):
            colour = "red" if event.kind == "failed" else "yellow"
            name = (f"{escape_controls(_name(event))}: ", colour)
            text = Text.assemble(name, escape_controls(event.text))
            self.live.console.print(text, highlight=False)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        spent = format_duration(time.monotonic() - self.progress.began)
        foot = f"{self.progress.counts}, {spent} so far{self.progress.time_left()}"
        return Group(self.progress.table(), Text(), Text(foot, style="dim"))


def _name(event: Event) -> str:
    return f"{event.spec.label}, seed {event.spec.seed}"
