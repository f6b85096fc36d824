"""The README's first figure: the paper's stream, and DER's protocol."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from olss.learn.record import Record

from . import pages
from .der import DER, PUBLISHED, of
from .gather import Row, load
from .pages import RESULTS, standard_error
from .paper import SHOWN, records_of


def make() -> None:
    """Draw what the README shows first: the paper's stream, and DER's protocol."""
    rows, records = load("der-protocol"), records_of(RESULTS / "paper" / "paper-permuted-mnist")
    if rows and records:
        pages.draw("paper", "headline", lambda: _headline(rows, records))


def _headline(rows: list[Row], records: dict[str, dict[int, Record]]) -> Figure:
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2)
    for label in ("sgd", "ewc", "si", "olss", "olss-mix"):
        text, colour = SHOWN[label]
        curves = [100 * r.average_accuracy for r in records[label].values()]
        x = range(1, len(curves[0]) + 1)
        left.plot(x, np.mean(curves, axis=0), color=colour, label=text)
    left.set(xlim=(1, len(x)), xticks=[1, 5, 10, 15, 20], ylim=(50, 100))
    left.set_title("20 tasks of 60,000 permuted digits", fontsize=9)
    left.set_xlabel("tasks learned", fontsize=8)
    left.set_ylabel("average accuracy on all tasks so far, %", fontsize=8)
    sizes = (200, 500, 5120)
    for name, colour in zip(DER, ("#009E73", "#0072B2", "#444444", "#999999"), strict=True):
        ends = [of(rows, "permuted", size, name) for size in sizes]
        if all(end.count for end in ends):
            right.errorbar(
                range(3), [e.mean for e in ends], [standard_error(e) for e in ends],
                color=colour, marker="o", markersize=4, capsize=2, label=name,
            )  # fmt: skip
    right.plot(
        range(3), PUBLISHED["permuted", "der++"], "x", color="#D55E00", label="DER++, published"
    )
    right.set_xticks(range(3), [f"{size:,}" for size in sizes])
    right.set_title("the same, once through, by memory", fontsize=9)
    right.set_xlabel("rows remembered of 1,200,000", fontsize=8)
    right.set_ylabel("average accuracy at the end, %", fontsize=8)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=7, loc="lower left" if axis is left else "lower right")
    return figure
