"""Tasks of disjoint groups of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from olss.errors import InputError
from olss.streams.dataset_tasks import (
    DatasetTasks,
    dataset_config,
    dataset_of,
    task_count,
    with_rows,
)
from olss.streams.datasets import Dataset
from olss.streams.stream import Stream
from olss.streams.stream_draws import task_generator
from olss.util import checks

__all__ = ["incremental"]


def incremental(
    dataset: str | Dataset = "cifar100",
    *,
    tasks: int | None = None,
    order: str | Sequence[int] | Sequence[Sequence[int]] = "seeded",
    train_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
) -> Stream:
    """Return tasks of disjoint groups of classes: each task brings classes never seen before.

    Labels stay those of the data set. Incremental CIFAR-100 is ``incremental("cifar100")``:
    20 tasks of 5 classes; with ``order="natural"`` the groups are those of GEM.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or rows of your own.
    tasks : int, optional
        How many; must divide the number of classes. By default 20 for 100 classes and one
        task for each two classes of fewer.
    order : {"seeded", "natural"}, sequence of int, or sequence of sequences
        Order of the classes: drawn with the seed, by label, or given. A sequence of groups
        says which classes each task has, of any number each.
    train_rows, test_rows : int, optional
        Rows of each task, drawn from its classes; all rows by default. Test rows are drawn
        with the same share of each class.
    seed : int
        Seed of class order and rows.

    Examples
    --------
    >>> stream = incremental("digits", tasks=5, seed=0)
    >>> [task.classes for task in stream]
    [(3, 4), (1, 5), (6, 7), (2, 9), (0, 8)]
    >>> incremental("digits", order=[[0, 1, 2], [3, 4]]).names
    ('classes 0 1 2', 'classes 3 4')
    """
    data = dataset_of(dataset)
    groups = _groups(data.classes, tasks, order, checks.seed(seed))
    config = {
        "name": "incremental",
        "dataset": dataset_config(data, dataset),
        "tasks": len(groups),
        "order": order if isinstance(order, str) else groups,
    }
    names = ["classes " + " ".join(map(str, group)) for group in groups]
    return DatasetTasks(
        data, with_rows(config, train_rows, test_rows, seed), names, groups=groups
    ).stream()


def _groups(
    classes: tuple[int, ...],
    tasks: int | None,
    order: str | Sequence[int] | Sequence[Sequence[int]],
    seed: int,
) -> list[tuple[int, ...]]:
    if isinstance(order, str):
        if order not in ("seeded", "natural"):
            raise InputError(f"order must be 'seeded', 'natural' or a list, found {order!r}.")
        shuffled = task_generator(seed, "class order").permutation(classes).tolist()
        given: list[Any] = shuffled if order == "seeded" else list(classes)
    else:
        given = _listed(order)
    if given and isinstance(given[0], Sequence | np.ndarray):
        groups = [tuple(sorted(map(_label, _listed(group)))) for group in given]
        if tasks is not None and tasks != len(groups):
            raise InputError(f"tasks must be {len(groups)}, the groups in order; found {tasks}.")
    else:
        if not given:
            raise InputError("order must name at least one class, found none.")
        size = len(given) // _tasks_dividing(len(given), tasks)
        starts = range(0, len(given), size)
        groups = [tuple(sorted(map(_label, given[start : start + size]))) for start in starts]
    _check_groups(groups, classes)
    return groups


def _listed(order: Any) -> list[Any]:
    if isinstance(order, str) or not isinstance(order, Sequence | np.ndarray):
        raise InputError(f"order must hold classes or groups of classes, found {order!r}.")
    return list(order)


def _label(label: Any) -> int:
    return checks.whole("order: a class", label, least=0)


def _tasks_dividing(classes: int, tasks: int | None) -> int:
    if tasks is None:
        tasks = 20 if classes == 100 else max(1, classes // 2)
    if task_count(tasks) > classes or classes % tasks:
        fitting = [n for n in range(1, classes + 1) if classes % n == 0]
        raise InputError(
            f"tasks must divide the {classes} classes evenly ({', '.join(map(str, fitting))}), "
            f"found {tasks}; for groups of different sizes give them as order=[[..], [..]]."
        )
    return tasks


def _check_groups(groups: list[tuple[int, ...]], classes: tuple[int, ...]) -> None:
    labels = [label for group in groups for label in group]
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise InputError(f"order names the class {unknown[0]}, which the data set has not.")
    if len(set(labels)) < len(labels) or not all(groups):
        raise InputError("order must name each class at most once and no empty group.")
