"""What a sketch holds, in numbers and as a text to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Description"]

WIDTH = 12  # classes shown as columns
TASKS = 40  # tasks shown as lines


@dataclass(frozen=True)
class Description:
    """Rows per task and class, and weights, of a sketch; its `str` is a table to read.

    Attributes
    ----------
    rows, seen : int
        Rows held and rows seen.
    tasks : list
        The tasks that have rows in the sketch.
    classes : list or None
        The classes that have, or None if rows have no class.
    counts : (len(tasks), len(classes) or 1) int array
        Rows held per task and class.
    task_weight : (len(tasks),) array
        Sum of weights per task: an estimate of the rows seen of it.
    weight : tuple of three floats
        Smallest, mean and largest weight.
    effective_rows : float
        How many rows of equal weight tell as much: (sum w)^2 / sum w^2.
    """

    rows: int
    seen: int
    tasks: list[Any]
    classes: list[Any] | None
    counts: NDArray[np.int64]
    task_weight: NDArray[np.float64]
    weight: tuple[float, float, float]
    effective_rows: float

    @classmethod
    def of(
        cls,
        seen: int,
        task: NDArray[Any],
        classes: NDArray[Any] | None,
        weight: NDArray[np.float64],
    ) -> Description:
        """Describe rows by their tasks, classes and weights."""
        tasks, i = np.unique(task, return_inverse=True)
        labels, j = np.unique(
            np.zeros(len(task)) if classes is None else classes, return_inverse=True
        )
        counts = np.zeros((len(tasks), len(labels)), dtype=np.int64)
        np.add.at(counts, (i, j), 1)
        return cls(
            rows=len(task),
            seen=seen,
            tasks=tasks.tolist(),
            classes=None if classes is None else labels.tolist(),
            counts=counts,
            task_weight=np.bincount(i, weight).astype(np.float64),
            weight=(float(weight.min()), float(weight.mean()), float(weight.max())),
            effective_rows=float(weight.sum() ** 2 / (weight**2).sum()),
        )

    def __str__(self) -> str:
        low, mean, high = self.weight
        lines = [
            f"{self.rows:,} rows of {self.seen:,} seen",
            f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
            f"worth {self.effective_rows:,.0f} rows of equal weight",
            *_aligned(self._table()),
        ]
        if len(self.tasks) > TASKS:
            lines.append(f"... and {len(self.tasks) - TASKS} tasks more")
        return "\n".join(lines)

    __repr__ = __str__

    def _table(self) -> list[list[str]]:
        shown = [] if self.classes is None else self.classes[:WIDTH]
        more = ["..."] if self.classes is not None and len(self.classes) > WIDTH else []
        lines = [["task", "rows", "stand for", *map(str, shown), *more]]
        for task, counts, weight in zip(self.tasks, self.counts, self.task_weight, strict=True):
            by_class = [f"{count:,}" for count in counts[: len(shown)]]
            lines.append([str(task), f"{counts.sum():,}", f"{weight:,.0f}", *by_class, *more])
        return lines[: TASKS + 1]


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.rjust, line, widths)) for line in table]
