"""Seconds spent on the parts of a task."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds spent on each part of a task, by the clock and of the processor."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.last = time.perf_counter(), time.process_time()

    def stop(self, part: str) -> None:
        """Count what has passed since the last stop for a part."""
        now = time.perf_counter(), time.process_time()
        for spent, before, after in zip((self.wall, self.cpu), self.last, now, strict=True):
            spent[part] = spent.get(part, 0.0) + after - before
        self.last = now
