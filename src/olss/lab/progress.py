"""What is known of the runs of an experiment at this moment, and as a table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from olss.lab.executors import Event
from olss.lab.experiment import RunSpec
from olss.lab.report.statistics import interval
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
    from rich.console import Console
    from rich.table import Table

__all__ = ["ExperimentProgress", "ProgressLines", "ProgressTable", "said_score", "view_of_progress"]


@dataclass
class _Line:
    """What is known of one run."""

    spec: RunSpec
    state: str = "to come"
    record: Record | None = None
    text: str = ""

    @property
    def learned(self) -> int:
        """Tasks learned so far."""
        return 0 if self.record is None else len(self.record.tasks)


@dataclass
class ExperimentProgress:
    """The runs of an experiment, kept up to date by events.

    Parameters
    ----------
    specs : sequence of RunSpec
    tasks : int or None
        Tasks of the stream, if known.
    processes : int
        Runs at the same time, for the time left.
    """

    specs: Sequence[RunSpec]
    tasks: int | None = None
    processes: int = 1
    lines: dict[Path, _Line] = field(init=False)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.lines = {spec.folder: _Line(spec) for spec in self.specs}
        self.began = time.monotonic()

    def take(self, event: Event) -> None:
        """Note what happened."""
        line = self.lines[event.spec.folder]
        if event.kind == "note":
            return
        states = {"start": "running", "task": "running", "waiting": "elsewhere"}
        line.state, line.text = states.get(event.kind, event.kind), event.text
        line.record = event.record or line.record

    def finished(self) -> list[Record]:
        """Return the records of all finished runs."""
        return [line.record for line in self._in("done") if line.record is not None]

    def failed(self) -> list[tuple[RunSpec, str]]:
        """Return the runs that failed and why."""
        return [(line.spec, line.text) for line in self._in("failed")]

    def _in(self, state: str) -> list[_Line]:
        return [line for line in self.lines.values() if line.state == state]

    @property
    def counts(self) -> str:
        """Say how many runs are finished."""
        return f"{len(self._in('done'))} of {len(self.lines)} runs"

    def seconds_left(self) -> float | None:
        """Estimate, from the seconds a task of each learner takes; None while unknown."""
        paces: dict[str, list[float]] = {}
        for line in self.lines.values():
            if line.record is not None and sum(line.record.seconds.values()) > 0:
                pace = sum(line.record.seconds.values()) / line.learned
                paces.setdefault(line.spec.label, []).append(pace)
        if not paces or self.tasks is None:
            return None
        typical = statistics.fmean(pace for of_one in paces.values() for pace in of_one)
        left = sum(
            statistics.fmean(paces.get(line.spec.label, [typical])) * (self.tasks - line.learned)
            for line in (*self._in("running"), *self._in("to come"))
        )
        return left / self.processes

    def table(self, *, now: bool = True) -> Table:
        """Draw a row for each learner: average and task-1 accuracy over its seeds.

        Parameters
        ----------
        now : bool
            Whether to say what each is doing, beside what is known.
        """
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim", caption_justify="left")
        table.add_column("learner")
        for heading in ("average", "task 1", "newest", "seconds"):
            table.add_column(heading, justify="right")
        table.add_column("seeds" if not now else "now")
        for label in dict.fromkeys(spec.label for spec in self.specs):
            lines = [line for line in self.lines.values() if line.spec.label == label]
            table.add_row(
                escape(escape_controls(label)),
                *_scores(lines),
                self._doing(lines) if now else _seeds(lines),
            )
        cells = " ".join(str(cell) for column in table.columns for cell in column.cells)
        if meaning := explain_spread(cells):
            table.caption = f"{meaning}."
        return table

    def _doing(self, lines: Sequence[_Line]) -> str:
        running = [line for line in lines if line.state == "running"]
        if running:
            return "[dim], [/]".join(self._progress(line) for line in running)
        waiting = [line for line in lines if line.state == "elsewhere"]
        if waiting:
            return "[yellow]another process is at it[/]"
        return _seeds(lines)

    def _progress(self, line: _Line) -> str:
        if self.tasks is None:
            return f"seed {line.spec.seed}: {line.learned} tasks"
        done = round(10 * line.learned / self.tasks)
        bar = f"[cyan]{'━' * done}[/][dim]{'━' * (10 - done)}[/]"
        return f"seed {line.spec.seed} {bar} {line.learned}/{self.tasks}"


def _seeds(lines: Sequence[_Line]) -> str:
    done = sum(line.state == "done" for line in lines)
    failed = sum(line.state == "failed" for line in lines)
    said = str(done) if done == len(lines) else f"{done} of {len(lines)}"
    if not done and not failed:
        return "[dim]to come[/]"
    return said + (f" [red]{failed} failed[/]" if failed else "")


def _scores(lines: Sequence[_Line]) -> tuple[str, str, str, str]:
    """Say the means over finished seeds; before there are any, those of the runs under way."""
    records = [line.record for line in lines if line.state == "done" and line.record]
    style = "none"
    if not records:
        records, style = [line.record for line in lines if line.record], "dim"
    if not records:
        return ("", "", "", "")
    values = [
        [record.average_accuracy[-1] for record in records],
        [record.accuracy[-1, 0] for record in records],
        [record.accuracy[-1, -1] for record in records],
    ]
    told = [said_score(numbers, records[0].metric) for numbers in values]
    seconds = statistics.fmean(sum(record.seconds.values()) for record in records)
    average, first, newest, spent = (
        f"[{style}]{text}[/]" for text in (*told, format_number(seconds))
    )
    return average, first, newest, spent


def said_score(values: Sequence[float], metric: str = "accuracy") -> str:
    """Return the mean over seeds with its interval or range; accuracies in per cent.

    Examples
    --------
    >>> said_score([0.931])
    '93.1'
    >>> said_score([0.5, 0.6, 0.7])
    '60.0 (50.0–70.0)'
    >>> said_score([0.5, 0.6, 0.7, 0.8])
    '65.0 ± 20.5'
    """
    return format_score(interval(values).content(), metric)


# ------------------------------------------------------------------ progress view

PAUSE = 60.0  # seconds between two lines on runs under way


def view_of_progress(
    progress: ExperimentProgress, console: Console
) -> ProgressLines | ProgressTable:
    """Return the view that fits where the output goes."""
    return (
        ProgressTable(progress, console)
        if console.is_terminal
        else ProgressLines(progress, console)
    )


class ProgressLines:
    """A line for each finished run, and now and then one on a run under way."""

    def __init__(self, progress: ExperimentProgress, console: Console) -> None:
        self.progress, self.console = progress, console
        self.spoke = time.monotonic()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        """Leave things as they are: every line is already said."""

    def show(self, event: Event) -> None:
        """Say what happened, if it is worth a line."""
        self.progress.take(event)
        text = self._text(event)
        if text and event.kind == "failed":
            echo(text, err=True)
        elif text:
            # Whole lines whatever the width: somebody may search the log.
            self.console.print(escape_controls(text), markup=False, highlight=False, soft_wrap=True)
            self.spoke = time.monotonic()

    def _text(self, event: Event) -> str:
        who = f"{event.spec.label}, seed {event.spec.seed}"
        if event.kind in ("failed", "note"):
            return f"{who}: {'failed: ' if event.kind == 'failed' else ''}{event.text}"
        if event.kind == "waiting":
            return f"{who}: another process is at it; waiting."
        left = self.progress.seconds_left()
        if event.kind == "done" and event.record is not None:
            soon = f", about {format_duration(left)} left" if left else ""
            return f"{who}: {_final_scores(event)} ({self.progress.counts}{soon})"
        if event.kind == "task" and event.record and time.monotonic() - self.spoke > PAUSE:
            of = "" if self.progress.tasks is None else f" of {self.progress.tasks}"
            return f"{who}: task {len(event.record.tasks)}{of}, {_final_scores(event)}"
        return ""


class ProgressTable:
    """A table that fills in, redrawn in place."""

    def __init__(self, progress: ExperimentProgress, console: Console) -> None:
        from rich.live import Live

        self.progress, self.console = progress, console
        self.live = Live(
            get_renderable=self._drawn, console=console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> ProgressTable:
        self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.live.stop()

    def show(self, event: Event) -> None:
        """Redraw; failures and notes stay above the table."""
        from rich.text import Text

        self.progress.take(event)
        if event.kind in ("failed", "note"):
            colour = "red" if event.kind == "failed" else "yellow"
            who = f"{event.spec.label}, seed {event.spec.seed}"
            text = Text.assemble((f"{escape_controls(who)}: ", colour), escape_controls(event.text))
            self.live.console.print(text, highlight=False)

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        spent = time.monotonic() - self.progress.began
        left = self.progress.seconds_left()
        soon = f", about {format_duration(left)} left" if left else ""
        foot = Text(f"{self.progress.counts}, {format_duration(spent)} so far{soon}", style="dim")
        return Group(self.progress.table(), Text(), foot)


def _final_scores(event: Event) -> str:
    assert event.record is not None
    record = event.record
    average = said_score([record.average_accuracy[-1]], record.metric)
    return f"average {average}, task 1 {said_score([record.accuracy[-1, 0]], record.metric)}"
