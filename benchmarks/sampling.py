"""Time to draw 60,000 of 120,000 rows, against exact leverage scoring and NumPy in the same run.

python benchmarks/sampling.py            # about half a minute on two cores
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from olss import leverage_scores
from olss.core.sampling import inclusion_probabilities, pivotal_sample, successive_sample

ROWS, COLUMNS, SIZE = 120_000, 784, 60_000


def seconds(function: Callable[[], Any], times: int) -> float:
    """Return the median over some runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def main() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    A *= rng.lognormal(size=(ROWS, 1)).astype(np.float32)
    weights = leverage_scores(A).astype(np.float64)
    pi = inclusion_probabilities(weights, SIZE)
    p = weights / weights.sum()
    scoring = seconds(lambda: leverage_scores(A), 3)
    cases = {
        "successive": lambda: successive_sample(weights, SIZE, rng),
        "inclusion": lambda: inclusion_probabilities(weights, SIZE),
        "pivotal": lambda: pivotal_sample(pi, rng),
        "inclusion, then pivotal": lambda: pivotal_sample(
            inclusion_probabilities(weights, SIZE), rng
        ),
        "numpy choice(replace=False, p)": lambda: rng.choice(ROWS, SIZE, replace=False, p=p),
    }
    print(f"exact scoring of {ROWS:,} x {COLUMNS}: {scoring * 1e3:.0f} ms; aim for a draw: 3%\n")
    print(f"{'':32}{'ms':>8}{'% of scoring':>14}")
    for name, function in cases.items():
        taken = seconds(function, 15)
        print(f"{name:32}{taken * 1e3:8.1f}{100 * taken / scoring:14.2f}")


if __name__ == "__main__":
    main()
