"""Run the tables named, or all; see the package."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from olss import Sketch
from olss.diagnostics.estimates import estimate
from olss.memory.policies import Weighted

from .models import certificate, fitted_losses
from .tables import TABLES, Table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "leverage-pays"
UPDATES = 10
SEEDS = range(20)
HELD_OUT = 10_000  # rows at most
UNWEIGHTED = ("paper",)
HALF = Weighted(uniform_share=0.5)
POLICIES: dict[str, tuple[Any, str]] = {  # with the scores they go by
    "uniform": ("reservoir", "auto"),
    "weighted": ("weighted", "auto"),
    "half uniform": (HALF, "auto"),
    "balanced": ("balanced", "auto"),
    "paper": ("paper", "auto"),
    "target number": ("weighted", "target-number"),
    "target class": ("weighted", "target"),
    "target number, half uniform": (HALF, "target-number"),
    "target class, half uniform": (HALF, "target"),
}
SIZES = ("300", "1,000", "5,000", "1%")
ONE_SIZE = ("target number, half uniform", "target class, half uniform")  # measured at 1% alone
ESTIMATED = ("uniform", "weighted", "half uniform", "target number")
LINE = ["table", "policy", "rows", "size", "seed"]
FITS = [*LINE, "model", "loss", "measure", "excess", "certificate"]
GROUPS = [*LINE, "group_rows", "what", "truth", "estimate", "low", "high"]


def run(name: str) -> None:
    """Measure one table; what was measured before is kept, so that it can be gone on with."""
    table = TABLES[name]()
    shuffled = np.random.default_rng(0).permutation(len(table.y))
    test_rows = shuffled[: min(HELD_OUT, len(table.y) // 5)]
    train, test = rows_of(table, np.sort(shuffled[len(test_rows) :])), rows_of(table, test_rows)
    gram, X = train.X.T @ train.X, train.X.astype(np.float32)
    start = time.perf_counter()
    fits, groups = read(f"fits-{name}"), read(f"groups-{name}")
    if not fits:
        fits = [
            [name, "all rows", len(train.y), "all", 0, model, *numbers, 0.0, 0.0]
            for model, numbers in fitted_losses(train, np.ones(len(train.y)), test).items()
        ]
    best = {line[5]: float(line[6]) for line in fits if line[1] == "all rows"}
    done = {(line[1], line[3], str(line[4])) for line in fits}
    print(f"{name}: {train.X.shape}, {time.perf_counter() - start:.0f} s for all rows", flush=True)
    for policy, size in product(POLICIES, SIZES):
        count = len(train.y) // 100 if size == "1%" else int(size.replace(",", ""))
        if count > len(train.y) / 4 or (policy in ONE_SIZE and size != "1%"):
            continue
        for seed in SEEDS:
            if (policy, size, str(seed)) in done:
                continue
            sketch = streamed(train, X, count, *POLICIES[policy], seed)
            kept = rows_of(train, sketch.index)
            weight = np.ones(len(sketch)) if policy in UNWEIGHTED else sketch.weight
            line = [name, policy, count, size, seed]
            error = certificate(kept.X, weight, gram)
            for model, numbers in fitted_losses(kept, weight, test).items():
                fits.append([*line, model, *numbers, numbers[0] / best[model] - 1, error])
            if policy in ESTIMATED:
                groups += [[*line, *found] for found in rare_group(train, kept, weight)]
            write(f"fits-{name}", FITS, fits)
            write(f"groups-{name}", GROUPS, groups)
        print(f"  {policy} {size}: {time.perf_counter() - start:.0f} s", flush=True)


def streamed(train: Table, X: Any, size: int, policy: Any, scores: str, seed: int) -> Sketch:
    """Return a sketch of the rows, given in the order of the file."""
    sketch = Sketch(size, policy, scores=scores, seed=seed)
    y = train.y if scores == "target-number" else train.label
    for rows in np.array_split(np.arange(len(y)), UPDATES):
        part = slice(rows[0], rows[-1] + 1)
        sketch.update(X[part], y[part])
    return sketch


def rare_group(train: Table, kept: Table, weight: Any) -> list[list[Any]]:
    """Return the rows kept of the rare group, and its count and mean with intervals."""
    truth = {"count": float(train.rare.sum()), "mean": float(train.y[train.rare].mean())}
    found = estimate(weight, kept.y, where=kept.rare)
    return [
        [found.rows, what, true, float(getattr(found, what)), *map(float, found.interval(what))]
        for what, true in truth.items()
    ]


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


if __name__ == "__main__":
    with threadpool_limits(1):
        for name in sys.argv[1:] or TABLES:
            run(name)
