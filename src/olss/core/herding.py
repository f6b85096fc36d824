"""Kernel herding: an order of rows in which every prefix resembles the whole.

Chen, Welling & Smola (2010). Each step takes the row that moves the mean of the rows taken closest
to the mean of all, in the feature space of the kernel k:

    next = argmax_i  mean_j k(x_i, x_j) - 1/(t + 1) sum_{s taken} k(x_i, x_s).

For prefixes of t rows the distance between the two means falls like 1/t, for random rows like
1/sqrt(t).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["CANDIDATES", "REFERENCES", "greedy_herding", "herding_order"]

Floats32: TypeAlias = NDArray[np.float32]

# The greedy search chooses among this many random rows to match the mean of this many, which bounds
# time and memory for strata of any size. More references made no difference on MNIST.
CANDIDATES = 1024
REFERENCES = 2048
BLOCK = 2048


def herding_order(rows: Floats32, count: int) -> NDArray[np.int64]:
    """Order rows by herding with a Gaussian kernel.

    The kernel is exp(-||x - y||^2 / s) with s the mean squared distance between two rows.

    Parameters
    ----------
    rows : (n, d) float32
        The first `CANDIDATES` of them may be taken, all of them make up the mean to match.
    count : int
        Rows to take.

    Returns
    -------
    (min(count, n, CANDIDATES),) int64 array
        Rows in the order in which they were taken.

    Examples
    --------
    Two thirds of the rows are near 0, one third near 9; so is each prefix of three.

    >>> rows = np.array([[0.0], [0.1], [0.2], [0.3], [9.0], [9.1]], dtype=np.float32)
    >>> herding_order(rows, 3)
    array([3, 4, 0])
    """
    rows = rows - rows.mean(axis=0)  # small numbers keep their digits in the squares below
    squares = np.einsum("ij,ij->i", rows, rows)
    scale = max(2 * float(squares.mean()), float(np.finfo(np.float32).tiny))
    candidates = rows[:CANDIDATES]
    between = np.empty((len(candidates), len(candidates)), dtype=np.float32)
    mean = np.zeros(len(candidates), dtype=np.float32)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        block = candidates @ rows[part].T
        block *= 2
        block -= squares[: len(candidates), None]
        block -= squares[part]
        block /= scale
        np.exp(block, out=block)
        mean += block.sum(axis=1) / len(rows)
        between[:, part] = block[:, : max(0, len(candidates) - start)]
    return greedy_herding(mean, between.__getitem__, count)


def greedy_herding(
    mean: NDArray[np.floating], kernel: Callable[[int], NDArray[np.floating]], count: int
) -> NDArray[np.int64]:
    """Order rows by herding with any kernel.

    Parameters
    ----------
    mean : (n,) array
        The mean of each row's kernel with all rows.
    kernel : callable
        Returns the kernel of a row, given by its number, with each of the n rows.
    count : int
        Rows to take, at most n.
    """
    order = np.empty(min(count, len(mean)), dtype=np.int64)
    gain = mean.copy()  # (t + 1) mean - sum over taken rows: the same argmax
    for t in range(len(order)):
        order[t] = pick = int(gain.argmax())
        gain += mean
        gain -= kernel(pick)
        gain[pick] = -np.inf
    return order
