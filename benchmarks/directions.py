"""Time of Frequent Directions, in units of one float32 product of all rows by (d x d).

Beside it stand the same sketch made with NumPy's SVD instead of the smaller Gram matrix, and one
SVD of all rows. The former is the time of one buffer, times the number of buffers.

python benchmarks/directions.py          # about a minute on two cores
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from olss.core.frequent_directions import FrequentDirections

CASES = [(20_000, 784, 32), (20_000, 784, 128), (20_000, 784, 256), (4_000, 3_072, 128)]


def seconds(function: Callable[[], Any], times: int = 2) -> float:
    """Return the best of some runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)


def svd_of_buffer(rows: np.ndarray[Any, Any]) -> None:
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    np.sqrt(np.maximum(s**2 - s[len(s) // 2] ** 2, 0))[:, None] * Vt


def main() -> None:
    print(f"{'rows':>8}{'columns':>9}{'size':>6}{'update':>9}{'by SVD':>9}{'full SVD':>10}", end="")
    print(f"{'error / ||A||^2':>18}{'bound / error':>15}")
    for n, d, size in CASES:
        rng = np.random.default_rng(0)
        A = rng.standard_normal((n, d), dtype=np.float32) * 0.99 ** np.arange(d, dtype=np.float32)
        W = rng.standard_normal((d, d), dtype=np.float32)
        unit = seconds(lambda A=A, W=W: A @ W)
        update = seconds(lambda A=A, size=size: FrequentDirections(size).update(A))
        buffer = A[: 2 * size].astype(np.float64)
        by_svd = seconds(lambda buffer=buffer: svd_of_buffer(buffer)) * n / size
        full = seconds(lambda A=A: np.linalg.svd(A, full_matrices=False), 1)
        fd = FrequentDirections(size).update(A)
        gap = A.T.astype(np.float64) @ A - fd.matrix.T.astype(np.float64) @ fd.matrix
        error = np.linalg.eigvalsh(gap)[-1]
        relative, tightness = error / np.linalg.norm(A, 2) ** 2, fd.error_bound() / error
        print(f"{n:8,}{d:9,}{size:6}{update / unit:9.2f}{by_svd / unit:9.2f}", end="")
        print(f"{full / unit:10.1f}{relative:18.4f}{tightness:15.2f}")


if __name__ == "__main__":
    main()
