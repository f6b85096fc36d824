"""Models of everything seen, in four orders of the stream: from a sketch, and from rows kept.

Each table is streamed in ten updates: in the order of its file, at random, sorted by the column
that goes with the target most, and, for models of classes, sorted by class. Least squares, ridge
and principal components come from the moments of a sketch; logistic regression, of the table's
classes and of a class of 0.5%, from its rows, corrected by the moments (`sketch`) or by a model
followed with `glm=` (`followed`). Beside them, the same models fitted to the rows kept: by
leverage, by leverage and target, and at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from olss import Sketch
from olss.memory.policies import Weighted

from .models import COMPONENTS, LEAST, RIDGE, fitted_losses, logistic, variance_outside
from .records import read, rows_of, split, write
from .tables import TABLES, Table

ORDERS = ("file", "random", "sorted", "class")
SIZES = (1_000, 5_000)
NUMBER = ("least squares", "ridge", "pca")
RARE = 0.005  # of the rows, those with the largest y, are of the rare class
UPDATES, SEEDS = 10, 20
KEPT: dict[str, Any] = {"intercept": True, "moments": True}
HEAD = [
    "table", "order", "from", "rows", "seed", "model", "loss", "measure", "excess", "seconds"
]  # fmt: skip
ROWS = {  # what rows are kept by, with the scores for a number and for a class
    "uniform": ("reservoir", "auto", "auto"),
    "leverage": (Weighted(spread=False), "auto", "auto"),
    "target": (Weighted(spread=False), "target-number", "target"),
}


def run(names: Sequence[str]) -> None:
    """Measure tables in every order, seed by seed; what was measured before is kept."""
    tables = {name: split(TABLES[name]()) for name in names}
    lines = {name: read(f"orders-{name}") or fit_all(name, *tables[name]) for name in names}
    start = time.perf_counter()
    for seed, name in product(range(SEEDS), names):
        train, test = tables[name]
        done = {(line[1], *map(str, line[2:6])) for line in lines[name]}
        known = read(f"fits-{name}") + lines[name]
        best = {line[5]: float(line[6]) for line in known if "all rows" in line[1:3]}
        for order, size in product(ORDERS, SIZES):
            if size > len(train.y) / 4:
                continue
            missing = partial(is_missing, done, order, size, seed)
            for source, model, numbers, seconds in measure(train, test, order, size, seed, missing):
                excess = numbers[0] / best[model] - 1
                line = [name, order, source, size, seed, model, *numbers, excess, seconds]
                lines[name].append(line)
            write(f"orders-{name}", HEAD, lines[name])
        print(f"seed {seed}, {name}: {time.perf_counter() - start:.0f} s", flush=True)


def fit_all(name: str, train: Table, test: Table) -> list[list[Any]]:
    """Return the loss of logistic models fitted to all rows: one for each class against the rest.

    The model that knows all classes at once is among the records of `python -m
    experiments.leverage_pays --parts rows`.
    """
    truth, lines = labels(test, train), list[list[Any]]()
    best = {line[5]: float(line[6]) for line in read(f"fits-{name}") if line[1] == "all rows"}
    for model, label in labels(train, train).items():
        classes = range(label.max() + 1) if label.max() > 1 else (1,)
        fits = [
            logistic(train.X, (label == k).astype(int), np.ones(len(label)), 1e-6) for k in classes
        ]
        p = np.column_stack([fit(test.X)[:, 1] for fit in fits])
        p = p / p.sum(axis=1, keepdims=True) if len(fits) > 1 else np.column_stack([1 - p, p])
        numbers = judge(p, truth[model])
        source = "all rows, one against the rest" if len(fits) > 1 else "all rows"
        excess = numbers[0] / best[model] - 1 if len(fits) > 1 else 0.0
        lines.append([name, "", source, len(label), 0, model, *numbers, excess, 0.0])
    return lines


def labels(table: Table, train: Table) -> dict[str, Any]:
    """Return the classes to predict: the table's, and whether y is among the largest."""
    return {
        "logistic": table.label,
        "rare": (table.y > np.quantile(train.y, 1 - RARE)).astype(int),
    }


