"""Speed and memory of leverage scores, as ratios to one matrix product in the same run.

    python benchmarks/core.py              # about two minutes
    python benchmarks/core.py --growth     # also 10^4 to 10^6 rows
    python benchmarks/core.py --only MNIST # lines whose name has this in it

The unit is one float32 product (120,000 x 784) by (784 x 784). Each time is the best of a few,
taken in turn with the unit, so that a noisy machine disturbs both alike; the spread is that of the
ratios of neighbours. An "update" takes 60,000 new rows into the spectrum of everything seen and
scores them with 60,000 kept ones; its floor are the two products it cannot do without. NumPy and
SciPy bring an OpenBLAS each; their idle threads are told to sleep, or the unit's would disturb what
follows it.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.linalg import blas

import olss
from olss.core.sampling import inclusion_probabilities, pivotal_sample, successive_sample
from olss.memory.moments import SeenMoments
from olss.streams import load_dataset

ROWS, COLUMNS = 120_000, 784


def gaussian(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)


def permuted_mnist() -> np.ndarray[Any, Any]:
    """Two permuted copies of MNIST: what the paper's second task scores."""
    X = load_dataset("mnist").X.reshape(60_000, COLUMNS)
    rng = np.random.default_rng(0)
    return np.vstack([X[:, rng.permutation(COLUMNS)], X[:, rng.permutation(COLUMNS)]])


Timing = tuple[float, float, str]


def best(function: Callable[[], Any], unit: Callable[[], Any], times: int) -> Timing:
    """Return the best seconds of the function and of the unit, run in turn, and the spread."""
    seconds: list[float] = []
    units: list[float] = []
    for _ in range(times):
        for f, out in ((unit, units), (function, seconds)):
            start = time.perf_counter()
            f()
            out.append(time.perf_counter() - start)
    ratios = [s / u for s, u in zip(seconds, units, strict=True)]
    return min(seconds), min(units), f"{min(ratios):.2f} to {max(ratios):.2f}"


def products(new: np.ndarray[Any, Any], pool: np.ndarray[Any, Any]) -> None:
    """Form the products of an update and nothing else: A'A of the new rows, A R of the pool."""
    product = np.zeros((COLUMNS, COLUMNS), dtype=np.float32, order="F")
    lower = np.asfortranarray(np.tri(COLUMNS, dtype=np.float32))
    step = 7_650
    buffer = np.empty((step, COLUMNS), dtype=np.float32)
    for start in range(0, len(new), step):
        block = new[start : start + step]
        blas.ssyrk(1.0, block.T, beta=1.0, c=product, lower=1, overwrite_c=1)
    for start in range(0, len(pool), step):
        block = buffer[: len(pool[start : start + step])]
        block[...] = pool[start : start + step]
        blas.strmm(1.0, lower, block.T, side=0, lower=1, overwrite_b=1)


def update(seen: SeenMoments, pool: np.ndarray[Any, Any], scores: str) -> None:
    """Take the second half of the pool into the spectrum and score all of it."""
    half = len(pool) // 2
    seen.update(pool[half:]).leverage([pool[:half], pool[half:]], scores=scores, seed=0)


