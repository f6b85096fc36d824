"""Tasks that all draw their rows from one data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.streams.datasets import Dataset, load_dataset
from olss.streams.stream import Stream
from olss.streams.stream_draws import draw, stratified, task_generator
from olss.streams.task import Task
from olss.util import checks

__all__ = ["DatasetTasks", "dataset_config", "dataset_of", "task_count", "with_rows"]

Array = NDArray[Any]
MOST_TASKS = 1_000_000
# Changes the inputs of task i, training and test alike.
Transform = Callable[[int, Array], Array]


@dataclass(frozen=True, eq=False)
class DatasetTasks:
    """How the tasks are drawn from the data set.

    Parameters
    ----------
    data : Dataset
        What to draw from.
    config : dict
        What the stream is, with the keys "train_rows", "test_rows" and "seed".
    names : list of str
        Name of each task.
    transform : callable or None
        Changes the inputs of a task.
    groups : list of tuple of int or None
        Classes of each task; None for all classes in all tasks.
    """

    data: Dataset
    config: dict[str, Any]
    names: list[str]
    transform: Transform | None = None
    groups: list[tuple[int, ...]] | None = None

    def stream(self) -> Stream:
        """Return the stream of the tasks."""
        classes = self.data.classes
        if self.groups is not None:
            classes = tuple(sorted(label for group in self.groups for label in group))
        return Stream(
            self.task,
            self.names,
            self.config,
            classes,
            self.held_out,
            self.data.class_names,
            self.data.scale,
        )

    def held_out(self, share: float, seed: int) -> Stream:
        """Return the stream for tuning.

        Rows are held out of the data set, not of each task: else the same picture, turned
        by another nine degrees, would be trained on in the next task.
        """
        config = {**self.config, "validation": {"share": share, "seed": seed}}
        return replace(self, data=self.data.hold_out(share, seed), config=config).stream()

    def task(self, number: int) -> Task:
        """Return task `number`."""
        data, seed = self.data, self.config["seed"]
        train = self._rows_of(data.y, number)
        test = self._rows_of(data.y_test, number)
        if size := self._size("train_rows", len(train), number):
            train = draw(train, size, task_generator(seed, "train rows", number))
        if size := self._size("test_rows", len(test), number):
            test = stratified(
                data.y_test[test], test, size, task_generator(seed, "test rows", number)
            )
        X, X_test = data.X[train], data.X_test[test]
        if self.transform is not None:
            X, X_test = self.transform(number, X), self.transform(number, X_test)
        classes = data.classes if self.groups is None else self.groups[number]
        y, y_test = data.y[train], data.y_test[test]
        return Task(self.names[number], X, y, X_test, y_test, classes, data.scale)

    def _rows_of(self, y: Array, number: int) -> NDArray[np.int64]:
        if self.groups is None:
            return np.arange(len(y))
        return np.flatnonzero(np.isin(y, self.groups[number]))

    def _size(self, name: str, present: int, number: int) -> int | None:
        wanted: int | None = self.config[name]
        if wanted is None or wanted <= present:
            return wanted
        if "validation" in self.config:  # what was held out may be missing
            return present
        raise InputError(
            f"{name} must be at most {present}, the rows of {self.names[number]}; found {wanted}."
        )


def dataset_of(dataset: str | Dataset) -> Dataset:
    """Return the data set itself, or the one of that name."""
    return dataset if isinstance(dataset, Dataset) else load_dataset(dataset)


def dataset_config(data: Dataset, given: str | Dataset) -> Any:
    """Return the name, or for rows of the user's own the name and what they hash to."""
    return given if isinstance(given, str) else {"name": data.name, "sha256": data.digest()}


def with_rows(
    config: dict[str, Any], train_rows: int | None, test_rows: int | None, seed: int
) -> dict[str, Any]:
    """Return the config with rows and seed, checked."""
    return {
        **config,
        "train_rows": None if train_rows is None else checks.whole("train_rows", train_rows),
        "test_rows": None if test_rows is None else checks.whole("test_rows", test_rows),
        "seed": checks.seed(seed),
    }


def task_count(tasks: Any) -> int:
    """Return a number of tasks; each has a name, so there is a most."""
    return checks.whole("tasks", tasks, most=MOST_TASKS)
