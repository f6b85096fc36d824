"""Leverage when a Gram matrix loses too many digits: sketch-preconditioned Cholesky-QR.

R from a QR of a sparse sketch of A makes A R^-1 nearly orthogonal whatever the condition of A,
so its Gram matrix can be factored without loss (Yamamoto et al. 2015; Balabanov 2022).
Everything is in float64. This is the last rung of the ladder in `olss.core.leverage`.

The sketch adds each row, with a random sign, to one row of each of four parts of its own (Nelson &
Nguyen 2013). With a single part (CountSketch) two rows that meet, and have a direction each to
themselves, lose one, and among a hundred such rows two often meet; in all four parts they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, matmul, to_numpy
from olss.core.gram import Factor
from olss.util import blas, lapack, linalg
from olss.util.threads import ordered_map

Floats = NDArray[np.float64]
_WIDE = np.dtype(np.float64)
_FLOOR = 16 * float(np.finfo(np.float64).eps)
QUARTERS = 4  # of a sketch, to each of which a row is added
IN_CACHE = 1_500_000  # bytes of rows that stay at hand while they are added to all quarters


def sparse_sketch(
    parts: Sequence[Blocks],
    rows: int,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    *,
    unit_rows: bool = False,
) -> NDArray[Any]:
    """Return S A of shape (rows, d): each row of A added, with a random sign, to four of S A.

    They are one in each quarter. A run of consecutive rows goes to consecutive ones from a random
    one on: two rows meet in a quarter with probability at most 4/rows, which is all that is needed,
    and memory is walked in order. With `unit_rows` each row is first scaled to norm 1.
    """
    sketch = np.zeros((rows, parts[0].columns), dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for blocks in parts:
            _add_signed(sketch, blocks, rng, unit_rows)
    return sketch


def _add_signed(
    sketch: NDArray[Any], blocks: Blocks, rng: np.random.Generator, unit_rows: bool
) -> None:
    """Add rows to a sketch, weighted, or each scaled to norm 1."""
    quarters, dtype = np.array_split(sketch, min(QUARTERS, len(sketch))), sketch.dtype
    run = min(len(quarters[-1]), 256)
    pieces = blocks.pieces(dtype, IN_CACHE)
    signs = rng.choice(np.array([-1, 1], dtype=np.int8), size=blocks.rows)
    runs = {p.start: -(-_rows(p) // run) for p in pieces}
    starts = {
        piece: [rng.integers(len(quarter), size=count) for quarter in quarters]
        for piece, count in runs.items()
    }

    def work(mine: Iterator[slice]) -> Iterator[tuple[slice, NDArray[Any]]]:
        # Two, since the last result may not be taken yet.
        room = np.empty((2, max(map(_rows, pieces)), blocks.columns), dtype=dtype)
        for turn, (part, block) in enumerate(blocks.read(dtype, mine)):
            rows = block.toarray() if blocks.sparse else to_numpy(block)
            factor = signs[part] / np.sqrt(len(quarters))
            if unit_rows:
                norms = np.linalg.norm(rows, axis=1)
                factor /= np.where(norms > 0, norms, 1.0)
            elif blocks.weights is not None:
                factor *= np.sqrt(blocks.weights[part])
            signed = room[turn % 2, : len(rows)]
            yield part, np.multiply(rows, factor.astype(dtype)[:, None], out=signed)

    def add(done: tuple[slice, NDArray[Any]]) -> None:
        part, rows = done
        for k, places in enumerate(zip(*starts[part.start], strict=True)):
            for quarter, start in zip(quarters, places, strict=True):
                _add_from(quarter, rows[k * run : (k + 1) * run], int(start))

    ordered_map(pieces, work, add)


def _add_from(sketch: NDArray[Any], rows: NDArray[Any], start: int) -> None:
    """Add rows to consecutive rows of the sketch from `start` on, cyclically."""
    fit = min(len(rows), len(sketch) - start)
    sketch[start : start + fit] += rows[:fit]
    sketch[: len(rows) - fit] += rows[fit:]


def _rows(part: slice) -> int:
    return int(part.stop - part.start)


def preconditioned_scores(parts: Sequence[Blocks], ridge: float) -> list[Floats]:
    """Return x' (G + ridge I)^+ x of every row, for ill-conditioned matrices.

    Which columns are independent is decided on rows scaled to norm 1: the rank does not depend on
    the scale of rows, and one dominant row then cannot hide the rest.
    """
    d = parts[0].columns
    rng = np.random.default_rng(0)
    keep = np.arange(d) if ridge else _independent_columns(parts, rng)
    S = sparse_sketch(parts, 4 * d, rng, _WIDE)[:, keep]
    if ridge:
        S = np.vstack([S, np.sqrt(ridge) * np.eye(d)])
    norms = np.linalg.norm(S, axis=0)
    scale = 1 / np.where(norms > 0, norms, 1.0)
    factors: list[Floats] = [_upper(S * scale)]
    for _ in range(2):
        factors.append(_correction(parts, keep, scale, factors, ridge))
    scores = []
    for blocks in parts:
        tau = np.empty(blocks.rows)
        for part, block in blocks.read(_WIDE):
            Y = _solve(_columns(block, keep) * scale, factors)
            tau[part] = np.einsum("ij,ij->i", Y, Y)
        top = 1.0 if blocks.weights is None else 1 / np.maximum(blocks.weights, 1e-300)
        scores.append(np.minimum(tau, top))
    return scores


def stacked_qr(parts: Sequence[Blocks]) -> Floats:
    """Return B of as few rows as the rank, and B'B = G of all rows, without forming squares.

    It is R of a block-by-block QR factorization (a sequential TSQR) with dependent columns last, so
    that what rounding of the input leaves in them is removed. Parts may be rows that stand for
    others (`Blocks.from_gram_rows`).
    """
    d = parts[0].columns
    scale = equilibrate(parts)
    keep = _independent_columns(parts, np.random.default_rng(0))
    order = np.concatenate([keep, np.setdiff1d(np.arange(d), keep)])
    R = np.zeros((0, d))
    for blocks in parts:
        for part, block in blocks.read(_WIDE):
            X = _columns(block, np.arange(d))
            if blocks.weights is not None:
                X = X * np.sqrt(blocks.weights[part])[:, None]
            R = _upper(np.vstack([R, X[:, order]]))
    B = np.empty((len(keep), d))
    B[:, order] = R[: len(keep)] / scale[order]
    return B


def equilibrate(parts: Sequence[Blocks], *, alike: bool = False) -> Floats:
    """Scale values to about 1, by a power of two for each column or one for all; return it."""
    top = np.max([p.max_abs() for p in parts], axis=0)
    top = np.where(top > 0, top, 1.0)
    if alike:
        top = np.full_like(top, top.max())
    scale: Floats = np.exp2(-np.round(np.log2(top)))
    for p in parts:
        p.scale = scale
    return scale


def independent_rows(B: Floats, noise: float) -> Floats:
    """Return as few rows as the rank that have the Gram matrix of B.

    Directions of less than the `noise` in B, relative to the norms of its columns, count as none.
    """
    norms = np.linalg.norm(B, axis=0)
    live = np.flatnonzero(norms > 0)
    R, pivots = linalg.qr(B[:, live] / norms[live], mode="r", pivoting=True)
    rank = int((abs(R.diagonal()) > max(_FLOOR * np.sqrt(B.shape[1]), noise)).sum())
    rows = np.zeros((rank, B.shape[1]))
    rows[:, live[pivots]] = R[:rank] * norms[live[pivots]]
    return rows


def factor_rows(B: Floats, ridge: float) -> Factor:
    """Factor B'B + ridge I by a QR of B, for ill-conditioned matrices (see `olss.core.gram`)."""
    d = B.shape[1]
    if ridge:
        B = np.vstack([B, np.sqrt(ridge) * np.eye(d)])
    top = abs(B).max(axis=0, initial=0.0)
    live = np.flatnonzero(top > 0)
    scaled = B[:, live] / top[live]
    norms = np.linalg.norm(scaled, axis=0)
    scaled /= norms
    R, pivots = linalg.qr(scaled, mode="r", pivoting=True)
    residuals = abs(R.diagonal())
    independent = np.sort(pivots[: int((residuals > _FLOOR * np.sqrt(d)).sum())])
    keep = live[independent]
    inverse = np.zeros((0, 0))
    if len(keep):
        inverse = linalg.solve_triangular(_upper(scaled[:, independent]), np.eye(len(keep)))
    W = np.zeros((d, d))
    W[np.ix_(keep, keep)] = inverse / (top[keep] * norms[independent])[:, None]
    kept = np.zeros(d, dtype=bool)
    kept[keep] = True
    dimension = len(keep) - (ridge * float(np.sum(W**2)) if ridge else 0.0)
    return Factor(W, kept, None, ridge, dimension, float(np.linalg.norm(inverse)))


