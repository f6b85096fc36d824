"""Pilot models: quick linear and logistic fits to a few weighted rows, for their residuals.

Columns are centred, scaled and made orthogonal first: with Z = [1, (x - mean) / spread] and
R'R = Z'WZ / sum(w) + ridge I, the rows U = Z R^-1 have U'WU / sum(w) near I, which makes both fits
easy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PilotModel", "fit_logistic", "fit_ridge"]

Floats = NDArray[np.float64]

RIDGE = 0.01  # for columns of variance 1
STEPS = {"maxiter": 50, "ftol": 1e-6}  # a pilot need not be exact


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
