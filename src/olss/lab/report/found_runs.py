"""What a report is made of: runs that were found, methods of equal runs, groups to compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from olss.streams.record import Record

__all__ = ["Collection", "FoundRun", "Group", "Method", "Problem"]


@dataclass(frozen=True)
class FoundRun:
    """A record, where it came from, and the seeds that tell it from its siblings."""

    record: Record
    folder: Path

    @property
    def seed(self) -> str:
        """The run's seed, with the stream's where that is another."""
        stream = self.record.config.get("stream", {}).get("seed", self.record.seed)
        own = self.record.seed
        return str(own) if stream == own else f"{own} (stream {stream})"


@dataclass
class Method:
    """Runs that differ by their seeds alone."""

    label: str
    runs: list[FoundRun]
    missing: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of all runs, their seeds aside."""
        return self.runs[0].record.config

    @property
    def learner(self) -> dict[str, Any]:
        """Settings of the learner."""
        return dict(self.config.get("learner", {}))

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return str(self.learner.get("recipe", self.label))


@dataclass
class Group:
    """Methods that may be compared: one protocol on one stream."""

    slug: str
    title: str
    protocol: str
    metric: str
    compete: str
    stream: dict[str, Any]
    tasks: list[str]
    methods: list[Method]


@dataclass(frozen=True)
class Problem:
    """Something found and not used, or expected and not found."""

    where: str
    what: str


@dataclass
class Collection:
    """Everything found below the given folders."""

    groups: list[Group]
    problems: list[Problem]

    @property
    def labels(self) -> list[str]:
        """Labels of all methods, each once, in the order of the groups."""
        return list(dict.fromkeys(m.label for group in self.groups for m in group.methods))
