"""Measure what spreading the sample over feature space does, on five real tables.

    python experiments/spread.py [SEEDS] [TABLE... | groups]

Each table comes in ten updates, 1,000 rows are kept by ``weighted``, spread and not. Errors of the
totals of all columns (in units of rows times spread), the median certificate, errors of counts of
groups that are not scored, how often 95% intervals hold, how long they are, and the time of the
updates. Then, on the made-up rows of ``experiments/coverage.py`` with ten times as many seeds, how
often intervals hold in groups of 30% to 1% (``groups``). Writes
``experiments/results/spread/spread.csv``, whose lines of other tables stay, and ``groups.csv``.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from experiments import coverage
from experiments.leverage_pays.tables import TABLES, Table

from olss import Sketch
from olss.diagnostics.estimates import estimate
from olss.memory import Weighted
from olss.memory.engine import sampling_design
from olss.sketch import config_of, state_of

RESULTS = Path(__file__).resolve().parent / "results" / "spread"
SIZE, UPDATES, MOST_ROWS = 1_000, 10, 60_000
FIGURES = ("totals", "certificate", "counts", "holds totals", "holds means", "holds counts")


def population(name: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the design matrix, values to estimate, and groups that are not scored."""
    table: Table = TABLES[name]()
    rows = np.arange(len(table.X))
    if len(rows) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
    X = table.X[rows]
    varies = X.std(axis=0) > 0
    varies[0] = True
    random = np.random.default_rng(1).random(len(rows)) < 0.05
    groups = {f"class {c}": table.label[rows] == c for c in np.unique(table.label)}
    groups |= {"rare": table.rare[rows], "random 5%": random}
    values = {"target": table.y[rows]} | {f"column {j}": X[:, j] for j in range(1, 6)}
    return X[:, varies], values, groups


def measure(X: Any, values: Any, groups: Any, spread: bool, seed: int) -> list[float]:
    """Return the figures of one sketch, the mean length of its intervals, and the time."""
    sketch = Sketch(SIZE, Weighted(spread=spread), seed=seed)
    began = time.process_time()
    for part in np.array_split(np.arange(len(X)), UPDATES):
        sketch.update(X[part], extra={"place": part})
    took = time.process_time() - began
    rows, weight = sketch.extra["place"], sketch.weight
    design = sampling_design(config_of(sketch), state_of(sketch))
    off = (weight @ X[rows] - X.sum(axis=0)) / len(X)
    holds: dict[str, list[float]] = {"total": [], "mean": [], "count": []}
    counts, lengths = [], []

    def ask(true: dict[str, float], f: Any = None, where: Any = None) -> None:
        found = estimate(
            weight, f, where=where, pi=design.pi, strata=design.strata, blocks=design.blocks
        )
        for what, value in true.items():
            low, high = found.interval(what)  # type: ignore[arg-type]
            if not np.isnan(low):
                holds[what].append(low - 1e-6 <= value <= high + 1e-6)
                lengths.append((high - low) / 4 / np.sqrt(np.mean(np.square(scale))))

    for f in values.values():
        scale = len(X) * f.std()
        ask({"total": f.sum()}, f[rows])
        scale = f.std()
        ask({"mean": f.mean()}, f[rows])
    for part in groups.values():
        counts.append(weight[part[rows]].sum() / part.sum() - 1)
        scale = part.sum()
        ask({"count": part.sum()}, None, part[rows])
    figures = [
        np.sqrt(np.mean(off**2)),
        sketch.error().relative,
        np.sqrt(np.mean(np.square(counts))),
    ]
    return [*figures, *(np.mean(held) for held in holds.values()), np.mean(lengths), took]


def main(seeds: int, names: list[str]) -> None:
    """Print and write the figures of each table, spread and not."""
    path = RESULTS / "spread.csv"
    known = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    lines = {name: [line.split(",") for line in known if line.startswith(name)] for name in TABLES}
    header = ["table", "rows", "columns", "order", *FIGURES, "length", "seconds"]
    for name in names:
        if name == "groups":
            head = ["order", "group", "count", "total", "mean"]
            write("groups.csv", head, measure_groups(10 * seeds), 2)
            continue
        X, values, groups = population(name)
        lines[name] = []
        for spread in (False, True):
            found = np.array([measure(X, values, groups, spread, seed) for seed in range(seeds)])
            totals, _, counts = np.sqrt(np.mean(found[:, :3] ** 2, axis=0))
            numbers = [totals, np.median(found[:, 1]), counts, *found[:, 3:].mean(axis=0)]
            order = "spread" if spread else "shuffled"
            lines[name].append([name, *X.shape, order, *(f"{x:.5g}" for x in numbers)])
            print(*lines[name][-1], flush=True)
        write("spread.csv", header, [line for both in lines.values() for line in both], len(header))


def measure_groups(repetitions: int) -> list[list[Any]]:
    """Return how often intervals of counts, totals and means hold in groups."""
    X, values, groups = coverage.population()
    f, lines = values["near the columns"], []
    for spread in (False, True):
        holds = np.full((len(groups), 3, repetitions), np.nan)
        for seed in range(repetitions):
            sketch = Sketch(coverage.SIZE, Weighted(spread=spread), seed=seed)
            for rows in np.array_split(np.arange(len(X)), UPDATES):
                sketch.update(X[rows], extra={"place": rows})
            place = sketch.extra["place"]
            for g, part in enumerate(groups.values()):
                found = sketch.estimate(f[place], where=part[place])
                truth = {"count": part.sum(), "total": f[part].sum(), "mean": f[part].mean()}
                for w, (what, true) in enumerate(truth.items()):
                    low, high = found.interval(what)  # type: ignore[arg-type]
                    if not np.isnan(low):
                        holds[g, w, seed] = low - 1e-6 <= true <= high + 1e-6
        for name, shares in zip(groups, np.nanmean(holds, axis=2), strict=True):
            lines.append(["spread" if spread else "shuffled", name, *shares])
            print(*lines[-1], flush=True)
    return lines


def write(name: str, header: list[str], lines: list[list[Any]], words: int) -> None:
    """Write lines, of which the first entries are words and the others numbers."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([*line[:words], *(f"{x:.5g}" for x in line[words:])] for line in lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:] or [*TABLES, "groups"])
