"""The space parameter: how much memory is enough, and what it costs."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from olss.lab.report.figures import line_kwargs

from . import pages
from .gather import Row, load, matching, mean_of
from .pages import CHOICES, bars, legend, plain, table

TASK_ROWS = 5_000
DRAWN: dict[str, tuple[dict[str, Any], str]] = {
    "paper, on the sketch alone": ({"regime": "sketch", "policy": "paper"}, "recent"),
    "paper": ({"regime": "replay", "policy": "paper"}, "paper"),
    "weighted": ({"regime": "replay", "policy": "weighted"}, "weighted"),
    "reservoir": ({"regime": "replay", "policy": "reservoir"}, "reservoir"),
    "balanced": ({"regime": "replay", "policy": "balanced"}, "balanced"),
}


def make() -> None:
    """One table and one figure: accuracy and time by rows remembered."""
    rows = load("space")
    if rows:
        pages.draw("space", "space", lambda: _figure(rows))
        pages.fill("space", _table(rows))


def _sizes(rows: list[Row]) -> list[int]:
    return sorted({row["memory"] for row in rows})


def _table(rows: list[Row]) -> str:
    sizes = _sizes(rows)
    lines = [
        [name, *(plain(mean_of(rows, memory=size, **which)) for size in sizes)]
        for name, (which, _) in DRAWN.items()
    ]
    lines += [
        [f"*seconds, {name}*", *(f"{_seconds(rows, size, which):.0f}" for size in sizes)]
        for name, (which, _) in DRAWN.items()
        if name.startswith("paper")
    ]
    return table(["", *(f"{size:,} ({size / TASK_ROWS:.1%})" for size in sizes)], lines)


def _seconds(rows: list[Row], size: int, which: dict[str, Any]) -> float:
    """Return the seconds of selecting and training, of the seed that was disturbed least."""
    return min((row["seconds"] for row in matching(rows, memory=size, **which)), default=math.nan)


def _figure(rows: list[Row]) -> Figure:
    sizes = _sizes(rows)
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2, sharex=True)
    for name, (which, style) in DRAWN.items():
        ends = [mean_of(rows, memory=size, **which) for size in sizes]
        line = {**line_kwargs(CHOICES[style]), "marker": "o", "markersize": 3.5}
        left.errorbar(
            sizes, [end.mean for end in ends], bars(ends), capsize=2, label=name, **line
        )  # fmt: skip
        right.plot(sizes, [_seconds(rows, size, which) for size in sizes], **line)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel(f"rows remembered; a task has {TASK_ROWS:,}", fontsize=8)
    left.set_ylabel("average accuracy after 20 tasks, %", fontsize=8)
    right.set_ylabel("seconds of selecting and training", fontsize=8)
    right.set_ylim(0)
    legend(figure, ncols=5)
    return figure
