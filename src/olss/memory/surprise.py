"""Scores that know the target: rows that a pilot model is wrong about, and that matter to it.

The variance of a model fitted to drawn rows, weighted by 1 / probability, is least if rows are
drawn in proportion to the length of their gradient: |y - x'b| ||x|| for least squares, and
||e_y - p(x)|| ||x|| for logistic regression, b and p being those of the fit to everything, and
||x||^2 = x' G^+ x for the error of predictions (Wang, Zhu & Ma 2018; Ting & Brochu 2018). A pilot
stands for that fit. It is fitted to some rows of the pool, drawn by leverage and weighted, so that
it is one for everything seen, and anew at each update: nothing of it has to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import COLUMN_LIMIT
from olss.core.pilot import PilotModel, fit_logistic, fit_ridge
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.errors import DataError, InputError
from olss.memory.pool import Floats, Pool
from olss.memory.state import Settings
from olss.memory.store import Array, Indices, is_arrow, take
from olss.memory.target_classes import numbers_of_target, say_classes
from olss.tables.arrow_types import as_numbers

__all__ = ["check_target", "surprise"]

PILOT_ROWS = 4_096  # and at least twice as many as columns
MOST_CLASSES = 256  # the rarest of more are taken as one


def check_target(settings: Settings, columns: Mapping[str, Array]) -> None:
    """Raise `InputError` if scores should know the target of rows that have none they can know."""
    if not settings.knows_target:
        return
    if "y" not in columns:
        raise InputError(
            f"scores={settings.scores!r} draws rows by what is to be predicted: give y, the "
            "targets of the rows, or use scores='auto'."
        )
    _check_finite(columns["y"])
    first = take(columns["y"], np.zeros(1, dtype=np.int64))
    if settings.scores == "target-number" or not say_classes(first):
        numbers_of_target([first])


def _check_finite(y: Array) -> None:
    """Raise `DataError` that names the first infinite target; an array has none."""
    numbers = as_numbers(y.column(0)) if is_arrow(y) else None
    if numbers is not None and not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(
            f"the target {y.schema.names[0]!r} is infinite in row {row}, and no model can be "
            "fitted to it. Mend it, or use scores='auto'."
        )


def surprise(pool: Pool, leverage: Floats, mark: Floats, rng: np.random.Generator) -> Floats | None:
    """Return ||y - p(x)|| times the root of the leverage, as a share of everything.

    The pilot p is fitted to rows drawn by `mark`. None if nothing surprises it.
    """
    y = pool.target_numbers if pool.target == "number" else _codes(pool)
    pilot = _fitted(pool, y, mark, rng)
    off = np.empty(len(pool))
    for rows, block in pool.blocks(np.arange(len(pool))):
        off[rows] = pilot.residual_norms(block, y[rows])
    found = off * np.sqrt(np.maximum(leverage, 0))
    total = float(pool.weight @ found)
    return found / total if total > 0 else None


def _fitted(pool: Pool, y: NDArray[Any], mark: Floats, rng: np.random.Generator) -> PilotModel:
    rows, weight = np.arange(len(pool)), pool.weight
    width = _features(pool, rows[:1]).shape[1]
    if width > COLUMN_LIMIT:
        raise InputError(
            f"scores='target' fits a model of all scored columns, of which there may be "
            f"{COLUMN_LIMIT:,}, found {width:,}; use scores='auto'."
        )
    count = max(PILOT_ROWS, 2 * width)
    if len(pool) > count:
        line = rng.permutation(len(pool))
        pi = inclusion_probabilities((weight * mark)[line], count)
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
