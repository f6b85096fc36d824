"""Measure how often 95% intervals of estimates hold, and what calibration does to their spread.

    python experiments/coverage.py [REPETITIONS] [totals] [statistics]

10,000 rows with long tails and rare levels, 500 kept; counts, totals and means of all rows, of
groups leverage knows of, and of groups it does not: ``experiments/results/coverage/coverage.csv``.
Then the statistics of `olss.statistics`, with intervals by replicate weights: ``statistics.csv``.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from olss import Sketch
from olss.diagnostics.estimates import estimate
from olss.memory.engine import sampling_design
from olss.sketch import config_of, state_of
from olss.statistics import correlation, difference, evaluate, median, quantile, ratio

RESULTS = Path(__file__).resolve().parent / "results" / "coverage"
N, SIZE = 10_000, 500
WAYS = ("one update", "ten updates", "two merged", "calibrated", "reservoir")


def population() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the rows, values to estimate, and groups."""
    rng = np.random.default_rng(0)
    levels = rng.random((N, 3)) < [0.3, 0.05, 0.01]
    X = np.column_stack([np.ones(N), rng.standard_t(3, (N, 5)), levels]).astype(float)
    values = {
        "near the columns": X[:, 1:].sum(axis=1) + rng.standard_normal(N),
        "far from them": rng.standard_normal(N) + 1,
        "long tail": rng.lognormal(3, 1, N) - 15,
    }
    groups = {
        "all": np.ones(N, dtype=bool),
        "level of 30%": levels[:, 0],
        "level of 1%": levels[:, 2],
        "unknown 20%": rng.random(N) < 0.2,
        "unknown 5%": rng.random(N) < 0.05,
    }
    return X, values, groups


def remembered(X: Any, way: str, seed: int) -> Sketch:
    """Return a sketch of all rows."""
    policy = "reservoir" if way == "reservoir" else "weighted"
    row = np.arange(N)
    if way == "two merged":
        halves = []
        for number, half in enumerate(np.array_split(row, 2)):
            sketch = Sketch(SIZE, policy, seed=np.random.default_rng([seed, number]))
            halves.append(sketch.update(X[half], extra={"place": half}))
        return halves[0].merge(halves[1])
    sketch = Sketch(SIZE, policy, seed=seed)
    for part in np.array_split(row, 1 if way == "one update" else 10):
        sketch.update(X[part], extra={"place": part})
    return sketch


def measure_totals(repetitions: int) -> None:
    """Print and write, for each estimate, how often its interval holds, and its spread."""
    X, values, groups = population()
    lines = []
    for way in WAYS:
        found: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
        for seed in range(repetitions):
            sketch = remembered(X, way, seed)
            rows = sketch.extra["place"]
            design = sampling_design(config_of(sketch), state_of(sketch))
            known = (X[rows], X.sum(axis=0)) if way == "calibrated" else None
            for value, f in values.items():
                for group, part in groups.items():
                    one = estimate(
                        design.weight, f[rows], where=part[rows], pi=design.pi,
                        strata=design.strata, blocks=design.blocks, calibrate=known,
                    )  # fmt: skip
                    truth = {"count": part.sum(), "total": f[part].sum(), "mean": f[part].mean()}
                    for what, true in truth.items():
                        low, high = one.interval(what)  # type: ignore[arg-type]
                        holds = np.nan if one.too_few else low - 1e-6 <= true <= high + 1e-6
                        found[value, group, what].append([getattr(one, what) - true, holds])
        for (value, group, what), numbers in found.items():
            off, holds = np.array(numbers).T
            given = ~np.isnan(holds)
            share = holds[given].mean() if given.any() else np.nan
            lines.append([way, value, group, what, given.mean(), share, np.nanstd(off)])
            print(*lines[-1][:4], f"given {given.mean():.2f} holds {share:.3f}", flush=True)
    write("coverage.csv", ["way", "value", "group", "what", "given", "holds", "spread"], lines)


def measure_statistics(repetitions: int) -> None:
    """Print and write how often intervals by replicate weights hold, and how long they are."""
    X, values, groups = population()
    names = list(values)
    rows = np.column_stack([X, *values.values(), groups["unknown 20%"]])
    place = {name: X.shape[1] + number for number, name in enumerate(names)}

    def inside(rows: Any) -> Any:
        return rows[:, -1] == 1

    def outside(rows: Any) -> Any:
        return rows[:, -1] == 0

    asked: dict[tuple[str, str], Any] = {}
    for name in names:
        column, other = place[name], place[names[0] if name != names[0] else names[1]]
        asked["median", name] = median(column)
        asked["quantile 0.1", name] = quantile(column, 0.1)
        asked["quantile 0.9", name] = quantile(column, 0.9)
        asked["quantile 0.99", name] = quantile(column, 0.99)
        asked["ratio", name] = ratio(column, place["far from them"])
        asked["difference of means", name] = difference(column, inside, outside)
        asked["difference of medians", name] = difference(median(column), inside, outside)
        asked["correlation", name] = correlation(column, other)
    del asked["ratio", "far from them"]
    asked["correlation", "with a column of long tails"] = correlation(place["near the columns"], 1)
    truth = {key: one(rows, np.ones(N)) for key, one in asked.items()}
    lines = []
    for way in ("one update", "ten updates", "two merged", "reservoir"):
        found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        for seed in range(repetitions):
            sketch = remembered(X, way, seed)
            here, weight = rows[sketch.extra["place"]], sketch.weight
            replicates = sketch.replicate_weights(200, seed=seed)
            for key, statistic in asked.items():
                one = evaluate(statistic, here, None, weight, replicates, weight > 1)
                low, high = one.interval()
                found[key].append([low <= truth[key] <= high, one.value, one.se])
        for key, numbers in found.items():
            holds, value, se = np.array(numbers).T
            lines.append([way, *key, holds.mean(), value.std(), np.sqrt(np.mean(se**2))])
            print(*lines[-1][:3], f"holds {holds.mean():.3f}", flush=True)
    write("statistics.csv", ["way", "statistic", "value", "holds", "spread", "se"], lines)


def write(name: str, head: list[str], lines: list[list[Any]]) -> None:
    """Write lines of texts and numbers."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([x if isinstance(x, str) else f"{x:.5g}" for x in line] for line in lines)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    if "totals" in sys.argv or len(sys.argv) < 3:
        measure_totals(count)
    if "statistics" in sys.argv or len(sys.argv) < 3:
        measure_statistics(min(count, 500))
