"""Five classifiers, the same for every sample, and how good their probabilities are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from .tables import Codes, Rows

Probabilities = np.ndarray[Any, np.dtype[np.float64]]
LEAST = 1e-6  # of a probability, for log loss
# Limits of probability between which a model's probabilities and the frequencies are compared.
BINS = np.array([1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
MEASURES = ("average_precision", "auc", "log_loss", "calibration")


def _scaled(model: Any) -> Pipeline:
    return make_pipeline(StandardScaler(), model)


# Each takes a seed, and settings above its own.
MODELS: dict[str, Callable[..., Any]] = {
    "LightGBM": lambda seed, **more: LGBMClassifier(
        random_state=seed, n_jobs=1, verbose=-1, **more
    ),
    "XGBoost": lambda seed, **more: XGBClassifier(
        random_state=seed, n_jobs=1, tree_method="hist", **({"learning_rate": 0.1} | more)
    ),
    "HistGradientBoosting": lambda seed, **more: HistGradientBoostingClassifier(
        random_state=seed, **({"early_stopping": False} | more)
    ),
    "logistic": lambda seed, **more: _scaled(LogisticRegression(**({"max_iter": 300} | more))),
    "net": lambda seed, **more: _scaled(
        MLPClassifier(
            random_state=seed,
            **({"hidden_layer_sizes": (64, 64), "alpha": 1e-3, "max_iter": 40} | more),
        )
    ),
}


def fit(name: str, rows: Rows, weight: Any, seed: int, **settings: Any) -> Any:
    """Return the model, fitted to rows, with weights if there are any.

    A sample without a rare row is fitted by what it says: that there are none.
    """
    if rows.y.min() == rows.y.max():
        return None
    model = MODELS[name](seed, **settings)
    names = {"sample_weight": weight / weight.mean()} if weight is not None else {}
    if isinstance(model, Pipeline):
        names = {f"{model.steps[-1][0]}__{key}": value for key, value in names.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows.X, rows.y, **names)
    return model


def predict(model: Any, X: Any) -> Probabilities:
    """Return the probability of the rare class."""
    if model is None:
        return np.zeros(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # LightGBM made up names of columns
        return np.asarray(model.predict_proba(X)[:, 1], dtype=float)


def correct(p: Probabilities, share: float, seen: float) -> Probabilities:
    """Return probabilities for the class frequency of everything seen.

    `share` is the share of the rare class in the rows the model was fitted to, `seen` that in
    everything seen (Saerens, Latinne and Decaestecker 2002).
    """
    if not 0 < share < 1:
        return p
    rare, rest = p * seen / share, (1 - p) * (1 - seen) / (1 - share)
    return np.asarray(rare / (rare + rest))


def measure(y: Codes, p: Probabilities) -> dict[str, float]:
    """Return how well the rare class is found, and whether the probabilities are right.

    The calibration error is the mean difference between probability and frequency over bins of
    probability, weighted by rows, as a share of the rare class's frequency.
    """
    off = np.abs(np.bincount(np.digitize(p, BINS), p - y)).sum() / len(y)
    return {
        "average_precision": float(average_precision_score(y, p)),
        "auc": float(roc_auc_score(y, p)),
        "log_loss": float(log_loss(y, np.clip(p, LEAST, 1 - LEAST))),
        "calibration": float(off / y.mean()),
    }