def _independent_columns(parts: Sequence[Blocks], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return columns that span all, up to the rounding of the input, in their order.

    Rows of the input are scaled to norm 1, so that a dominant one hides no other. So are rows that
    stand for others, but only as far as their own rounding stays below that of the input: in a
    small one it would look like a direction.
    """
    d = parts[0].columns
    given = [p for p in parts if p.noise is None]
    S = sparse_sketch(given, 4 * d, rng, _WIDE, unit_rows=True) if given else np.zeros((0, d))
    weight = np.linalg.norm(S) or 1.0
    for p in parts:
        if p.noise is not None:
            ((_, B),) = p.read(_WIDE, [slice(0, p.rows)])
            sizes = np.linalg.norm(B, axis=1)
            least = min(1.0, p.noise / float(np.finfo(p.dtype).eps)) * sizes.max()
            B = B / np.maximum(sizes, least)[:, None]
            S = np.vstack([S, B * (weight / np.linalg.norm(B))])
    norms = np.linalg.norm(S, axis=0)
    live = np.flatnonzero(norms > 0)
    # Pivoting is slow on tall matrices, so it is done on the small factor of a plain QR.
    R, pivots = linalg.qr(_upper(S[:, live] / norms[live]), mode="r", pivoting=True)
    pivots = live[pivots]
    residuals = abs(R.diagonal())
    floor = max(_FLOOR * np.sqrt(len(live)), *(p.noise or 0.0 for p in parts))
    tolerance = max(floor, 16 * max(float(np.finfo(p.dtype).eps) for p in parts))
    while True:
        rank = int((residuals > tolerance).sum())
        if rank == len(live) or tolerance <= floor:
            break
        v = np.zeros(d)
        v[pivots[rank:]] = mix = rng.standard_normal(len(live) - rank)
        v[pivots[:rank]] = -linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:] @ mix)
        v[live] /= norms[live]
        if is_null_vector(parts, v, norms):
            break
        tolerance /= 8
    return np.sort(pivots[:rank])


def is_null_vector(parts: Sequence[Blocks], v: Floats, norms: Floats) -> bool:
    """Tell whether x v is zero, up to rounding, in every single row x.

    Allowed are a few roundings of the input, |x| |v| each, and what is left of the error of v
    itself, alike in all columns when they are scaled by their `norms`. Rows that stand for others
    are allowed the rounding of their columns.
    """
    uniform = np.divide((abs(v) * norms).max(), norms, out=np.zeros_like(v), where=norms > 0)
    for blocks in parts:
        wide = _FLOOR * np.sqrt(len(v))
        single = blocks.dtype == np.float32
        input_error = float(np.finfo(np.float32).eps) if single else wide
        allowed = input_error * abs(v) + (1e-10 if single else wide) * uniform
        rest = 0.0
        if blocks.noise is not None:
            ((_, B),) = blocks.read(_WIDE, [slice(0, blocks.rows)])
            rest = blocks.noise * float(np.linalg.norm(B, axis=0) @ abs(v))
        found: list[bool] = []
        ordered_map(
            blocks.pieces(_WIDE), partial(_vanishing, blocks, v, allowed, rest), found.append
        )
        if not all(found):
            return False
    return True


def _vanishing(
    blocks: Blocks, v: Floats, allowed: Floats, rest: float, pieces: Iterator[slice]
) -> Iterator[bool]:
    """Yield whether |x v| <= |x| allowed + rest in all rows x of each piece."""
    for part, block in blocks.read(_WIDE, pieces):
        bad = abs(to_numpy(matmul(block, v))) > to_numpy(matmul(abs(block), allowed)) + rest
        if blocks.weights is not None:
            bad &= blocks.weights[part] > 0
        yield not bad.any()


def _correction(
    parts: Sequence[Blocks],
    keep: NDArray[np.intp],
    scale: Floats,
    factors: list[Floats],
    ridge: float,
) -> Floats:
    """Return the Cholesky factor of the Gram matrix of A R^-1, R the product of `factors`."""
    G = np.zeros((len(keep), len(keep)))
    if ridge:
        Y = _solve(np.sqrt(ridge) * np.eye(len(keep)) * scale, factors)
        G += Y.T @ Y
    for blocks in parts:
        for part, block in blocks.read(_WIDE):
            Y = _solve(_columns(block, keep) * scale, factors)
            if blocks.weights is not None:
                Y = Y * np.sqrt(blocks.weights[part])[:, None]
            G += Y.T @ Y
    R: Floats
    R, failed = lapack.dpotrf(G, lower=0, clean=1)
    if failed:  # impossible for a sketch of 4 d rows; never return wrong scores silently
        raise ArithmeticError("leverage scores did not converge; rescale the data or add a ridge")
    return R


def _upper(S: Floats) -> Floats:
    """Return R of a QR factorization of a tall matrix."""
    R: Floats = linalg.qr(S, mode="r", overwrite_a=True)[0][: S.shape[1]]
    return R


def _columns(block: Any, keep: NDArray[np.intp]) -> Floats:
    dense = block.toarray() if hasattr(block, "toarray") else to_numpy(block)
    return np.asarray(dense if len(keep) == dense.shape[1] else dense[:, keep])


def _solve(X: Floats, factors: list[Floats]) -> Floats:
    """Return X R_1^-1 R_2^-1 ... for upper triangular factors."""
    Y: Floats = np.ascontiguousarray(X).T
    for R in factors:
        # (Y R^-1)' = R'^-1 Y', with R' lower triangular
        Y = blas.dtrsm(1.0, R.T, Y, side=0, lower=1)
    rows: Floats = Y.T
    return rows
