"""Five models, fitted to weighted rows and measured on rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from .tables import Floats, Table

QUANTILE = 0.9
RIDGE = 0.01
COMPONENTS = 5
LEAST = 1e-6  # of a probability

MEASURES = {
    "least squares": "R²",
    "ridge": "R²",
    "quantile": "pinball loss",
    "logistic": "log loss",
    "pca": "variance left",
}


def fitted_losses(
    kept: Table, weight: Floats, test: Table, models: Collection[str] = tuple(MEASURES)
) -> dict[str, tuple[float, float]]:
    """Return for each model its loss on rows held out, and the number people read.

    The loss is the mean squared error, the pinball loss, the log loss, or the share of variance
    outside the leading components; the number is R² or accuracy where there is such a one.
    """
    w = weight / weight.mean()
    found = {}
    for model, ridge in (("least squares", 0.0), ("ridge", RIDGE)):
        if model not in models:
            continue
        loss = float(np.mean((test.y - test.X @ linear(kept.X, kept.y, w, ridge)) ** 2))
        found[model] = (loss, 1 - loss / float(test.y.var()))
    if "quantile" in models:
        off = test.y - test.X @ quantile(kept.X, kept.y, w)
        pinball = float(np.mean(np.maximum(QUANTILE * off, (QUANTILE - 1) * off)))
        found["quantile"] = (pinball, pinball)
    if "logistic" in models:
        p = logistic(kept.X, kept.label, w)(test.X)
        loss = float(-np.mean(np.log(p[np.arange(len(p)), test.label])))
        found["logistic"] = (loss, float(np.mean(p.argmax(axis=1) == test.label)))
    if "pca" in models:
        left = variance_left(kept.X[:, 1:], w, test.X[:, 1:])
        found["pca"] = (left, left)
    return found


def linear(X: Floats, y: Floats, w: Floats, ridge: float = 0.0) -> Floats:
    """Return the coefficients of weighted least squares, of least norm if there are many."""
    G = (X.T * w) @ X / w.sum()
    penalty = np.full(len(G), ridge)
    penalty[0] = 0
    values, vectors = np.linalg.eigh(G + np.diag(penalty))
    good = values > 1e-10 * values[-1]
    right = vectors.T @ (X.T @ (w * y) / w.sum())
    coefficients: Floats = vectors[:, good] @ (right[good] / values[good])
    return coefficients


def quantile(X: Floats, y: Floats, w: Floats) -> Floats:
    """Return the coefficients of quantile regression.

    The pinball loss is smoothed, t r + h log(1 + exp(-r / h)), with a width h that shrinks to a
    hundredth of the spread of the residuals (He et al. 2021), on columns made orthogonal.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    values, vectors = np.linalg.eigh((X.T * w) @ X / w.sum())
    good = values > 1e-8 * values[-1]
    whiten = vectors[:, good] / np.sqrt(values[good])
    Z, share = X @ whiten, w / w.sum()
    b = Z.T @ (share * y)
    spread = float(np.sum(share * np.abs(y - Z @ b)))

    def loss(b: Floats, h: float) -> tuple[float, Floats]:
        off = y - Z @ b
        smooth = QUANTILE * off + h * np.logaddexp(0, -off / h)
        slope = expit(-off / h) - QUANTILE
        return float(share @ smooth) / spread, Z.T @ (share * slope) / spread

    for width in (0.3, 0.05, 0.01):
        b = minimize(loss, b, args=(width * spread,), jac=True, method="L-BFGS-B").x
    return np.asarray(whiten @ b)


def logistic(X: Floats, label: Any, w: Floats, tol: float | None = None) -> Any:
    """Return a function that gives the probabilities of classes 0, 1, ...

    By default with 200 steps at most, with a tolerance until it is reached.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(label)) == 1:
        return lambda rows: np.where(np.arange(5) == label[0], 1.0, LEAST) * np.ones((len(rows), 1))
    model = (
        LogisticRegression(max_iter=200)
        if tol is None
        else LogisticRegression(tol=tol, max_iter=5_000)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:, 1:], label, sample_weight=w)

    def probabilities(rows: Floats) -> Floats:
        p = np.full((len(rows), max(5, model.classes_.max() + 1)), LEAST)
        p[:, model.classes_] = np.maximum(model.predict_proba(rows[:, 1:]), LEAST)
        return p

    return probabilities


def variance_left(X: Floats, w: Floats, test: Floats) -> float:
    """Return the share of the test rows' variance outside the leading components of X."""
    mean = np.average(X, axis=0, weights=w)
    centred = X - mean
    leading = np.linalg.eigh((centred.T * w) @ centred)[1][:, -COMPONENTS:]
    return variance_outside(leading, mean, test)


def variance_outside(leading: Floats, mean: Floats, test: Floats) -> float:
    """Return the share of the test rows' variance outside some directions (d, k) from a mean."""
    off = test - mean
    total = float(((test - test.mean(axis=0)) ** 2).sum())
    return float((off**2).sum() - ((off @ leading) ** 2).sum()) / total


def certificate(X: Floats, weight: Floats, gram: Floats) -> float:
    """Return the least e with (1 - e) G <= G' <= (1 + e) G, G' scaled as serves it best."""
    values, vectors = np.linalg.eigh(gram)
    good = values > 1e-10 * values[-1]
    W = vectors[:, good] / np.sqrt(values[good])
    A = X @ W
    spectrum = np.linalg.eigvalsh((A.T * weight) @ A)
    return float((spectrum[-1] - spectrum[0]) / (spectrum[-1] + spectrum[0]))
