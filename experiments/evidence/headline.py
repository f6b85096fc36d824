"""The README's first figure: the paper's stream, and DER's protocol."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from olss.lab.report.figures import assign_styles, line_kwargs
from olss.lab.report.statistics import interval
from olss.streams.record import Record

from . import pages
from .der import DER, PUBLISHED, SIZES
from .gather import Row, load, matching
from .pages import RESULTS, bars
from .paper import LINES, SHOWN, records_of

RECIPES = assign_styles(
    [
        ("balanced, distillation", "olss", "balanced"),
        ("balanced, distillation, weak EWC", "olss", "weighted"),
        ("DER++", "der++", None),
        ("ER", "er", None),
    ]
)


def make() -> None:
    """Draw what the README shows first: the paper's stream, and DER's protocol."""
    rows, records = load("der-protocol"), records_of(RESULTS / "paper" / "paper-permuted-mnist")
    if rows and records:
        pages.draw("paper", "headline", lambda: _headline(rows, records))


def _headline(rows: list[Row], records: dict[str, dict[int, Record]]) -> Figure:
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2)
    names = SHOWN | {"sgd": "SGD, at the paper's rate"}
    for label in ("sgd", "sgd-0.1", "ewc", "si", "olss", "reservoir", "olss-mix"):
        if label not in records:
            continue
        curves = [100 * r.average_accuracy for r in records[label].values()]
        x = range(1, len(curves[0]) + 1)
        left.plot(x, np.mean(curves, axis=0), label=names[label], **LINES[label])
    left.set(xlim=(1, len(x)), xticks=[1, 5, 10, 15, 20], ylim=(50, 100))
    left.set_title("20 tasks of 60,000 permuted digits", fontsize=9)
    left.set_xlabel("tasks learned", fontsize=8)
    left.set_ylabel("average accuracy on all tasks so far, %", fontsize=8)
    permuted = matching(rows, stream="permuted")
    for name, style in RECIPES.items():
        ends = _by_bytes(permuted, name)
        right.errorbar(
            list(ends), [e.mean for e in ends.values()],
            bars(ends.values()),
            **line_kwargs(style), marker="o", markersize=4, capsize=2, label=name,
        )  # fmt: skip
    same = [row for row in permuted if row["memory"] in SIZES]
    right.plot(
        list(_by_bytes(same, "DER++")), PUBLISHED["permuted", "der++"], "x",
        color=RECIPES["DER++"].colour,
        label="DER++, published",
    )  # fmt: skip
    right.set_xscale("log")
    right.set_xticks([200, 500, 1000, 2000, 5000], ["0.2", "0.5", "1", "2", "5"])
    right.minorticks_off()
    right.set_title("the same, once through, by memory", fontsize=9)
    right.set_xlabel("megabytes remembered of 940", fontsize=8)
    right.set_ylabel("average accuracy at the end, %", fontsize=8)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=7, loc="lower left" if axis is left else "lower right")
    return figure


def _by_bytes(rows: list[Row], name: str) -> dict[float, Any]:
    """Return the averages of a recipe by the kilobytes it stores."""
    found = defaultdict(list)
    for row in matching(rows, **DER[name]):
        found[row["bytes"] / 1000].append(row["average"])
    return {size: interval(averages) for size, averages in sorted(found.items())}
