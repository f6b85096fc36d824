"""What is told while runs are under way, wherever they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from olss.lab.experiment import RunSpec
from olss.streams.record import Record

__all__ = ["Event", "Executor"]

Kind = Literal["start", "task", "done", "failed", "stopped", "waiting", "note"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes
    ----------
    kind : str
        "start"; "task": one more task is learned; "done"; "failed", with the reason; "stopped":
        because it was asked to; "waiting": another process is at it; "note": a word about it.
    spec : RunSpec
    record : Record or None
        So far, for "task" and "done".
    text : str
        For "failed" and "note".
    diverged : bool
        Whether a run failed because its loss or its net was no longer finite.
    """

    kind: Kind
    spec: RunSpec
    record: Record | None = None
    text: str = ""
    diverged: bool = False


class Executor(Protocol):
    """Where runs are done: processes of this machine or a cluster."""

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""

    def submit(self, spec: RunSpec) -> None:
        """Have a run done, after those submitted before."""

    def events(self) -> Iterator[Event]:
        """Return what happens until all is done; more may be submitted meanwhile."""

    def close(self) -> None:
        """End at once; what was learned up to the last task is saved."""
