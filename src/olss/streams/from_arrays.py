"""Streams of a user's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.row_blocks import dense_array, to_numpy
from olss.errors import DataError, InputError
from olss.streams.content_hash import sha256
from olss.streams.own_rows import TaskRows, own_stream
from olss.streams.stream import Stream

__all__ = ["from_arrays"]


def from_arrays(
    data: Any,
    y: Any = None,
    *,
    by: Any = None,
    test: float = 0.2,
    names: Sequence[str] | None = None,
    kind: str = "auto",
    pad: bool | int = False,
    scale: float | None = None,
    seed: int = 0,
) -> Stream:
    """Return a stream of arrays: a list of (X, y), one a task, or one X split by a column.

    Parameters
    ----------
    data : list of tuples, or array (n, ...)
        ``[(X, y), ...]`` or ``[(X, y, X_test, y_test), ...]``; or one array, with `y` and `by`.
        Anything NumPy can read: tensors and data frames of numbers too.
    y : array (n,) or (n, outputs), optional
        Targets, when `data` is one array.
    by : array (n,), optional
        The task of each row (a date, a site), when `data` is one array. Tasks come in
        sorted order; rows keep theirs.
    test : float
        Share of rows to set aside for testing where no test rows are given, the same share
        of each class.
    names : sequence of str, optional
        Names of the tasks.
    kind : {"auto", "classes", "values"}
        Whether y holds labels or real targets. "auto": whole numbers, booleans and text are
        labels, fractions and several columns are real targets.
    pad : bool or int
        Tasks may have different numbers of columns; fill them with zeros up to the largest
        (True) or up to this many, so that later tasks can have more.
    scale : float, optional
        What a network should divide inputs by; 255 for uint8 and 1 otherwise by default.
    seed : int
        Seed of the split.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(90, 4)), np.repeat(["Bern", "Oslo", "Rome"], 30)
    >>> stream = from_arrays(X, X[:, 0] > 0, by=site)
    >>> [task.name for task in stream], stream.class_names
    (['Bern', 'Oslo', 'Rome'], ('False', 'True'))
    >>> from_arrays([(X[:50], X[:50, 0]), (X[50:], X[50:, 0])])[1]
    Task('task 2', 32 training and 8 test rows of shape (4,), real targets)
    """
    if isinstance(names, str):
        raise InputError(f"names must hold a name for each task, found the one text {names!r}.")
    parts, found_names = _from_list(data) if y is None else _from_columns(data, y, by)
    names = found_names if names is None else [str(name) for name in names]
    if len(names) != len(parts):
        raise InputError(f"names must hold {len(parts)} names, found {len(names)}.")
    config = {
        "name": "arrays",
        "tasks": len(parts),
        "test": test,
        "kind": kind,
        "pad": pad,
        "scale": scale,
        "seed": seed,
        "sha256": sha256(*(part for rows in parts for part in rows)),
    }
    shapes = [rows.X.shape[1:] for rows in parts]
    targets = [y for rows in parts for y in rows.targets()]
    return own_stream(parts.__getitem__, names, config, shapes, targets)


def _from_list(data: Any) -> tuple[list[TaskRows], list[str]]:
    if not isinstance(data, (list, tuple)) or not data:
        raise InputError(
            "from_arrays takes a list of (X, y), or X with y= and by=; found "
            f"{type(data).__name__} without y."
        )
    parts = []
    for number, part in enumerate(data, start=1):
        if not isinstance(part, (list, tuple)) or len(part) not in (2, 4):
            raise InputError(f"task {number} must be (X, y) or (X, y, X_test, y_test).")
        told = (f"task {number}: {name}" for name in TaskRows._fields)
        parts.append(TaskRows(*map(_array, part, told)))
    return parts, [f"task {number}" for number in range(1, len(parts) + 1)]


def _from_columns(data: Any, y: Any, by: Any) -> tuple[list[TaskRows], list[str]]:
    if by is None:
        raise InputError("by must say the task of each row when X and y are given, found None.")
    X, y, by = _array(data, "X"), _array(y, "y"), _array(by, "by")
    rows = {array.shape[:1] for array in (X, y, by)}
    if len(rows) != 1 or by.ndim != 1:
        raise DataError(
            f"X, y and by must have a row each, found shapes {X.shape}, {y.shape}, {by.shape}."
        )
    if by.dtype.kind in "fmM" and not (by == by).all():
        raise DataError("by has missing values (NaN); such rows belong to no task: drop them.")
    values = np.unique(by)
    parts = [TaskRows(X[by == value], y[by == value]) for value in values]
    return parts, [str(value) for value in values]


def _array(values: Any, name: str) -> NDArray[Any]:
    """Return what was given as an array of numbers, text or times, or say why it is none."""
    array = to_numpy(dense_array(values, name))
    return array if array.dtype.kind != "O" else _of_objects(array, name)


def _of_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return objects as what they are: data frames give text as such."""
    entries = array.ravel().tolist()
    if any(entry is None or (isinstance(entry, float) and entry != entry) for entry in entries):
        raise DataError(f"{name} has missing values (None or NaN); fill or drop them first.")
    for kinds, dtype in (
        (str, np.str_),
        (bool, np.bool_),
        (int, np.int64),
        ((int, float), np.float64),
        (date, np.str_),
    ):
        if all(isinstance(entry, kinds) for entry in entries):
            try:
                return array.astype(dtype)
            except OverflowError as error:
                raise DataError(f"{name} holds numbers of more than 64 bits: {error}.") from error
    found = sorted({type(entry).__name__ for entry in entries})
    raise DataError(f"{name} must hold numbers or text, found {', '.join(found)}.")