def extra_megabytes(function: Callable[[], Any]) -> float:
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def peers(A: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Return what people use instead, one function each; those that are installed."""
    import scipy.linalg

    def squares(U: Any) -> Any:
        return (U**2).sum(1)

    found: dict[str, Callable[[], Any]] = {
        "numpy.linalg.svd": lambda: squares(np.linalg.svd(A, full_matrices=False)[0]),
        "scipy.linalg.svd (gesdd)": lambda: (scipy.linalg.svd(A, full_matrices=False)[0] ** 2).sum(
            1
        ),
        "numpy.linalg.qr": lambda: squares(np.linalg.qr(A)[0]),
        "scipy.linalg.qr": lambda: squares(scipy.linalg.qr(A, mode="economic")[0]),
    }
    try:
        import torch

        T = torch.from_numpy(A)
        found["torch.linalg.svd"] = lambda: (torch.linalg.svd(T, full_matrices=False)[0] ** 2).sum(
            1
        )
        found["torch.linalg.qr"] = lambda: squares(torch.linalg.qr(T)[0])
    except ImportError:
        pass
    return found


def small_peer(A: np.ndarray[Any, Any]) -> None:
    """Measure scikit-matter's CUR, which forms a rows x rows matrix, on as many as it can hold."""
    try:
        from skmatter.sample_selection import CUR
    except ImportError:
        print("scikit-matter is not installed: its CUR left out")
        return
    selector = CUR(n_to_select=100, recompute_every=0, k=1)
    theirs, ours, _ = best(lambda: selector.fit(A), lambda: olss.leverage_scores(A), 1)
    print(f"scikit-matter's CUR on {len(A):,} rows: {theirs:.2f} s; exact scores: {ours:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--growth", action="store_true", help="show that time is linear in rows")
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--no-peers", action="store_true", help="leave out the SVDs and QRs")
    options = parser.parse_args()
    A = gaussian(ROWS)
    W = np.random.default_rng(1).standard_normal((COLUMNS, COLUMNS), dtype=np.float32)
    out = np.empty_like(A)

    def unit() -> None:
        np.matmul(A, W, out=out)

    table = Table(title=f"Leverage scores of {ROWS:,} x {COLUMNS} rows, {os.cpu_count()} cores")
    for name in ("what", "units", "spread", "seconds", "extra MB", "times faster than an SVD"):
        table.add_column(name, justify="left" if name == "what" else "right")
    rows: list[tuple[str, float, str, float, float]] = []

    def measure(name: str, function: Callable[[], Any], times: int = 5) -> float:
        if options.only not in name:
            return np.nan
        seconds, u, spread = best(function, unit, times)
        rows.append((name, seconds / u, spread, seconds, extra_megabytes(function)))
        print(f"{name}: {seconds / u:.3f} units", flush=True)
        return seconds

    unit()
    measure("unit: one float32 GEMM", unit)
    measure("exact, Gaussian", lambda: olss.leverage_scores(A))
    measure("sketched, Gaussian", lambda: olss.leverage_scores(A, method="sketched", seed=0))
    measure("ridge='auto', Gaussian", lambda: olss.leverage_scores(A, ridge="auto", size=2000))
    measure("update, Gaussian: products alone", lambda: products(A[60_000:], A))
    seen = SeenMoments().update(A[:60_000])
    measure("update, Gaussian: exact", lambda: update(seen, A, "exact"))
    measure("update, Gaussian: sketched", lambda: update(seen, A, "sketched"))
    try:
        M = permuted_mnist()
        F = M.astype(np.float32) / 255
        measure("exact, permuted MNIST uint8", lambda: olss.leverage_scores(M))
        digits = SeenMoments().update(M[:60_000])
        measure("update, permuted MNIST uint8: exact", lambda: update(digits, M, "exact"))
        measure("update, permuted MNIST uint8: sketched", lambda: update(digits, M, "sketched"))
        measure("exact, permuted MNIST float32", lambda: olss.leverage_scores(F))
        twice = np.vstack([F[:60_000]] * 2)
        measure("exact, MNIST twice (rank deficient)", lambda: olss.leverage_scores(twice))
        measure(
            "sketched, permuted MNIST uint8",
            lambda: olss.leverage_scores(M, method="sketched", seed=0),
        )
    except Exception as error:  # the data are optional here
        print(f"MNIST left out: {error}")
    scores = olss.leverage_scores(A).astype(np.float64)
    rng = np.random.default_rng(0)
    measure("draw 60,000: successive", lambda: successive_sample(scores, 60_000, rng))
    measure(
        "draw 60,000: inclusion + pivotal",
        lambda: pivotal_sample(inclusion_probabilities(scores, 60_000), rng),
    )
    slowest = None
    if not options.no_peers:
        for name, function in peers(A).items():
            seconds = measure(name, function, times=1)
            slowest = seconds if name == "numpy.linalg.svd" else slowest
        small_peer(A[:8_000])
    for name, units, spread, seconds, extra in rows:
        ratio = f"{slowest / seconds:.1f}" if slowest else ""
        table.add_row(name, f"{units:.3f}", spread, f"{seconds:.3f}", f"{extra:.0f}", ratio)
    Console(width=110).print(table)
    if options.growth:
        growth(unit)


def growth(unit: Callable[[], Any]) -> None:
    table = Table(title="Exact scores: time against rows")
    for name in ("rows", "seconds", "units", "microseconds a row"):
        table.add_column(name, justify="right")
    for n in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        A = gaussian(n)
        seconds, u, _ = best(lambda A=A: olss.leverage_scores(A), unit, 2)
        table.add_row(f"{n:,}", f"{seconds:.3f}", f"{seconds / u:.3f}", f"{seconds / n * 1e6:.2f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
