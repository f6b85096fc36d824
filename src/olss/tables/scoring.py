"""The Gram matrix of a table read in blocks, and the scores it gives rows.

A row is z = ((x - shift) / scale, 1), see `olss.tables.plan`. The matrix kept, sum z z', holds
that of x with and without an intercept: x / scale = T z for a matrix T, so that leverage of x is
||W'T z||^2 with W the factor of T (sum z z') T'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from olss.core.gram import Gram
from olss.errors import DataError
from olss.tables.plan import Plan

__all__ = [
    "Scorer",
    "add_batch",
    "blocks",
    "make_scorer",
    "one_batch",
    "row_map",
    "variable",
    "weighted_gram",
]

Floats = NDArray[np.float64]

# Rows that are encoded and multiplied at a time: 65 columns of float32 stay in a core's cache.
STEP = 8192


def blocks(plan: Plan, batch: Any, *, careful: bool = False) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, Z), Z (width + 1, rows) overwritten by the next."""
    encoded = plan.encode(batch, careful=careful)
    step = min(STEP, max(256, 4_000_000 // (4 * plan.width + 4)))
    out = np.empty((plan.width + 1, min(step, batch.num_rows)), dtype=plan.dtype)
    # Infinite values are looked for in what comes out.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, batch.num_rows, step):
            part = slice(start, min(start + step, batch.num_rows))
            Z = out if part.stop - part.start == out.shape[1] else out[:, : part.stop - part.start]
            plan.fill(encoded, part, Z)
            yield part, Z


def add_batch(gram: Gram, plan: Plan, batch: Any, place: str, start: int) -> None:
    """Add a batch to a Gram matrix: products in the plan's dtype, sums in float64."""
    for careful in (False, True):
        total = np.zeros((plan.width + 1, plan.width + 1))
        for _, Z in blocks(plan, batch, careful=careful):
            total += Z @ Z.T
        if np.isfinite(total.diagonal()).all():
            break
    else:
        raise plan.explain_not_finite(batch, place, start)
    part = Gram()
    part.matrix, part.rows, part.weight = total, batch.num_rows, float(batch.num_rows)
    gram.merge(part)


def weighted_gram(plan: Plan, batch: Any, weight: Floats) -> Gram:
    """Return the Gram matrix of weighted rows."""
    gram = Gram()
    for part, Z in blocks(plan, batch, careful=True):
        gram.add(np.ascontiguousarray(Z.T, dtype=np.float64), weight[part])
    return gram


@dataclass(frozen=True)
class Scorer:
    """Scores rows: leverage ||M'z||^2 of each.

    Attributes
    ----------
    plan : Plan
    M : (width + 1, k) array
    R : (width + 1, width + 1) upper triangular array
        R'R = MM', so that ||R z|| is the same for half the work.
    dimension : float
        What the leverage of all rows sums to.
    rows : int
        How many these are.
    """

    plan: Plan
    M: Floats
    R: Floats
    dimension: float
    rows: int

    def __call__(self, batch: Any, place: str, start: int) -> Floats:
        """Return the leverage of each row of a batch."""
        scores = np.empty(batch.num_rows)
        R = np.asfortranarray(self.R, dtype=self.plan.dtype)
        trmm = blas.strmm if R.dtype == np.float32 else blas.dtrmm
        for careful in (False, True):
            for part, Z in blocks(self.plan, batch, careful=careful):
                # BLAS counts by columns: Z' R' in place of R Z, and in its place.
                product = trmm(1.0, R, Z.T, side=1, trans_a=1, overwrite_b=1).T
                scores[part] = np.einsum("ij,ij->j", product, product)
            if np.isfinite(scores).all():
                return scores
        raise self.plan.explain_not_finite(batch, place, start)


def variable(plan: Plan, gram: Gram) -> NDArray[np.bool_]:
    """(width,) which numbers vary over the rows seen: a constant one is all shift, or all ones."""
    diagonal = gram.matrix.diagonal()[:-1]
    varies: NDArray[np.bool_] = (diagonal > 0) & ~(plan.is_indicator & (diagonal == gram.rows))
    return varies


def make_scorer(
    plan: Plan, gram: Gram, *, intercept: bool, scores: str | float, size: int
) -> Scorer:
    """Factor a Gram matrix for scoring.

    Parameters
    ----------
    plan, gram
        The Gram matrix is that of z.
    intercept : bool
        Whether each row also has a one.
    scores : "auto", "exact", "ridge" or a ridge
        In units of the scaled columns.
    size : int
        Rows to be kept.
    """
    T = row_map(plan, variable(plan, gram), intercept=intercept)
    seen = Gram()
    seen.matrix, seen.rows, seen.weight = T @ gram.matrix @ T.T, gram.rows, gram.weight
    if scores == "auto":
        scores = "exact" if size >= 2 * len(T) else "ridge"
    ridge = {"exact": None, "ridge": "auto"}.get(str(scores), scores)
    factor = seen.scorer(ridge, size=size)
    M = T.T @ factor.W
    R = np.zeros((len(M), len(M)))
    R[: M.shape[1]] = np.linalg.qr(M.T, mode="r")
    return Scorer(plan, M, R, factor.dimension, gram.rows)


def row_map(plan: Plan, varies: NDArray[np.bool_], *, intercept: bool) -> Floats:
    """Return T, (k, width + 1), with x / scale = T z for the k numbers that vary.

    With an intercept, x has a further one; where its zero is then does not matter, and the shift
    is left as it is.
    """
    live = np.flatnonzero(varies)
    if not len(live):
        raise DataError(
            "no column can be scored: none holds numbers, dates or a few different texts that "
            "vary. Use the policy 'reservoir', which needs no scores."
        )
    T = np.zeros((len(live) + intercept, plan.width + 1))
    T[np.arange(len(live)), live] = 1
    if intercept:
        T[-1, -1] = 1
    else:
        T[: len(live), -1] = plan.offsets[live]
    return T


def one_batch(table: Any) -> Any:
    """Return a table as a single record batch."""
    import pyarrow as pa

    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
