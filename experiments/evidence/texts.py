"""How well a few kept texts cover and predict others."""

from __future__ import annotations

import csv

from olss.lab.report.statistics import interval

from . import pages
from .pages import plain, table

NAMES = {
    "reservoir": "random (`reservoir`)",
    "balanced-random": "random, the same number of each section (`balanced-random`)",
    "weighted": "leverage (`weighted`)",
    "weighted+strata": 'leverage with strata (`strata="y"`)',
    "weighted, near-duplicates merged": "leverage, near-duplicates merged",
    "weighted+strata, near-duplicates merged": "leverage with strata, near-duplicates merged",
}
MEASURES = {
    "distance": 1,
    "distance 99%": 1,
    "near-duplicates": 100,
    "accuracy": 100,
    "recall": 100,
}


def make() -> None:
    """Coverage, near-duplicates and accuracy, by what is kept."""
    path = pages.RESULTS / "texts" / "texts.csv"
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for size in sorted({row["size"] for row in rows}):
        lines = []
        for key, name in NAMES.items():
            mine = [row for row in rows if row["kept"] == key and row["size"] == size]
            cells = []
            for measure, scale in MEASURES.items():
                found = interval([scale * float(row[measure]) for row in mine])
                cells.append(plain(found) if scale > 1 else f"{found.mean:.3f}")
            lines.append([name, *cells])
        columns = [
            f"{int(size):,} texts kept", "distance to the nearest", "99% are nearer than",
            "near-duplicates, %", "accuracy, %", "mean recall, %",
        ]  # fmt: skip
        pages.fill(f"texts-{size}", table(columns, lines))