def arrange(table: Table, order: str, label: Any) -> Any:
    """Return the rows in the order they are streamed."""
    if order == "file":
        return np.arange(len(table.y))
    if order == "random":
        return np.random.default_rng(1).permutation(len(table.y))
    if order == "class":
        return np.argsort(label, kind="stable")
    centred = table.X[:, 1:]  # of mean 0 and variance 1 over all rows
    related = np.abs((table.y - table.y.mean()) @ centred)
    return np.argsort(centred[:, related.argmax()], kind="stable")


def reorder_table(train: Table, order: str, label: Any) -> tuple[Table, Any]:
    """Return the table in an order, with other labels if given, and its columns."""
    table = train if label is None else replace(train, label=label)
    table = rows_of(table, arrange(train, order, label))
    return table, columns_of(table)


def columns_of(table: Table) -> Any:
    """Return the columns but the constant, as a sketch is given them."""
    return table.X[:, 1:].astype(np.float32)


def stream(X: Any, y: Any, sketch: Sketch) -> tuple[Sketch, float]:
    """Return the sketch after ten updates, and the seconds of processor time they took."""
    start = time.process_time()
    for part in np.array_split(np.arange(len(y)), UPDATES):
        sketch.update(X[part[0] : part[-1] + 1], y[part[0] : part[-1] + 1])
    return sketch, time.process_time() - start


def judge(p: Any, truth: Any) -> tuple[float, float]:
    """Return log loss and accuracy of probabilities."""
    p = np.maximum(p, LEAST)
    loss = float(-np.mean(np.log(p[np.arange(len(p)), truth])))
    return loss, float(np.mean(p.argmax(axis=1) == truth))


def from_moments(sketch: Sketch, model: str, test: Table) -> tuple[float, float]:
    """Return loss and measure of an exact model of everything seen."""
    if model == "pca":
        found = sketch.moments.pca(COMPONENTS)
        mean = np.array(list(sketch.moments.mean.values()))
        left = variance_outside(found.components.T, mean, test.X[:, 1:])
        return left, left
    penalty = RIDGE * sketch.seen if model == "ridge" else 0.0
    kind = "ridge" if model == "ridge" else "least-squares"
    answer = sketch.linear_model(kind=kind, ridge=penalty).predict(columns_of(test))
    loss = float(np.mean((test.y - np.ravel(answer)) ** 2))
    return loss, 1 - loss / float(test.y.var())


def is_missing(done: set[Any], order: str, size: int, seed: int, source: str, model: str) -> bool:
    """Return whether there is no record of a model from somewhere."""
    return (order, source, str(size), str(seed), model) not in done


def measure(
    train: Table, test: Table, order: str, size: int, seed: int, missing: Callable[[str, str], bool]
) -> Iterator[Any]:
    """Yield where a model came from, its name, its loss and measure, and seconds of the updates."""
    if order != "class" and missing("target rows", "pca"):
        table, X = reorder_table(train, order, None)
        for source, (policy, scores, _) in ROWS.items():
            empty = Sketch(size, policy, scores=scores, **KEPT, seed=seed)
            sketch, seconds = stream(X, table.y, empty)
            kept = rows_of(table, sketch.index)
            for model, numbers in fitted_losses(kept, sketch.weight, test, NUMBER).items():
                yield f"{source} rows", model, numbers, seconds
                if source == "leverage":
                    yield "sketch", model, from_moments(sketch, model, test), seconds
    truth = labels(test, train)
    for model, label in labels(train, train).items():
        if not missing("followed", model):
            continue
        table, X = reorder_table(train, order, label)
        new = replace(test, label=truth[model])
        for source, (policy, _, scores) in ROWS.items():
            for glm in (None, "logistic"):
                where = {"leverage": "", "uniform": "uniform ", "target": None}[source]
                alone = glm is None and missing(f"{source} rows", model)
                if not alone and where is None:
                    continue
                empty = Sketch(size, policy, scores=scores, **KEPT, glm=glm, seed=seed)
                sketch, seconds = stream(X, table.label, empty)
                if alone:
                    kept = rows_of(table, sketch.index)
                    found = fitted_losses(kept, sketch.weight, new, ["logistic"])
                    yield f"{source} rows", model, found["logistic"], seconds
                if where is not None:
                    p = sketch.linear_model(kind="logistic").predict_proba(columns_of(new))
                    where += "sketch" if glm is None else "followed"
                    yield where, model, judge(p, new.label), seconds
