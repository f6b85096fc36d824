"""Models fitted to a few rows of a stream: which rows, how many, with weights or without."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from olss import Sketch
from olss.memory import Weighted

from .models import correct, fit, measure, predict
from .records import Line, add, done, progress
from .tables import Rows, Table

UPDATES = 10
SIZES = (3_000, 1_000, 10_000)
SEEDS = 10
NOT_SPREAD = Weighted(spread=False)  # as all records were made; spreading came later
KEY = ("policy", "weights", "rows", "seed", "model")


@dataclass(frozen=True)
class Sample:
    """How rows are kept, and whether their weights are used in the loss."""

    policy: str
    weights: tuple[bool, ...] = (False,)
    settings: tuple[tuple[str, Any], ...] = ()

    def start(self, size: int, seed: int) -> Sketch:
        """Return an empty sketch."""
        kind = self.policy.partition(", ")[0]
        policy = NOT_SPREAD if kind == "weighted" else kind
        return Sketch(size, policy, seed=seed, intercept=True, **dict(self.settings))

    def stream(self, rows: Rows, size: int, seed: int) -> Sketch:
        """Return a sketch of rows that came in ten updates, in the order of the file."""
        sketch = self.start(size, seed)
        for part in np.array_split(np.arange(len(rows)), UPDATES):
            batch = rows[slice(part[0], part[-1] + 1)]
            sketch.update(batch.X, batch.y)
        return sketch


SAMPLES = (
    Sample("reservoir"),
    Sample("weighted", weights=(True, False)),
    Sample("balanced"),
    Sample("balanced-random"),
    Sample("weighted, strata", weights=(False, True), settings=(("strata", "y"),)),
    Sample("reservoir, strata", settings=(("strata", "y"),)),
    # Other shares of the strata than a half, the default.
    Sample("weighted, strata 75%", settings=(("strata", "y"), ("strata_share", 0.75))),
    Sample("weighted, strata 25%", settings=(("strata", "y"), ("strata_share", 0.25))),
)
# At sizes other than the first these alone, with weights or without.
EVERY_SIZE = {
    ("reservoir", False), ("weighted", True), ("balanced", False), ("weighted, strata", False),
}  # fmt: skip


def run(name: str, table: Table, models: list[str], sizes: list[int], policies: list[str]) -> None:
    """Measure every kind of sample of a table that has not been measured, seed after seed."""
    file = f"samples-{name}"
    made = done(file, KEY)
    todo = []
    for seed, size in product(range(SEEDS), sizes):
        for sample in SAMPLES:
            wanted = [
                (weights, model)
                for weights in sample.weights
                for model in models
                if (sample.policy, _yes(weights), str(size), str(seed), model) not in made
                and (model == "LightGBM" or "%" not in sample.policy)
                and (size == SIZES[0] or (sample.policy, weights) in EVERY_SIZE)
            ]
            if wanted and sample.policy in policies:
                todo.append((size, seed, sample, wanted))
    for size, seed, sample, wanted in progress(f"{name}, samples", todo):
        sketch = sample.stream(table.train, size, seed)
        kept = table.train[sketch.index]
        lines: list[Line] = []
        for weights, model in wanted:
            head = {
                "table": name, "policy": sample.policy, "weights": _yes(weights),
                "rows": size, "seed": seed, "model": model, "rare": int(kept.y.sum()),
            }  # fmt: skip
            weight = sketch.weight if weights else None
            lines += judge(table, kept, weight, model, seed, head)
        add(file, lines)


def judge(table: Table, kept: Rows, weight: Any, model: str, seed: int, head: Line) -> list[Line]:
    """Fit a model to the rows kept; measure its probabilities as they are, and corrected."""
    p = predict(fit(model, kept, weight, seed), table.test.X)
    share = float(np.average(kept.y, weights=weight))
    corrected = correct(p, share, float(table.train.y.mean()))
    return [
        head | {"corrected": _yes(done)} | measure(table.test.y, answer)
        for done, answer in ((False, p), (True, corrected))
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
