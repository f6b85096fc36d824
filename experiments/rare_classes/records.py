"""Records of measurements: lines of CSV files that are only ever added to."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

RESULTS = Path(__file__).resolve().parents[1] / "results" / "rare-classes"
Line = dict[str, Any]
Item = TypeVar("Item")


def read(name: str) -> list[dict[str, str]]:
    """Return the lines of a file, none if it is not there."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def done(name: str, key: Iterable[str]) -> set[tuple[str, ...]]:
    """Return what has been measured already, by the columns of `key`."""
    columns = tuple(key)
    return {tuple(line[column] for column in columns) for line in read(name)}


def add(name: str, lines: list[Line]) -> None:
    """Add lines to a file in one write, so that a run that is stopped leaves whole ones."""
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        for line in lines:
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in line.items()})


def progress(what: str, todo: Sequence[Item]) -> Iterator[Item]:
    """Yield what is to be measured; after each, print how many there are and the time left."""
    start = time.perf_counter()
    for count, item in enumerate(todo, 1):
        yield item
        left = (time.perf_counter() - start) / count * (len(todo) - count)
        print(f"{what}: {count} of {len(todo)}, about {left / 60:.1f} minutes left", flush=True)
