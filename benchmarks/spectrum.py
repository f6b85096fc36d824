"""How far a sketch of rotated MNIST is from everything seen, by what its rows are scored against.

    python benchmarks/spectrum.py            # about three minutes

Ten tasks of 6,000 images rotated by 0 to 180 degrees, one update each. The numbers are the
certificate's relative error, the smallest e with (1 - e) G <= Ĝ <= (1 + e) G: median, lowest and
highest of five seeds. Rows are drawn as policy "weighted" draws them, by leverage in everything
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
from olss.core.sampling import inclusion, pivotal
from olss.memory.certificate import Certificate, certify
from olss.memory.policies import UNIFORM_SHARE
from olss.memory.spectrum import Spectrum
from olss.streams import rotated

WAYS = ("spectrum", "pool", "uniform")


def sketch(tasks: list[NDArray[np.uint8]], size: int, way: str, seed: int) -> Certificate:
    """Return the certificate of a sketch that saw all tasks, one after the other."""
    rng = np.random.default_rng(seed)
    seen = Spectrum()
    kept, weight = tasks[0][:0], np.ones(0)
    for X in tasks:
        seen = seen.plus(X)
        pool, w = np.concatenate([kept, X]), np.concatenate([weight, np.ones(len(X))])
        q = w / w.sum()
        if way != "uniform":
            (tau,) = pool_scores([pool], weights=[w]) if way == "pool" else seen.leverage([pool])
            q = (1 - UNIFORM_SHARE) * w * tau / (w @ tau) + UNIFORM_SHARE * q
        pi = inclusion(q, size)
        rows = pivotal(pi, rng)
        kept, weight = pool[rows], w[rows] / pi[rows]
    return certify(seen, [kept], [weight])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    table = Table(title="Relative error, rotated MNIST, 10 tasks of 6,000 rows")
    for name in ("rows kept", *WAYS, "law 2 sqrt(d/l) + d/l"):
        table.add_column(name, justify="right")
    for size in (1_600, 3_000, 10_000):
        cells, law = [], 0.0
        for way in WAYS:
            found = []
            for seed in range(options.seeds):
                stream = rotated("mnist", tasks=10, train_rows=6_000, seed=seed)
                tasks = [np.asarray(task.X).reshape(6_000, 784) for task in stream]
                certificate = sketch(tasks, size, way, seed)
                found.append(certificate.relative)
                law = certificate.law
            cells.append(f"{np.median(found):.3g} ({min(found):.3g} to {max(found):.3g})")
        table.add_row(f"{size:,}", *cells, f"{law:.2f}")
        print(size, cells, flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
