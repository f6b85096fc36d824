"""The upper line: models fitted to all rows, with the best settings of a grid.

Each setting is fitted to all training rows and judged by log loss on validation rows, which also
say when boosting and nets stop; only the best is measured on the test rows. The default settings,
those of the models fitted to few rows, are a line of their own.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

from lightgbm import early_stopping

from .models import MODELS, fit, measure, predict
from .records import add, done
from .tables import Rows, Table

PATIENCE, MOST_TREES = 50, 1_000
GRIDS: dict[str, dict[str, list[Any]]] = {
    "LightGBM": {
        "num_leaves": [15, 63],
        "min_child_samples": [20, 200],
        "reg_lambda": [0.0, 10.0],
    },
    "XGBoost": {"max_depth": [4, 8], "min_child_weight": [1, 10], "reg_lambda": [1.0, 10.0]},
    "HistGradientBoosting": {"max_leaf_nodes": [15, 63], "l2_regularization": [0.0, 10.0]},
    "logistic": {"C": [0.01, 0.1, 1.0, 10.0]},
    "net": {"hidden_layer_sizes": [(64, 64), (256, 128)], "alpha": [1e-4, 1e-2]},
}
RATE = 0.05  # of boosting
NAME = "all-rows"


def run(name: str, table: Table, model: str) -> None:
    """Measure one model on one table, with its default settings and with the best of its grid."""
    made = done(NAME, ("table", "model", "settings"))
    if (name, model, "default") not in made:
        found = fit(model, table.train, None, 0)
        add(NAME, [_line(name, model, "default", "", found, table)])
    if any(key[:2] == (name, model) and key[2] != "default" for key in made):
        return
    best: tuple[float, dict[str, Any], Any] | None = None
    for values in product(*GRIDS[model].values()):
        settings = dict(zip(GRIDS[model], values, strict=True))
        start = time.process_time()
        found = _fit_until_enough(model, table.train, table.validation, settings)
        loss = measure(table.validation.y, predict(found, table.validation.X))["log_loss"]
        print(
            f"{name} {model} {settings}: {loss:.5f}, {time.process_time() - start:.0f} s",
            flush=True,
        )
        if best is None or loss < best[0]:
            best = (loss, settings, found)
    if best is not None:
        words = " ".join(f"{key}={value}" for key, value in best[1].items())
        add(NAME, [_line(name, model, words, _steps(best[2]), best[2], table)])


def _line(name: str, model: str, settings: str, steps: Any, found: Any, table: Table) -> Any:
    measured = measure(table.test.y, predict(found, table.test.X))
    return {
        "table": name, "model": model, "settings": settings, "steps": steps,
        "rows": len(table.train), "rare": int(table.train.y.sum()),
        "test_rows": len(table.test), "test_rare": int(table.test.y.sum()), **measured,
    }  # fmt: skip


def _fit_until_enough(name: str, train: Rows, validation: Rows, settings: dict[str, Any]) -> Any:
    """Fit a model, and stop when it gets no better on validation rows."""
    if name == "LightGBM":
        model = MODELS[name](0, n_estimators=MOST_TREES, learning_rate=RATE, **settings)
        stop = [early_stopping(PATIENCE, verbose=False)]
        return model.fit(
            train.X, train.y, eval_X=validation.X, eval_y=validation.y, eval_metric="logloss",
            callbacks=stop,
        )  # fmt: skip
    if name == "XGBoost":
        more = {"n_estimators": MOST_TREES, "learning_rate": RATE, "eval_metric": "logloss"}
        model = MODELS[name](0, early_stopping_rounds=PATIENCE, **more, **settings)
        return model.fit(train.X, train.y, eval_set=[(validation.X, validation.y)], verbose=False)
    if name == "HistGradientBoosting":
        more = {"max_iter": MOST_TREES, "learning_rate": RATE, "early_stopping": True}
        model = MODELS[name](0, n_iter_no_change=PATIENCE, scoring="loss", **more, **settings)
        return model.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    if name == "net":
        more = {"early_stopping": True, "n_iter_no_change": 4, "batch_size": 512}
        return fit(name, train, None, 0, **more, **settings)
    return fit(name, train, None, 0, **settings)


def _steps(model: Any) -> Any:
    """Return how many trees or passes were best."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    for name in ("best_iteration_", "best_iteration", "n_iter_"):
        if name in dir(last):
            steps = getattr(last, name)
            return int(steps if not hasattr(steps, "__len__") else steps[0])
    return ""
