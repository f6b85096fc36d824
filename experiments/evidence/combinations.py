"""OLSS together with what acts on the loss or on the gradient."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from olss.lab.report.statistics import Interval, difference

from . import pages
from .gather import Row, load, mean_of, select
from .pages import CHOICES, bars, plain, signed, table

OLSS: dict[str, Any] = {"recipe": "olss", "regime": "sketch"}
REPLAY: dict[str, Any] = {"recipe": "olss", "regime": "replay"}
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # what: alone, OLSS without it, OLSS with it
    "SGD": ({"recipe": "sgd"}, OLSS, OLSS),
    "EWC": ({"recipe": "ewc"}, OLSS, {"recipe": "olss+ewc"}),
    "SI": ({"recipe": "si"}, OLSS, {"recipe": "olss+si"}),
    "GEM": ({"recipe": "gem"}, OLSS, {"recipe": "olss+gem"}),
    "DER++": ({"recipe": "der++"}, OLSS, {"recipe": "olss+der++", "regime": "sketch"}),
    "DER++, by replay": ({"recipe": "der++"}, REPLAY, {"recipe": "olss+der++", "regime": "replay"}),
}  # fmt: skip


def make() -> None:
    """One table and one figure: each method alone, OLSS alone, and the two together."""
    rows = load("combinations")
    if rows:
        pages.draw("combinations", "combinations", lambda: _figure(rows))
        pages.fill("combinations", _table(rows))


def _table(rows: list[Row]) -> str:
    lines = []
    for name, (alone, without, both) in PAIRS.items():
        cells = [plain(mean_of(rows, **which)) for which in (alone, without, both)]
        lines.append(
            [name, *cells, *(signed(_gain(rows, both, less)) for less in (alone, without))]
        )
    columns = ["", "alone", "OLSS without it", "OLSS with it", "OLSS adds", "it adds to OLSS"]
    return table(columns, lines)


def _gain(rows: list[Row], more: dict[str, Any], less: dict[str, Any]) -> Interval:
    return difference(select(rows, **more), select(rows, **less))


def _figure(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(7.5, 3.2))
    axis = figure.subplots()
    drawn = {"alone": "reservoir", "OLSS without it": "weighted", "OLSS with it": "paper"}
    for column, (words, style) in enumerate(drawn.items()):
        means = [mean_of(rows, **which[column]) for which in PAIRS.values()]
        axis.errorbar(
            [mean.mean for mean in means],
            [row + 0.18 * (column - 1) for row in range(len(means))],
            xerr=bars(means), fmt="o", color=CHOICES[style].colour, capsize=2, label=words,
        )  # fmt: skip
    axis.set_yticks(range(len(PAIRS)), list(PAIRS))
    axis.invert_yaxis()
    axis.set_xlabel("average accuracy after 20 tasks, %", fontsize=8)
    axis.legend(frameon=False, fontsize=8)
    return figure
