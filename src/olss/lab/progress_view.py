"""What is seen while an experiment runs: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from olss.lab.executor import Event
from olss.lab.progress import ExperimentProgress, said_score
from olss.util.terminal import say
from olss.util.text import printable, rough_time

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ProgressLines", "ProgressTable", "view_of_progress"]

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
            say(text, err=True)
        elif text:
            # Whole lines whatever the width: somebody may search the log.
            self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
            self.spoke = time.monotonic()

    def _text(self, event: Event) -> str:
        who = f"{event.spec.label}, seed {event.spec.seed}"
        if event.kind in ("failed", "note"):
            return f"{who}: {'failed: ' if event.kind == 'failed' else ''}{event.text}"
        if event.kind == "waiting":
            return f"{who}: another process is at it; waiting."
        left = self.progress.seconds_left()
        if event.kind == "done" and event.record is not None:
            soon = f", about {rough_time(left)} left" if left else ""
            return f"{who}: {_scores(event)} ({self.progress.counts}{soon})"
        if event.kind == "task" and event.record and time.monotonic() - self.spoke > PAUSE:
            of = "" if self.progress.tasks is None else f" of {self.progress.tasks}"
            return f"{who}: task {len(event.record.tasks)}{of}, {_scores(event)}"
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
            text = Text.assemble((f"{printable(who)}: ", colour), printable(event.text))
            self.live.console.print(text, highlight=False)

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        spent = time.monotonic() - self.progress.began
        left = self.progress.seconds_left()
        soon = f", about {rough_time(left)} left" if left else ""
        foot = Text(f"{self.progress.counts}, {rough_time(spent)} so far{soon}", style="dim")
        return Group(self.progress.table(), Text(), foot)


def _scores(event: Event) -> str:
    assert event.record is not None
    record = event.record
    average = said_score([record.average_accuracy[-1]], record.metric)
    return f"average {average}, task 1 {said_score([record.accuracy[-1, 0]], record.metric)}"
