"""What spreading a sample over feature space does, beside one whose rows are shuffled."""

from __future__ import annotations

import csv

from . import pages
from .pages import table


def make() -> None:
    """Errors, intervals and time by table; how often intervals hold by group."""
    folder = pages.RESULTS / "spread"
    if not (folder / "spread.csv").exists():
        return
    with (folder / "spread.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for shuffled, spread in zip(rows[::2], rows[1::2], strict=True):
        ratios = [
            f"{float(spread[what]) / float(shuffled[what]):.2f}"
            for what in ("totals", "certificate", "counts", "length", "seconds")
        ]
        held = [
            f"{float(shuffled[what]):.1%} → {float(spread[what]):.1%}"
            for what in ("holds totals", "holds means", "holds counts")
        ]
        shape = f"{int(spread['rows']):,} x {spread['columns']}"
        lines.append([spread["table"], shape, *ratios[:4], *held, ratios[4]])
    columns = [
        "table", "rows x columns", "totals", "certificate", "counts", "interval length",
        '"95%" of totals', "of means", "of counts", "time of updates",
    ]  # fmt: skip
    pages.fill("spread", table(columns, lines))
    with (folder / "groups.csv").open(newline="", encoding="utf-8") as file:
        groups = list(csv.DictReader(file))
    half = len(groups) // 2
    lines = [
        [one["group"], *(f"{float(one[w]):.1%} → {float(two[w]):.1%}" for w in list(one)[2:])]
        for one, two in zip(groups[:half], groups[half:], strict=True)
    ]
    pages.fill("spread-groups", table(["group", "count", "total", "mean"], lines))
