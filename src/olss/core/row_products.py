"""Products of rows with a small matrix, and the squares of what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from olss.core.row_blocks import Blocks, to_numpy
from olss.core.triangular import multiply_by_triangle
from olss.util.threads import in_turn

__all__ = ["products", "squared_norms", "times", "weighted_squares"]

Floats = NDArray[np.float64]


def squared_norms(
    blocks: Blocks, dtype: np.dtype[Any], W: Floats, V: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return ||x W||^2 of each row x, and sum w (x v)^2 over all rows for each column v of V."""
    scores = np.empty(blocks.rows)
    pieces = blocks.pieces(dtype)
    sums = np.zeros((len(pieces), 0 if V is None else V.shape[1]))
    number = {part.start: k for k, part in enumerate(pieces)}
    multiplied = products(blocks, dtype, W, V)

    def work(mine: Iterator[slice]) -> Iterator[None]:
        for part, product, probes in multiplied(mine):
            scores[part] = np.einsum("ij,ij->i", product, product)
            sums[number[part.start]] = weighted_squares(probes, blocks, part)
            yield

    in_turn(pieces, work)
    return scores, sums.sum(axis=0)


def weighted_squares(probes: NDArray[Any], blocks: Blocks, part: slice) -> Floats:
    """Return sum w p^2 of each column of (rows, k) numbers p, w the weights of these rows."""
    wide = probes.astype(np.float64)
    w = wide if blocks.weights is None else wide * blocks.weights[part, None]
    sums: Floats = np.einsum("ij,ij->j", w, wide)
    return sums


def products(
    blocks: Blocks, dtype: np.dtype[Any], W: Floats, V: Floats | None = None
) -> Callable[[Iterable[slice]], Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]]:
    """Return what yields (rows, X W, X V) of pieces X, W upper triangular and V a few columns.

    The arrays are overwritten by the next piece. Where the data lie in host memory, V rides
    in the triangular product as further columns, which costs next to nothing.
    """
    d = len(W)
    V = np.zeros((d, 0)) if V is None else V
    more = V.shape[1]
    U = np.zeros((d + more, d + more), dtype=dtype)
    U[:d] = np.hstack([W, V])

    def elsewhere(pieces: Iterable[slice]) -> Iterator[Any]:
        for part, block in blocks.read(dtype, pieces):
            product = to_numpy(times(block, U[:d]))
            yield part, product[:, :d], product[:, d:]

    def here(pieces: Iterable[slice]) -> Iterator[Any]:
        for part, block in blocks.read_copies(dtype, pieces, more=more):
            block[:, d:] = 0
            multiply_by_triangle(block, U)
            yield part, block[:, :d], block[:, d:]

    return elsewhere if blocks.sparse or blocks.remote else here


def times(block: Any, right: NDArray[Any]) -> Any:
    """Return block @ right where the block lies."""
    if sp.issparse(block) or isinstance(block, np.ndarray):
        return block @ right
    xp = array_namespace(block)
    return block @ xp.asarray(right, dtype=block.dtype, device=device_of(block))
