"""Tasks that all draw their rows from one data set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.streams.datasets import Dataset, load_dataset
from olss.streams.drawing import draw, generator, stratified
from olss.streams.stream import Stream
from olss.streams.task import Task

__all__ = ["check_count", "dataset_config", "dataset_of", "over", "with_rows"]

Array = NDArray[Any]
# Changes the inputs of task i, training and test alike.
Transform = Callable[[int, Array], Array]


def over(
    data: Dataset,
    config: dict[str, Any],
    names: list[str],
    transform: Transform | None,
    groups: list[tuple[int, ...]] | None = None,
) -> Stream:
    """Make the stream of tasks that all draw their rows from one data set."""
    classes = data.classes if groups is None else tuple(sorted(sum(groups, ())))
    return Stream(
        partial(_task, data, config, names, transform, groups),
        names,
        config,
        classes,
        partial(_held_out, data, config, names, transform, groups),
        data.class_names,
        data.scale,
    )


def _held_out(
    data: Dataset,
    config: dict[str, Any],
    names: list[str],
    transform: Transform | None,
    groups: list[tuple[int, ...]] | None,
    share: float,
    seed: int,
) -> Stream:
    # Held out of the data set, not of each task: else the same picture, turned by another
    # nine degrees, would be trained on in the next task.
    tuning = {**config, "validation": {"share": share, "seed": seed}}
    return over(data.hold_out(share, seed), tuning, names, transform, groups)


def _task(
    data: Dataset,
    config: dict[str, Any],
    names: list[str],
    transform: Transform | None,
    groups: list[tuple[int, ...]] | None,
    number: int,
) -> Task:
    classes = data.classes if groups is None else groups[number]
    train = _pool(data.y, classes, groups is None)
    test = _pool(data.y_test, classes, groups is None)
    if (size := config["train_rows"]) is not None:
        _check_enough("train_rows", size, len(train), names[number])
        train = draw(train, size, generator(config["seed"], "train rows", number))
    if (size := config["test_rows"]) is not None:
        _check_enough("test_rows", size, len(test), names[number])
        rng = generator(config["seed"], "test rows", number)
        test = stratified(data.y_test[test], test, size, rng)
    X, X_test = data.X[train], data.X_test[test]
    if transform is not None:
        X, X_test = transform(number, X), transform(number, X_test)
    return Task(names[number], X, data.y[train], X_test, data.y_test[test], classes, data.scale)


def _pool(y: Array, classes: tuple[int, ...], everything: bool) -> NDArray[np.int64]:
    return np.arange(len(y)) if everything else np.flatnonzero(np.isin(y, classes))


def dataset_of(dataset: str | Dataset) -> Dataset:
    """Return the data set itself, or the one of that name."""
    return dataset if isinstance(dataset, Dataset) else load_dataset(dataset)


def dataset_config(data: Dataset, given: str | Dataset) -> Any:
    """Return the name, or for rows of the user's own the name and what they hash to."""
    return given if isinstance(given, str) else {"name": data.name, "sha256": data.digest()}


def with_rows(
    config: dict[str, Any],
    data: Dataset,
    train_rows: int | None,
    test_rows: int | None,
    seed: int,
) -> dict[str, Any]:
    """Return the config with rows and seed, checked."""
    for name, rows, most in (
        ("train_rows", train_rows, len(data.y)),
        ("test_rows", test_rows, len(data.y_test)),
    ):
        if rows is not None:
            _check_enough(name, check_count(name, rows), most, data.name)
    return {**config, "train_rows": train_rows, "test_rows": test_rows, "seed": seed}


def _check_enough(name: str, wanted: int, present: int, where: str) -> None:
    if wanted > present:
        raise InputError(f"{name} must be at most {present}, the rows of {where}; found {wanted}.")


def check_count(name: str, count: int) -> int:
    """Return a positive whole number as an int."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InputError(f"{name} must be a positive whole number, found {count!r}.")
    return int(count)
