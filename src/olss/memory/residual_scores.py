"""Residual scores: rows that a pilot model of the target predicts badly, and that matter to it.

The variance of a model fitted to drawn rows, weighted by 1 / probability, is least if rows are
drawn in proportion to the length of their gradient: |y - x'b| ||x|| for least squares, and
||e_y - p(x)|| ||x|| for logistic regression, b and p being those of the fit to everything, and
||x||^2 = x' G^+ x for the error of predictions (Wang, Zhu & Ma 2018; Ting & Brochu 2018). A pilot
model stands in for that fit. It is fitted to a weighted leverage sample of the pool, and so to
everything seen, and fitted again at each update: nothing of it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import COLUMN_LIMIT
from olss.core.pilot import PilotModel, fit_logistic, fit_ridge
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.errors import InputError
from olss.memory.rows import Floats, Indices

if TYPE_CHECKING:
    from olss.memory.pool import Pool

__all__ = ["residual_scores"]

PILOT_ROWS = 4_096  # and at least twice as many as columns
MOST_CLASSES = 256  # the rarest of more are taken as one


def residual_scores(
    pool: Pool, leverage: Floats, priority: Floats, rng: np.random.Generator
) -> Floats | None:
    """Return ||y - p(x)|| times the root of the leverage, as a share of everything.

    The pilot p is fitted to rows drawn by `priority`. None if it makes no errors.
    """
    y = pool.target_numbers if pool.target == "number" else _codes(pool)
    pilot = _fit_pilot(pool, y, priority, rng)
    off = np.empty(len(pool))
    for rows, block in pool.blocks(np.arange(len(pool))):
        off[rows] = pilot.residual_norms(block, y[rows])
    found = off * np.sqrt(np.maximum(leverage, 0))
    total = float(pool.weight @ found)
    return found / total if total > 0 else None


def _fit_pilot(
    pool: Pool, y: NDArray[Any], priority: Floats, rng: np.random.Generator
) -> PilotModel:
    rows, weight = np.arange(len(pool)), pool.weight
    width = _features(pool, rows[:1]).shape[1]
    if width > COLUMN_LIMIT:
        raise InputError(
            f"scores='target' supports at most {COLUMN_LIMIT:,} scored columns, found {width:,}; "
            "use scores='auto'."
        )
    count = max(PILOT_ROWS, 2 * width)
    if len(pool) > count:
        line = rng.permutation(len(pool))
        pi = inclusion_probabilities((weight * priority)[line], count)
        drawn = pivotal_sample(pi, rng)
        rows, weight = line[drawn], weight[line[drawn]] / pi[drawn]
    X = _features(pool, rows)
    if pool.target == "number":
        return fit_ridge(X, y[rows], weight)
    return fit_logistic(X, y[rows], weight, int(y.max()) + 1)


def _features(pool: Pool, rows: Indices) -> NDArray[np.float32]:
    """(k, d) what is scored of some rows."""
    whole = np.empty(0, dtype=np.float32)
    for which, block in pool.blocks(rows):
        whole = whole if whole.ndim == 2 else np.empty((len(rows), block.shape[1]), np.float32)
        whole[which] = block
    return whole


def _codes(pool: Pool) -> NDArray[np.int64]:
    """(n,) the classes of rows as 0, 1, ..., by how often there are such rows."""
    assert pool.classes is not None
    code = np.unique(pool.classes, return_inverse=True)[1].reshape(-1)
    rank = np.empty(code.max() + 1, dtype=np.int64)
    rank[np.argsort(-np.bincount(code, pool.weight), kind="stable")] = np.arange(len(rank))
    return np.minimum(rank[code], MOST_CLASSES - 1)
