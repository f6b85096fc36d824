"""How far a sketch of rotated MNIST is from everything seen, by what its rows are scored against.

    python benchmarks/spectrum.py            # ten minutes; --seeds 2 --sizes 1600 for a look

Ten tasks of 6,000 images rotated by 0 to 180 degrees, one update each. The numbers are the
largest and the smallest eigenvalue of the sketch's Gram matrix relative to that of everything seen,
by the certificate; both are 1 for a perfect sketch, 0 is a direction missing. Medians and ranges of
five seeds. Rows are drawn as policy "weighted" draws them, by leverage in everything
seen or in the pool's own weighted Gram matrix, an estimate made of what was kept; and
uniformly.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from olss.core.leverage import pool_scores
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.diagnostics.certificate import Certificate, certify
from olss.memory.moments import SeenMoments
from olss.memory.policies import Weighted
from olss.streams import rotated

WAYS = ("spectrum", "pool", "uniform")


def sketch(tasks: list[NDArray[np.uint8]], size: int, way: str, seed: int) -> Certificate:
    """Return the certificate of a sketch that saw all tasks, one after the other."""
    rng = np.random.default_rng(seed)
    seen = SeenMoments()
    kept, weight = tasks[0][:0], np.ones(0)
    for X in tasks:
        seen = seen.update(X)
        pool, w = np.concatenate([kept, X]), np.concatenate([weight, np.ones(len(X))])
        q = w / w.sum()
        if way != "uniform":
            (tau,) = pool_scores([pool], weights=[w]) if way == "pool" else seen.leverage([pool])
            share = Weighted().uniform_share
            q = (1 - share) * w * tau / (w @ tau) + share * q
        pi = inclusion_probabilities(q, size)
        rows = pivotal_sample(pi, rng)
        kept, weight = pool[rows], w[rows] / pi[rows]
    return certify(seen, [kept], [weight])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_600, 3_000, 10_000])
    options = parser.parse_args()
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    law: dict[int, float] = {}
    for seed in range(options.seeds):
        stream = rotated("mnist", tasks=10, train_rows=6_000, seed=seed)
        tasks = [np.asarray(task.X).reshape(6_000, 784) for task in stream]
        for size in options.sizes:
            for way in WAYS:
                certificate = sketch(tasks, size, way, seed)
                ends = (certificate.most, certificate.least)
                found.setdefault((size, way), []).append(ends)
                law[size] = certificate.expected_error
                print(
                    f"seed {seed}, {size:,} rows, {way}: {ends[0]:.3f}, {ends[1]:.4f}", flush=True
                )
    table = Table(
        title="Eigenvalues against everything seen, rotated MNIST, 10 tasks of 6,000 rows"
    )
    for name in ("rows kept", "scored against", "largest", "smallest", "1 + law"):
        table.add_column(name, justify="right")
    for (size, way), pairs in found.items():
        middle, low, high = (f(pairs, axis=0) for f in (np.median, np.min, np.max))
        ranges = zip(middle, low, high, strict=True)
        cells = [f"{m:.3g} ({a:.3g} to {b:.3g})" for m, a, b in ranges]
        table.add_row(f"{size:,}", way, *cells, f"{1 + law[size]:.2f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
