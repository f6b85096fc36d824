"""Residual scores: rows that a pilot model of the target predicts badly, and that matter to it.

The variance of a model fitted to sampled rows, weighted by 1 / probability, is least if rows are
sampled in proportion to the length of their gradient: |y - x'b| ||x|| for least squares, and
||e_y - p(x)|| ||x|| for logistic regression, b and p being those of the fit to everything, and
||x||^2 = x' G^+ x for the error of predictions (Wang, Zhu & Ma 2018; Ting & Brochu 2018). A pilot
model stands in for that fit: ridge or logistic regression on a weighted leverage sample.

Its columns are centred, scaled and made orthogonal first: with Z = [1, (x - mean) / spread] and
R'R = Z'WZ / sum(w) + ridge I, the rows U = Z R^-1 have U'WU / sum(w) near I, which makes both fits
easy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import column_limit
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
# Yields (places in the rows asked for, their features), a block at a time.
ReadBlocks: TypeAlias = Callable[[Indices], Iterator[tuple[Indices, NDArray[np.float32]]]]

PILOT_ROWS = 4_096  # and at least twice as many as columns
MAX_CLASSES = 256  # the rarest of more are treated as one

RIDGE = 0.01  # for columns of variance 1
STEPS = {"maxiter": 50, "ftol": 1e-6}  # a pilot need not be exact


def residual_scores(
    blocks: ReadBlocks,
    y: NDArray[Any],
    weight: Floats,
    leverage: Floats,
    priority: Floats,
    rng: np.random.Generator,
) -> Floats | None:
    """Return ||y - p(x)|| times the root of the leverage, as a share of the weighted total.

    `y` is (n, k) numbers, or (n,) classes 0, 1, ... The pilot p is fitted to rows sampled by
    `priority`. None if it makes no errors.
    """
    pilot = _fit_pilot(blocks, y, weight, priority, rng)
    residual = np.empty(len(y))
    for rows, block in blocks(np.arange(len(y))):
        residual[rows] = pilot.residual_norms(block, y[rows])
    scores = residual * np.sqrt(np.maximum(leverage, 0))
    total = float(weight @ scores)
    return scores / total if total > 0 else None


def rank_classes(classes: NDArray[Any], weight: Floats) -> Indices:
    """(n,) the classes of rows as 0, 1, ..., the most frequent first."""
    code = np.unique(classes, return_inverse=True)[1].reshape(-1)
    rank = np.empty(code.max() + 1, dtype=np.int64)
    rank[np.argsort(-np.bincount(code, weight), kind="stable")] = np.arange(len(rank))
    return np.minimum(rank[code], MAX_CLASSES - 1)


def _fit_pilot(
    blocks: ReadBlocks,
    y: NDArray[Any],
    weight: Floats,
    priority: Floats,
    rng: np.random.Generator,
) -> PilotModel:
    rows = np.arange(len(y))
    width = _read(blocks, rows[:1]).shape[1]
    if width > column_limit():
        raise InputError(
            f"scores='target' supports at most {column_limit():,} scored columns, found {width:,}; "
            "use scores='auto'."
        )
    count = max(PILOT_ROWS, 2 * width)
    if len(y) > count:
        line = rng.permutation(len(y))
        pi = inclusion_probabilities((weight * priority)[line], count)
        sampled = pivotal_sample(pi, rng)
        rows, weight = line[sampled], weight[line[sampled]] / pi[sampled]
    X = _read(blocks, rows)
    if y.ndim == 2:
        return fit_ridge(X, y[rows], weight)
    return fit_logistic(X, y[rows], weight, int(y.max()) + 1)


def _read(blocks: ReadBlocks, rows: Indices) -> NDArray[np.float32]:
    """(k, d) the features of some rows."""
    whole = np.empty(0, dtype=np.float32)
    for which, block in blocks(rows):
        whole = whole if whole.ndim == 2 else np.empty((len(rows), block.shape[1]), np.float32)
        whole[which] = block
    return whole


@dataclass(frozen=True)
class PilotModel:
    """A model y = Z B of numbers, or softmax(Z B) of classes 0, 1, ...

    Attributes
    ----------
    mean, spread : (d,) arrays
        To centre and scale columns.
    coefficients : (d + 1, k) array B
        The first row is the intercept.
    classes : bool
        Whether it predicts probabilities of classes.
    """

    mean: NDArray[np.float32]
    spread: NDArray[np.float32]
    coefficients: NDArray[np.float32]
    classes: bool

    def residual_norms(self, X: NDArray[np.float32], y: NDArray[Any]) -> Floats:
        """Return the norm of each residual: ||y - Z B||, or ||e_y - p(x)|| for classes."""
        guess = ((X - self.mean) / self.spread) @ self.coefficients[1:] + self.coefficients[0]
        if self.classes:
            _to_probabilities(guess)
            guess[np.arange(len(y)), y] -= 1
        off: Floats = np.linalg.norm(guess if self.classes else y - guess, axis=1)
        return off.astype(np.float64)


def fit_ridge(X: NDArray[np.float32], y: Floats, weight: Floats) -> PilotModel:
    """Fit ridge regression of targets (n, k) on weighted rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 3)).astype(np.float32)
    >>> y = 2 + X @ np.array([[1.0], [0.0], [-1.0]])
    >>> off = fit_ridge(X, y, np.ones(1_000)).residual_norms(X, y)
    >>> bool(off.max() < 0.1)
    True
    """
    share, U, mean, spread, R = _orthogonal(X, weight)
    return PilotModel(mean, spread, _solve(R, U.T @ (share[:, None] * y)), classes=False)


def fit_logistic(
    X: NDArray[np.float32], y: NDArray[np.int64], weight: Floats, count: int
) -> PilotModel:
    """Fit multinomial logistic regression of classes 0, ..., count - 1 on weighted rows.

    The penalty on the coefficients of U is the weight of one row; a few steps of L-BFGS.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 2)).astype(np.float32)
    >>> y = (X[:, 0] > 0).astype(np.int64)
    >>> off = fit_logistic(X, y, np.ones(1_000), 2).residual_norms(X, y)
    >>> bool(off[np.abs(X[:, 0]) > 1].max() < off[np.abs(X[:, 0]) < 0.1].min())
    True
    """
    from scipy.optimize import minimize

    share, U, mean, spread, R = _orthogonal(X, weight)
    penalty, rows = 1 / len(X), np.arange(len(X))

    def loss(flat: Floats) -> tuple[float, Floats]:
        C = flat.reshape(-1, count)
        p = U @ C.astype(np.float32)
        _to_probabilities(p)
        told = share @ np.log(np.maximum(p[rows, y], 1e-30))
        p[rows, y] -= 1
        slope = U.T @ (share[:, None] * p) + penalty * C
        return float(penalty / 2 * (C**2).sum() - told), slope.ravel().astype(np.float64)

    start = np.zeros(U.shape[1] * count)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=STEPS).x
    return PilotModel(mean, spread, _solve(R, found.reshape(-1, count)), classes=True)


def _orthogonal(X: NDArray[np.float32], weight: Floats) -> tuple[Any, Any, Any, Any, Any]:
    """Return normalized weights, the rows U, and the means, spreads and R they were made with."""
    from scipy.linalg import solve_triangular

    share = (weight / weight.sum()).astype(np.float32)
    mean = share @ X
    spread = np.sqrt(share @ (X - mean) ** 2)
    spread[spread <= 1e-6 * np.abs(mean)] = 1  # a constant column
    spread[spread == 0] = 1
    Z = np.column_stack([np.ones(len(X), np.float32), (X - mean) / spread])
    G = (Z.T * share) @ Z + np.diag(np.append(0, np.full(len(mean), RIDGE))).astype(np.float32)
    R = np.linalg.cholesky(G.astype(np.float64)).T
    U = solve_triangular(R.astype(np.float32), Z.T, trans="T", lower=False).T
    return share, U, mean, spread, R


def _solve(R: Floats, right: NDArray[Any]) -> NDArray[np.float32]:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(R, right), dtype=np.float32)


def _to_probabilities(guess: NDArray[np.float32]) -> None:
    """Replace each row g by exp(g) / sum exp(g)."""
    guess -= guess.max(axis=1, keepdims=True)
    np.exp(guess, out=guess)
    guess /= guess.sum(axis=1, keepdims=True)
