"""Compare logistic models that keep no rows with the fit to all rows, in several orders.

Five laws of rows, each streamed as drawn, sorted by the column that predicts best, and sorted by
class, in ten and in a hundred batches. `normal past` is `olss.core.glm.update_logistic`;
`renewable` carries one quadratic form from batch to batch (Luo & Song 2020). Excess log loss on new
rows over scikit-learn's fit to all rows, in percent.

    python experiments/logistic_orders.py experiments/results/analytic/logistic_orders.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from olss.core.glm import LogisticState, QuadraticTerm, RowTerm, minimize, update_logistic

Floats = NDArray[np.float64]
ROWS = 6_000
LAWS = ("normal", "heavy tails", "one-hot and skewed", "rare class", "not linear")


def main(target: Path) -> None:
    """Write a line for each law, order, number of batches and method."""
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["law", "order", "batches", "method", "excess_percent"])
        for law in LAWS:
            X, y = _draw(law)
            new = _draw(law, seed=2)
            full = LogisticRegression(C=1.0, tol=1e-8, max_iter=5_000).fit(X, y)
            least = _loss(np.append(full.coef_[0], full.intercept_), *new)
            best = np.argmax([abs(np.corrcoef(column, y)[0, 1]) for column in X.T])
            orders = {
                "as drawn": np.arange(ROWS),
                "by the best column": np.argsort(X[:, best], kind="stable"),
                "by class": np.argsort(y, kind="stable"),
            }
            for order, rows in orders.items():
                for batches in (10, 100):
                    for method in (normal_past, renewable):
                        b = method(X, y, np.array_split(rows, batches))
                        excess = 100 * (_loss(b, *new) / least - 1)
                        name = method.__name__.replace("_", " ")
                        writer.writerow([law, order, batches, name, f"{excess:.2f}"])


def normal_past(X: Floats, y: NDArray[np.int64], batches: list[NDArray[np.intp]]) -> Floats:
    """Fit batch after batch as `IncrementalLogistic` does."""
    state = LogisticState.empty(X.shape[1], 2)
    for part in batches:
        state = update_logistic(state, X[part], y[part], np.ones(len(part)), 1.0)
    return state.coef[1]


def renewable(X: Floats, y: NDArray[np.int64], batches: list[NDArray[np.intp]]) -> Floats:
    """Fit each batch beside a quadratic form with the curvature of those before."""
    columns = X.shape[1] + 1
    penalty = QuadraticTerm(np.diag(np.append(np.ones(columns - 1), 1e-8)), np.zeros(columns))
    past, b = QuadraticTerm(np.zeros((columns, columns)), np.zeros(columns)), np.zeros(columns)
    for part in batches:
        rows = RowTerm(X[part], y[part].astype(float), np.ones(len(part)))
        b = minimize([past, rows, penalty], b)
        # The sum of two quadratic forms, the batch's at its own minimum, as one.
        _, gradient, curvature = rows(b)
        J = past.J + curvature
        centre = np.linalg.lstsq(J, past.J @ past.centre + curvature @ b - gradient, rcond=None)[0]
        past = QuadraticTerm(J, centre)
    return b


def _draw(law: str, seed: int = 1) -> tuple[Floats, NDArray[np.int64]]:
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    if law == "normal":
        X = rng.standard_normal((ROWS, 10))
        t = X @ fixed.standard_normal(10) - 1
    elif law == "heavy tails":
        X = rng.standard_t(3, (ROWS, 10))
        t = 0.7 * X @ fixed.standard_normal(10) - 1
    elif law == "one-hot and skewed":
        levels = rng.choice(12, ROWS, p=np.r_[0.4, 0.2, np.full(10, 0.04)])
        X = np.hstack([np.eye(12)[levels], rng.exponential(1, (ROWS, 4))])
        t = 1.5 * X @ fixed.standard_normal(16)
    elif law == "rare class":
        X = rng.standard_normal((ROWS, 10)) ** 3 / 2
        t = 0.6 * X @ fixed.standard_normal(10) - 6
    else:
        X = rng.standard_normal((ROWS, 6))
        t = 3 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] - 1
        X = np.column_stack([X, X[:, 0] ** 2])
    return X, (rng.random(ROWS) < expit(t)).astype(np.int64)


def _loss(b: Floats, X: Floats, y: NDArray[np.int64]) -> float:
    return float(log_loss(y, expit(X @ b[:-1] + b[-1])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
