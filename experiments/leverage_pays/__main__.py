"""Run the tables named, or all; see the package."""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from olss import Sketch
from olss.diagnostics.estimates import estimate
from olss.memory.policies import Weighted

from . import orders
from .models import certificate, fitted_losses
from .records import read, rows_of, split, write
from .tables import TABLES, Table

UPDATES = 10
SEEDS = range(20)
UNWEIGHTED = ("paper",)
LEVERAGE, HALF = Weighted(spread=False), Weighted(uniform_share=0.5, spread=False)
POLICIES: dict[str, tuple[Any, str]] = {  # with the scores they go by
    "uniform": ("reservoir", "auto"),
    "weighted": (LEVERAGE, "auto"),
    "half uniform": (HALF, "auto"),
    "balanced": ("balanced", "auto"),
    "paper": ("paper", "auto"),
    "target number": (LEVERAGE, "target-number"),
    "target class": (LEVERAGE, "target"),
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
    train, test = split(TABLES[name]())
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


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Models fitted to a few rows of real tables.")
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument(
        "--parts", nargs="+", choices=("rows", "orders"), default=["rows", "orders"]
    )
    options = parser.parse_args()
    for name in options.tables:
        if "rows" in options.parts:
            run(name)
    if "orders" in options.parts:
        orders.run(options.tables)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
