"""Records of measurements as CSV files, and the split of a table they rest on."""

from __future__ import annotations

import csv
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from .tables import Table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "leverage-pays"
HELD_OUT = 10_000  # rows at most


def split(table: Table) -> tuple[Table, Table]:
    """Return the rows to learn from, in the order of the file, and those held out."""
    shuffled = np.random.default_rng(0).permutation(len(table.y))
    test = shuffled[: min(HELD_OUT, len(table.y) // 5)]
    return rows_of(table, np.sort(shuffled[len(test) :])), rows_of(table, test)


def rows_of(table: Table, rows: Any) -> Table:
    """Return some rows of a table."""
    return Table(*(getattr(table, field.name)[rows] for field in fields(table)))


def read(name: str) -> list[list[Any]]:
    """Return the records of a file, if there is one."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def write(name: str, head: list[str], lines: list[list[Any]]) -> None:
    """Write a file of records."""
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for line in lines:
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in line])
