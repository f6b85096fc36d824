"""An inspection as text, with a small picture of tasks and weights."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from olss.files.inspection import Inspection

__all__ = ["text"]

BAR = 40
BINS = 8
LINES = 20


def text(found: Inspection) -> str:
    """Return an inspection as lines to read in a terminal."""
    settings = found.settings
    d = found.description
    low, mean, high = d.weight
    lines = [
        f"{found.path}: {d.rows:,} rows of {d.seen:,} seen",
        f"policy {settings['policy']}, size {settings['size']}"
        + (f", target {settings['target']}" if settings["target"] else ""),
        f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
        f"worth {d.effective_rows:,.0f} rows of equal weight",
        "relative spectral error "
        + (
            f"{found.spectral_error:.3g}"
            if found.spectral_error is not None
            else "not known: no Gram matrix is recorded where the input is read but once"
        ),
    ]
    names = _short([str(task) for task in d.tasks])
    rows = d.counts.sum(axis=1)
    lines += ["", "rows by task (standing for)"]
    lines += _bars(names, rows.tolist(), [f"{w:,.0f}" for w in d.task_weight])
    if d.classes is not None:
        lines += ["", "rows by class"]
        lines += _bars([str(c) for c in d.classes], d.counts.sum(axis=0).tolist())
    if high > low:
        lines += ["", "rows by weight", *_weights(found)]
    if found.columns:
        width = max(len(name) for name, _, _ in found.columns)
        lines += ["", "columns"]
        lines += [
            f"  {name:{width}}  {use}{f' ({why})' if why else ''}"
            for name, use, why in found.columns
        ]
    if not found.history:
        return "\n".join(lines)
    lines += ["", "history"]
    lines += [
        f"  run {line['run'] + 1}: {line['address']}, {line['bytes']:,} bytes"
        for line in found.history[-LINES:]
    ]
    if len(found.history) > LINES:
        lines.append(f"  ... and {len(found.history) - LINES} files before these")
    return "\n".join(lines)


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


def _weights(found: Inspection) -> list[str]:
    low, high = found.weight.min(), found.weight.max()
    edges = np.geomspace(low, high, BINS + 1)
    # Edges rounded inwards would leave out the smallest and the largest weight.
    edges[0], edges[-1] = low, high
    counts = np.histogram(found.weight, edges)[0]
    names = [f"{a:.4g} - {b:.4g}" for a, b in pairwise(edges)]
    return _bars(names, counts.tolist())


def _short(names: list[str]) -> list[str]:
    """Leave out the folder if all names share one."""
    if len(names) == 1:
        return [os.path.basename(names[0]) or names[0]]
    folders = {name.rpartition("/")[0] for name in names}
    if len(folders) > 1:
        return names
    return [name.rpartition("/")[2] for name in names]
