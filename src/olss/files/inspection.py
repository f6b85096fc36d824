"""What a sketch file holds and how good it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.memory.certificate import Certificate
from olss.memory.description import Description, short_names
from olss.memory.drift import Drift
from olss.memory.policies import name_of
from olss.memory.sketch import Sketch
from olss.memory.state_holder import state_of
from olss.util.text import escape_controls

__all__ = ["Inspection", "inspect", "weight_bins", "why_unknown"]

BAR = 40
BINS = 8
LINES = 20


@dataclass(frozen=True)
class Inspection:
    """What a sketch file holds; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    sketch : Sketch
    description : Description
        Rows per task and class, and weights.
    columns : list of (name, use, reason)
        What each column was used for; empty if none was scored.
    files : list of dict
        A line a file taken in.
    error : Certificate or None
        How far the sketch is from everything seen; None if it keeps no spectrum, or was merged
        with a sketch that did not tell apart what it does.
    drift : Drift or None
        Whether the rows of other files are unlike it, if that was asked.
    """

    path: Path
    sketch: Sketch
    description: Description
    columns: list[tuple[str, str, str]]
    files: list[dict[str, Any]]
    error: Certificate | None
    drift: Drift | None = None

    def __str__(self) -> str:
        return escape_controls("\n".join(_lines(self)))


def inspect(path: str | os.PathLike[str], *, against: Any = None) -> Inspection:
    """Return what a file made by `compress`, or by `olss.Sketch.save`, holds and how good it is.

    Parameters
    ----------
    path : path
    against : one or more paths or tables, optional
        What is new, as `compress` takes it: `drift` then says whether these rows are unlike those
        seen, by a uniform sample of at most 20,000 of them.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from olss.files import compress
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/x.npy", np.random.default_rng(0).standard_normal((5_000, 3)))
    >>> summary = compress(f"{folder}/x.npy", into=f"{folder}/out.parquet", size=500, seed=0)
    >>> result = inspect(f"{folder}/out.parquet")
    >>> result.description.rows, result.error.relative < 0.2
    (500, True)
    """
    sketch = Sketch.load(path)
    state = state_of(sketch)
    described = sketch.describe()
    error = None if state.spectrum is None or state.blurred else sketch.error()
    moved = None
    if against is not None:
        from olss.files.given_tables import as_paths
        from olss.files.new_rows import sampled_rows

        with as_paths(against) as given:
            moved = sketch.drift(sampled_rows(sketch, given))
    return Inspection(
        Path(path), sketch, described, described.columns, list(state.files), error, moved
    )


def why_unknown(sketch: Sketch) -> str:
    """Return, in words, why nobody knows how far a sketch is from everything seen."""
    if state_of(sketch).blurred:
        return "it was merged with a sketch that did not tell all values and gaps apart"
    return "no spectrum is kept with this policy, or a window (ask for it with --spectrum)"


def _lines(found: Inspection) -> list[str]:
    """Return an inspection as lines to read in a terminal."""
    d, sketch = found.description, found.sketch
    low, mean, high = d.weight
    table = state_of(sketch).table
    target = f", target {table.target}" if table is not None and table.target else ""
    lines = [
        f"{found.path}: {d.rows:,} rows of {d.seen:,} seen",
        f"policy {name_of(sketch.policy) or 'of its own'}, size {sketch.size}{target}",
        f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
        f"worth {d.effective_rows:,.0f} rows of equal weight",
        d.memory,
        "",
        "how good it is",
    ]
    if found.error is None:
        lines.append(f"  not known: {why_unknown(sketch)}")
    else:
        lines += [f"  {line}" for line in str(found.error).splitlines()[1:]]
    if found.drift is not None:
        lines += ["", "the new files", *(f"  {line}" for line in str(found.drift).splitlines())]
    names = short_names([str(task) for task in d.tasks])
    rows = d.counts.sum(axis=1)
    lines += ["", "rows by task (standing for)"]
    lines += _bars(names, rows.tolist(), [f"{w:,.0f}" for w in d.task_weight])
    if d.classes is not None:
        lines += ["", "rows by class"]
        lines += _bars([str(c) for c in d.classes], d.counts.sum(axis=0).tolist())
    if bins := weight_bins(sketch.weight):
        lines += ["", "rows by weight"]
        lines += _bars([f"{a:.4g} - {b:.4g}" for a, b, _ in bins], [n for _, _, n in bins])
    if found.columns:
        width = max(len(name) for name, _, _ in found.columns)
        lines += ["", "columns"]
        lines += [
            f"  {name:{width}}  {use}{f' ({why})' if why else ''}"
            for name, use, why in found.columns
        ]
    if found.files:
        lines += ["", "history"]
        lines += [
            f"  run {line['run'] + 1}: {line['address']}, {line['rows']:,} rows"
            for line in found.files[-LINES:]
        ]
    if len(found.files) > LINES:
        lines.append(f"  ... and {len(found.files) - LINES} files before these")
    return lines


def _bars(names: list[str], values: list[int], notes: list[str] | None = None) -> list[str]:
    width, top = max(map(len, names)), max(values)
    lines = []
    for i, (name, value) in enumerate(list(zip(names, values, strict=True))[:LINES]):
        bar = "█" * max(1, round(BAR * value / top)) if value else ""
        note = f" ({notes[i]})" if notes else ""
        lines.append(f"  {name:>{width}}  {bar} {value:,}{note}")
    if len(names) > LINES:
        lines.append(f"  ... and {len(names) - LINES} more")
    return lines


def weight_bins(weight: NDArray[np.float64]) -> list[tuple[float, float, int]]:
    """Return how many rows have a weight from, to: bins of equal ratios, none if all are alike."""
    low, high = float(weight.min()), float(weight.max())
    if high <= low * (1 + 1e-9):
        return []
    # Rounding must not put an edge beyond its neighbour where weights are nearly alike.
    edges = np.maximum.accumulate(np.geomspace(low, high, BINS + 1))
    place = np.clip(np.searchsorted(edges, weight, side="right") - 1, 0, BINS - 1)
    counts = np.bincount(place, minlength=BINS).tolist()
    return [(float(a), float(b), n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]
