"""Models of everything seen, in three orders of the stream: from moments, and from rows kept.

Each table is streamed in ten updates: in the order of its file, at random, and sorted by the column
that goes with the target most. Least squares, ridge and principal components come from the moments
of a sketch, logistic regression from its rows, corrected by the moments; beside them, the same
models fitted to the rows kept: by leverage, by leverage and target, and at random.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from olss import Sketch

from .models import COMPONENTS, LEAST, RIDGE, fitted_losses, variance_outside
from .records import read, rows_of, split, write
from .tables import TABLES, Table

ORDERS = ("file", "random", "sorted")
SIZES = (1_000, 5_000)
NUMBER, CLASS = ("least squares", "ridge", "pca"), ("logistic",)
UPDATES, SEEDS = 10, 20
HEAD = ["table", "order", "from", "rows", "seed", "model", "loss", "measure", "excess"]
ROWS = {  # what rows are kept by, with the scores for a number and for a class
    "uniform": ("reservoir", "auto", "auto"),
    "leverage": ("weighted", "auto", "auto"),
    "target": ("weighted", "target-number", "target"),
}


def run(name: str) -> None:
    """Measure one table in every order; what was measured before is kept."""
    train, test = split(TABLES[name]())
    best = {line[5]: float(line[6]) for line in read(f"fits-{name}") if line[1] == "all rows"}
    lines = read(f"orders-{name}")
    done = {(line[1], str(line[3]), str(line[4])) for line in lines}
    start = time.perf_counter()
    for order in ORDERS:
        arranged = rows_of(train, arrangement(train, order))
        X = arranged.X[:, 1:].astype(np.float32)
        for size in SIZES:
            if size > len(train.y) / 4:
                continue
            for seed in range(SEEDS):
                if (order, str(size), str(seed)) in done:
                    continue
                for source, model, numbers in measured(arranged, X, test, size, seed):
                    excess = numbers[0] / best[model] - 1
                    lines.append([name, order, source, size, seed, model, *numbers, excess])
                write(f"orders-{name}", HEAD, lines)
            print(f"{name}, {order}, {size}: {time.perf_counter() - start:.0f} s", flush=True)


def arrangement(table: Table, order: str) -> Any:
    """Return the rows in the order they are streamed."""
    if order == "file":
        return np.arange(len(table.y))
    if order == "random":
        return np.random.default_rng(1).permutation(len(table.y))
    centred = table.X[:, 1:]  # of mean 0 and variance 1 over all rows
    related = np.abs((table.y - table.y.mean()) @ centred)
    return np.argsort(centred[:, related.argmax()], kind="stable")


def measured(table: Table, X: Any, test: Table, size: int, seed: int) -> Iterator[Any]:
    """Yield where a model came from, its name, and its loss and measure on the test rows."""
    for source, (policy, for_number, for_class) in ROWS.items():
        for models, y, scores in ((NUMBER, table.y, for_number), (CLASS, table.label, for_class)):
            sketch = Sketch(size, policy, scores=scores, intercept=True, moments=True, seed=seed)
            for part in np.array_split(np.arange(len(y)), UPDATES):
                some = slice(part[0], part[-1] + 1)
                sketch.update(X[some], y[some])
            kept = rows_of(table, sketch.index)
            for model, numbers in fitted_losses(kept, sketch.weight, test, models).items():
                yield f"{source} rows", model, numbers
            if source == "leverage":
                for model in models:
                    yield "sketch", model, from_sketch(sketch, model, test)
            elif source == "uniform" and models == CLASS:
                yield "uniform sketch", "logistic", from_sketch(sketch, "logistic", test)


def from_sketch(sketch: Sketch, model: str, test: Table) -> tuple[float, float]:
    """Return loss and measure of a model of everything seen that the sketch gives."""
    X = test.X[:, 1:].astype(np.float32)
    if model == "pca":
        found = sketch.moments.pca(COMPONENTS)
        mean = np.array(list(sketch.moments.mean.values()))
        left = variance_outside(found.components.T, mean, test.X[:, 1:])
        return left, left
    if model == "logistic":
        p = np.maximum(sketch.linear_model(kind="logistic").predict_proba(X), LEAST)
        loss = float(-np.mean(np.log(p[np.arange(len(p)), test.label])))
        return loss, float(np.mean(p.argmax(axis=1) == test.label))
    penalty = RIDGE * sketch.seen if model == "ridge" else 0.0
    kind = "ridge" if model == "ridge" else "least-squares"
    answer = sketch.linear_model(kind=kind, ridge=penalty).predict(X)
    loss = float(np.mean((test.y - np.ravel(answer)) ** 2))
    return loss, 1 - loss / float(test.y.var())
