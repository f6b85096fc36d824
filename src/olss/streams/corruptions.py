"""Corruptions: label noise, outliers, imbalance and other defects of real streams.

Each function takes a stream and returns another. Only training rows change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.streams.stream import Stream, Task, sample_stratified, task_generator
from olss.util import checks

__all__ = ["imbalanced", "interleaved", "label_noise", "outliers", "returning", "unequal"]


def label_noise(stream: Stream, share: float = 0.1, seed: int = 0) -> Stream:
    """Give a fraction of each task's training rows a wrong label.

    The wrong label is uniform over the other classes of the task.

    Examples
    --------
    >>> from olss.streams import permuted
    >>> noisy = label_noise(permuted("digits", tasks=2, train_rows=200), share=0.2)
    >>> int((noisy[0].y != permuted("digits", tasks=2, train_rows=200)[0].y).sum())
    40
    >>> int(noisy[0].disturbed.sum())
    40
    """
    _check_classes(stream, "label_noise")
    options = _check_options(seed, share=share)
    return _add_step(label_noise, stream, options, partial(_add_label_noise, stream, **options))


def outliers(stream: Stream, share: float = 0.01, seed: int = 0) -> Stream:
    """Replace a fraction of each task's training inputs by noise; labels stay.

    Images become uniform noise over all grey levels; other numbers are normal with the mean of
    their column and ten times its standard deviation.
    """
    options = _check_options(seed, share=share)
    return _add_step(outliers, stream, options, partial(_add_outliers, stream, **options))


def imbalanced(stream: Stream, ratio: float = 10.0, seed: int = 0) -> Stream:
    """Make the classes of each task long-tailed (Cui et al. 2019).

    Of the K classes of a task, in a random order fixed for the stream, class k keeps a fraction of
    ratio**(-k / (K - 1)) of its rows: all of the first, one in `ratio` of the last.
    """
    _check_classes(stream, "imbalanced")
    options = _check_options(seed, ratio=ratio)
    return _add_step(imbalanced, stream, options, partial(_make_imbalanced, stream, **options))


def unequal(
    stream: Stream, ratio: float = 10.0, rows: Sequence[int] | None = None, seed: int = 0
) -> Stream:
    """Give tasks very different sizes.

    Parameters
    ----------
    stream : Stream
    ratio : float
        Largest to smallest; sizes fall geometrically, in random order.
    rows : sequence of int, optional
        Training rows of each task, instead of `ratio`.
    seed : int
        Seed of the order and of the rows that stay.

    Examples
    --------
    >>> from olss.streams import permuted
    >>> stream = unequal(permuted("digits", tasks=3), rows=[1000, 10, 100])
    >>> [len(task.X) for task in stream]
    [1000, 10, 100]
    """
    if rows is not None:
        rows = [checks.integer("rows: each", count) for count in rows]
        if len(rows) != len(stream):
            raise InputError(f"rows must hold {len(stream)} numbers, found {rows!r}.")
    options = {**_check_options(seed, ratio=ratio), "rows": rows}
    return _add_step(unequal, stream, options, partial(_resize, stream, **options))


def returning(stream: Stream, task: int = 0, at: int | None = None) -> Stream:
    """Repeat a task later in the stream, as a further task with the same rows.

    Parameters
    ----------
    stream : Stream
    task : int
        Index of the task.
    at : int, optional
        Index of the repetition, after `task`; the end by default.

    Examples
    --------
    >>> from olss.streams import rotated
    >>> returning(rotated("digits", tasks=3)).names
    ('0 degrees', '90 degrees', '180 degrees', '0 degrees again')
    """
    last = len(stream)
    task = checks.integer("task", task, minimum=0)
    at = last if at is None else checks.integer("at", at)
    if not task < at <= last:
        raise InputError(
            f"at must be after task and at most {last}, found task={task} and at={at}."
        )
    order = [*range(at), task, *range(at, last)]
    names = [*stream.names[:at], f"{stream.names[task]} again", *stream.names[at:]]
    make = partial(_reorder, stream, order, names)
    return _add_step(returning, stream, {"task": task, "at": at}, make, names)


def interleaved(stream: Stream, share: float = 1.0, seed: int = 0) -> Stream:
    """Blur task boundaries: rows arrive mixed with those of other tasks.

    Each training row moves, with probability `share`, to a uniformly random part of the stream.
    With 1 every part is a mixture of all tasks; with 0.1 each is mostly its own task. The test rows
    of part i are those of task i, so the accuracy on each task is still measured. Making one part
    makes every task of the stream once.

    Examples
    --------
    >>> from olss.streams import incremental
    >>> stream = interleaved(incremental("digits", tasks=5), share=1.0)
    >>> len(stream[0].classes)
    10
    """
    options = _check_options(seed, share=share)
    names = [f"part {number} ({name})" for number, name in enumerate(stream.names, start=1)]
    make = partial(_interleave, stream, names, **options)
    return _add_step(interleaved, stream, options, make, names)


def _check_options(
    seed: int, *, share: float | None = None, ratio: float | None = None
) -> dict[str, Any]:
    """Return the checked options of a corruption: the seed, and a share or a ratio."""
    if share is not None:
        options = {"share": checks.number("share", share, above=0, maximum=1)}
    else:
        options = {"ratio": checks.number("ratio", ratio, minimum=1)}
    return {**options, "seed": checks.seed(seed)}


def _add_step(
    function: Callable[..., Stream],
    stream: Stream,
    options: dict[str, Any],
    make: Callable[[int], Task],
    names: Sequence[str] | None = None,
) -> Stream:
    """Return the stream with one more step in its config."""
    config = stream.config
    config["steps"] = [*config.get("steps", []), {"name": function.__name__, **options}]
    return Stream(
        make, stream.names if names is None else names, config, stream.classes,
        partial(_hold_out, function, stream, options), stream.class_names, stream.scale,
    )  # fmt: skip


def _hold_out(
    function: Callable[..., Stream],
    stream: Stream,
    options: dict[str, Any],
    share: float,
    seed: int,
) -> Stream:
    """Return the stream for tuning: rows are held out before they could be corrupted."""
    return function(stream.validation(share, seed), **options)


def _add_label_noise(stream: Stream, number: int, share: float, seed: int) -> Task:
    task = stream[number]
    classes = np.asarray(task.classes)
    if len(classes) < 2:
        raise DataError(f"label_noise needs a second class in {task.name}, found one.")
    rng = task_generator(seed, "label noise", number)
    changed = _some_rows(len(task.y), share, rng)
    y = task.y.copy()
    # A step of 1 to K - 1 around the circle of classes always ends at another class.
    steps = rng.integers(1, len(classes), size=len(changed))
    y[changed] = classes[(np.searchsorted(classes, y[changed]) + steps) % len(classes)]
    return replace(task, y=y, disturbed=_mark(task, changed))


def _add_outliers(stream: Stream, number: int, share: float, seed: int) -> Task:
    task = stream[number]
    rng = task_generator(seed, "outliers", number)
    changed = _some_rows(len(task.y), share, rng)
    X = task.X.copy()
    shape = X[changed].shape
    if X.dtype == np.uint8:
        top = int(task.scale) if task.scale >= X.max() else 255
        X[changed] = rng.integers(0, top + 1, size=shape)
    else:
        spread = 10 * X.std(axis=0)
        X[changed] = X.mean(axis=0) + spread * rng.standard_normal(shape)
    return replace(task, X=X, disturbed=_mark(task, changed))


def _make_imbalanced(stream: Stream, number: int, ratio: float, seed: int) -> Task:
    task = stream[number]
    order = task_generator(seed, "imbalance").permutation(np.asarray(stream.classes))
    present = [label for label in order if label in (task.classes or ())]
    rng = task_generator(seed, "imbalance", number + 1)
    kept = []
    for place, label in enumerate(present):
        rows = np.flatnonzero(task.y == label)
        share = ratio ** (-place / max(1, len(present) - 1))
        size = min(len(rows), max(1, round(share * len(rows))))
        kept.append(rng.permutation(rows)[:size])
    return _keep_rows(task, np.sort(np.concatenate(kept)))


def _resize(stream: Stream, number: int, ratio: float, rows: list[int] | None, seed: int) -> Task:
    task = stream[number]
    if rows is None:
        place = task_generator(seed, "sizes").permutation(len(stream))[number]
        share = ratio ** (-place / max(1, len(stream) - 1))
        size = max(1, round(share * len(task.y)))
    else:
        size = rows[number]
    if size > len(task.y):
        raise InputError(f"rows must be at most {len(task.y)} for {task.name}, found {size}.")
    strata = None if task.classes is None else task.y
    rng = task_generator(seed, "sizes", number + 1)
    return _keep_rows(task, sample_stratified(strata, np.arange(len(task.y)), size, rng))


def _reorder(stream: Stream, order: list[int], names: Sequence[str], number: int) -> Task:
    return replace(stream[order[number]], name=names[number])


def _interleave(stream: Stream, names: Sequence[str], number: int, share: float, seed: int) -> Task:
    arriving, home = [], None
    for origin, task in enumerate(stream):
        rng = task_generator(seed, "interleaving", origin)
        leaves = rng.random(len(task.y)) < share
        parts = np.where(leaves, rng.integers(len(stream), size=len(task.y)), origin)
        arriving.append(_keep_rows(task, np.flatnonzero(parts == number)))
        home = task if origin == number else home
    assert home is not None
    X = np.concatenate([task.X for task in arriving])
    y = np.concatenate([task.y for task in arriving])
    marks = np.concatenate([_mark(task, np.empty(0, np.int64)) for task in arriving])
    order = task_generator(seed, "interleaving", len(stream) + number).permutation(len(y))
    classes = None if home.classes is None else tuple(np.union1d(y, home.y_test).tolist())
    disturbed = marks[order] if marks.any() else None
    mixed = replace(home, X=X[order], y=y[order], disturbed=disturbed)
    return replace(mixed, name=names[number], classes=classes)


def _some_rows(rows: int, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.permutation(rows)[: round(share * rows)])


def _mark(task: Task, changed: NDArray[np.int64]) -> NDArray[np.bool_]:
    marks = np.zeros(len(task.y), bool) if task.disturbed is None else task.disturbed.copy()
    marks[changed] = True
    return marks


def _keep_rows(task: Task, rows: NDArray[np.int64]) -> Task:
    """Return the task with these training rows."""
    marks = None if task.disturbed is None else task.disturbed[rows]
    return replace(task, X=task.X[rows], y=task.y[rows], disturbed=marks)


def _check_classes(stream: Stream, name: str) -> None:
    if stream.classes is None:
        raise InputError(f"{name} needs class labels; this stream has a numeric target.")
