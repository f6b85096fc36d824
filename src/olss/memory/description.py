"""What a sketch holds, in numbers and as a text to read."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.memory.absorbing import target_of
from olss.memory.policies import says
from olss.memory.state import Settings, State
from olss.tables.columns import Passthrough
from olss.util.text import align_columns, escape_html, format_bytes, html_bar, html_table

__all__ = ["Description", "short_names"]

WIDTH = 12  # classes shown as columns
TASKS = 40  # tasks shown as lines
COLUMNS = 12  # columns named of those scored, and of those not
LINE = 92  # letters
CELL = "padding:1px 10px;border:0;background:none;"  # in a notebook


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
    scored : str
        What scores are taken of, in words.
    columns : list of (name, use, reason)
        Of tables: what each column is used for.
    row_bytes, spectrum_bytes : int
        Memory of the rows held, and of what is known of everything seen.
    waiting : int
        Rows that had waited for others, and were drawn from so that they could be described.
    """

    rows: int
    seen: int
    tasks: list[Any]
    classes: list[Any] | None
    counts: NDArray[np.int64]
    task_weight: NDArray[np.float64]
    weight: tuple[float, float, float]
    effective_rows: float
    scored: str
    columns: list[tuple[str, str, str]]
    row_bytes: int
    spectrum_bytes: int
    waiting: int

    @classmethod
    def of(
        cls,
        settings: Settings,
        state: State,
        classes: NDArray[Any] | None,
        waiting: int = 0,
    ) -> Description:
        """Return the description of a state with rows, whose classes are given."""
        task, weight = state.rows["task"], state.rows["weight"]
        columns = _column_uses(state)
        tasks, i = np.unique(task, return_inverse=True)
        labels, j = np.unique(
            np.zeros(len(task)) if classes is None else classes, return_inverse=True
        )
        counts = np.zeros((len(tasks), len(labels)), dtype=np.int64)
        np.add.at(counts, (i, j), 1)
        return cls(
            rows=len(task),
            seen=state.seen,
            tasks=tasks.tolist(),
            classes=None if classes is None else labels.tolist(),
            counts=counts,
            task_weight=np.bincount(i, weight).astype(np.float64),
            weight=(float(weight.min()), float(weight.mean()), float(weight.max())),
            effective_rows=float(weight.sum() ** 2 / (weight**2).sum()),
            scored=_scored(settings, state, columns) + _targeted(settings, state),
            columns=columns,
            row_bytes=state.rows.nbytes,
            spectrum_bytes=0 if state.spectrum is None else state.spectrum.nbytes,
            waiting=waiting,
        )

    @property
    def memory(self) -> str:
        """Bytes held, and rows that had waited, in words."""
        text = f"memory: rows {format_bytes({'mean': self.row_bytes})}"
        if self.spectrum_bytes:
            text += f", spectrum {format_bytes({'mean': self.spectrum_bytes})}"
        return f"{text}; {self.waiting:,} rows had waited until now" if self.waiting else text

    def __str__(self) -> str:
        low, mean, high = self.weight
        lines = [
            f"{self.rows:,} rows of {self.seen:,} seen",
            f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
            f"worth {self.effective_rows:,.0f} rows of equal weight",
            *textwrap.wrap(f"scored: {self.scored}", LINE, subsequent_indent="  "),
            self.memory,
        ]
        lines += align_columns(self.table())
        if len(self.tasks) > TASKS:
            lines.append(f"... and {len(self.tasks) - TASKS} tasks more")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return what a notebook shows: small, whatever the theme, whatever the names."""
        low, mean, high = self.weight
        head, *lines = self.table()
        most = max(int(counts.sum()) for counts in self.counts)
        rows = []
        for line, counts in zip(lines, self.counts, strict=False):
            length = f'<div style="width:8em">{html_bar(counts.sum() / most)}</div>'
            rows.append([escape_html(line[0]), length, *map(escape_html, line[1:])])
        words = [
            f"{self.rows:,} rows of {self.seen:,} seen",
            f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; worth "
            f"{self.effective_rows:,.0f} rows of equal weight",
            f"scored: {self.scored}",
            self.memory,
        ]
        if len(self.tasks) > TASKS:
            words.append(f"the first {TASKS} of {len(self.tasks):,} tasks:")
        said = "".join(f"<div>{escape_html(text)}</div>" for text in words)
        shown = html_table([head[0], "", *head[1:]], rows, left=2, style=CELL)
        return f'<div style="max-width:60em;line-height:1.5">{said}</div>{shown}'

    def table(self) -> list[list[str]]:
        """Return rows by task and class as cells to read, the first line being the head."""
        shown = [] if self.classes is None else self.classes[:WIDTH]
        more = ["..."] if self.classes is not None and len(self.classes) > WIDTH else []
        lines = [["task", "rows", "stand for", *map(str, shown), *more]]
        for task, counts, weight in zip(self.tasks, self.counts, self.task_weight, strict=True):
            by_class = [f"{count:,}" for count in counts[: len(shown)]]
            lines.append([str(task), f"{counts.sum():,}", f"{weight:,.0f}", *by_class, *more])
        return lines[: TASKS + 1]


def _column_uses(state: State) -> list[tuple[str, str, str]]:
    """Return (name, use, reason) for each column of a table; nothing while nothing is scored."""
    numbers = state.numbers
    if numbers.plan is None:
        return []
    if state.spectrum is None or not numbers.plan.width:
        return numbers.plan.uses(np.ones(numbers.plan.width, dtype=bool))
    return numbers.plan.uses(numbers.varying(state.spectrum))


def short_names(names: list[str]) -> list[str]:
    """Return names without their folder, if all are in the same."""
    if len(names) == 1:
        return [os.path.basename(names[0]) or names[0]]
    folders = {name.rpartition("/")[0] for name in names}
    if len(folders) > 1:
        return names
    return [name.rpartition("/")[2] for name in names]


def _scored(settings: Settings, state: State, columns: list[tuple[str, str, str]]) -> str:
    """Return in words what scores are taken of."""
    if settings.features is not None:
        return "what features makes of rows"
    asked = says(settings.policy, "scored") is not None or says(settings.policy, "looks")
    if not asked and state.spectrum is None:
        return "nothing, the policy asks for no scores"
    if state.table is None:
        width = int(np.prod(state.rows["X"].shape[1:]))
        gaps = ", gaps filled" if state.numbers.gaps is not None else ""
        return f"rows as they are, {width:,} number{'' if width == 1 else 's'} each{gaps}"
    used = [f"{name} ({use})" for name, use, _ in columns if use != Passthrough.use]
    carried = [name for name, use, _ in columns if use == Passthrough.use]
    text = _some(used) or "no column"
    return f"{text}; not scored: {_some(carried)}" if carried else text


def _targeted(settings: Settings, state: State) -> str:
    target = target_of(settings, state.classes)
    if target is None:
        return ""
    model = "logistic" if target == "class" else "linear"
    return f"; and by what a {model} model of these gets wrong of the target"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - COLUMNS:,} more" if len(names) > COLUMNS else ""
    return ", ".join(names[:COLUMNS]) + more
