"""The rows that stand out most in everything seen, and the columns that make them so.

The leverage of a row is h = z' M z, with M the inverse of the Gram matrix of everything seen, by
its scored columns (`olss.memory.numbers`). Its terms z_j (M z)_j sum to h: what column j has of
them is its part in the row's standing out. Of tables z is what a value is above the column's
median, in units of its spread, and a constant; so a column in which a row is ordinary has no part.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.core.frequent_directions import DirectionsFactor
from olss.core.gram import Factor
from olss.core.leverage import Projected
from olss.errors import InputError, OlssWarning
from olss.memory.sketch import Sketch
from olss.memory.store import take

__all__ = ["UnusualRow", "unusual_rows"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UnusualRow:
    """A row that stands out.

    Attributes
    ----------
    row : int
        Its place among the rows kept.
    leverage : float
        In everything seen, from 0 to 1: at 1, no other row has anything in its direction.
    times : float
        How many times the mean of everything seen that is.
    parts : list of (name, float)
        What columns have of its leverage, as shares that sum to 1, the largest first.
    """

    row: int
    leverage: float
    times: float
    parts: list[tuple[str, float]]


def unusual_rows(sketch: Sketch, most: int = 10) -> list[UnusualRow]:
    """Return the rows kept that have the highest leverage in everything seen.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 3))
    >>> X[7, 2] = 50.0
    >>> (first,) = unusual_rows(Sketch(100, seed=0).update(X), most=1)
    >>> first.parts[0][0], first.leverage > 0.5
    ('column 2', True)
    """
    state, settings = sketch._settled, sketch._settings
    if state.spectrum is None or not len(state.rows):
        raise InputError(
            "which rows stand out in everything seen is not known: no spectrum is kept of it."
        )
    scores = "exact" if settings.scores == "sketched" else settings.leverage
    size = len(state.rows) if settings.size == "task" else settings.size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OlssWarning)  # few rows, many columns: all stand out
        scorer = state.numbers.scorer(state.spectrum, scores, size, 0)
        leverage = scorer(state.rows["X"])
    top = np.argsort(-leverage, kind="stable")[:most]
    numbers = state.numbers.of(take(state.rows["X"], top))
    Z = numbers.toarray() if sp.issparse(numbers) else to_numpy(numbers)
    Z = Z.reshape(len(top), -1).astype(np.float64)
    parts = Z * _solved(scorer.factor, Z)
    names = _names(sketch, Z.shape[1])
    mean = scorer.dimension / max(scorer.total, 1e-300)
    return [
        UnusualRow(int(row), float(leverage[row]), float(leverage[row] / mean), _shares(names, own))
        for row, own in zip(top, parts, strict=True)
    ]


def _solved(factor: Any, Z: Floats) -> Floats:
    """Return M z for each row z."""
    if isinstance(factor, Projected):
        factor = factor.factor
    if isinstance(factor, DirectionsFactor):
        inside = Z @ factor.V
        solved: Floats = (inside / (factor.s + factor.ridge)) @ factor.V.T
        return solved + (Z - inside @ factor.V.T) / factor.ridge if factor.ridge else solved
    assert isinstance(factor, Factor)
    return np.asarray((Z @ factor.W) @ factor.W.T)


def _names(sketch: Sketch, width: int) -> list[str]:
    """Return the column behind each number."""
    state = sketch._settled
    if state.numbers.plan is not None:
        return [*state.numbers.plan.owners(), "(constant)"]
    shape = state.rows["X"].shape[1:]
    if len(shape) > 1 and int(np.prod(shape)) == width:
        return [f"column {tuple(map(int, np.unravel_index(j, shape)))}" for j in range(width)]
    return [f"column {j}" for j in range(width)]


def _shares(names: list[str], parts: Floats) -> list[tuple[str, float]]:
    total = float(parts.sum())
    by_name: dict[str, float] = {}
    for name, part in zip(names, parts.tolist(), strict=True):
        by_name[name] = by_name.get(name, 0.0) + (part / total if total > 0 else 0.0)
    return sorted(by_name.items(), key=lambda pair: -pair[1])
