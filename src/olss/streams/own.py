"""Tasks made of a user's own rows: checks, labels, padding, the split into train and test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.streams.drawing import check_seed, check_share, generator, stratified
from olss.streams.stream import Stream
from olss.streams.task import Task

__all__ = ["Labels", "Rows", "own_stream", "target_kind"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one task as they came: test rows may be given or not."""

    X: Array
    y: Array
    X_test: Array | None = None
    y_test: Array | None = None

    def targets(self) -> list[Array]:
        """Return the targets there are."""
        return [self.y] if self.y_test is None else [self.y, self.y_test]


@dataclass(frozen=True)
class Labels:
    """How labels become whole numbers, the same in all tasks.

    Whole numbers from 0 up stay as they are. Anything else (text, booleans, negative
    numbers) is numbered 0, 1, ... in sorted order, and `names` says what was what.
    """

    classes: tuple[int, ...]
    names: tuple[str, ...] | None = None
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, targets: Iterable[Array]) -> Labels:
        """Look at the targets of all tasks."""
        found = np.unique(np.concatenate([np.unique(y) for y in targets]))
        if found.dtype.kind in "iu" and found[0] >= 0:
            return cls(tuple(found.tolist()))
        values = tuple(found.tolist())
        return cls(tuple(range(len(values))), tuple(map(str, values)), values)

    def encode(self, y: Array) -> NDArray[np.int64]:
        """Return the labels as whole numbers."""
        if not self.values:
            return y.astype(np.int64)
        return np.searchsorted(np.asarray(self.values), y).astype(np.int64)


def target_kind(target: str, targets: Sequence[Array]) -> str:
    """Return "classes" or "values": as asked for, or as the targets look."""
    if target not in ("auto", "classes", "values"):
        raise InputError(f"target must be 'auto', 'classes' or 'values', found {target!r}.")
    classes = all(y.dtype.kind in "iubUSO" and y.ndim == 1 for y in targets)
    if target == "auto":
        return "classes" if classes else "values"
    if target == "classes" and not classes:
        whole = all(y.ndim == 1 and np.all(y == np.floor(y)) for y in targets)
        if not whole:
            raise DataError("target='classes' needs one label a row, found fractions or columns.")
    return target


def own_stream(
    load: Callable[[int], Rows],
    names: Sequence[str],
    config: dict[str, Any],
    labels: Labels | None,
    *,
    width: int | None,
    outputs: int | None,
    scale: float | None,
) -> Stream:
    """Make the stream of tasks that `load` reads.

    Parameters
    ----------
    load : callable
        Reads the rows of task i.
    names : sequence of str
        Name of each task.
    config : dict
        With the keys "test" (share) and "seed".
    labels : Labels or None
        None for real targets.
    width, outputs : int or None
        Fill inputs and real targets with columns of zeros up to this many.
    scale : float or None
        None: 255 for uint8, else 1.
    """
    check_seed(config["seed"])
    check_share("test", config["test"], most=0.9)
    make = partial(_make, load, names, config, labels, width, outputs, scale)
    if scale is None:
        scale = make(0).scale
    return Stream(
        make,
        names,
        config,
        None if labels is None else labels.classes,
        partial(_held_out, make, names, config, labels, scale),
        None if labels is None else labels.names,
        scale,
    )


def _make(
    load: Callable[[int], Rows],
    names: Sequence[str],
    config: dict[str, Any],
    labels: Labels | None,
    width: int | None,
    outputs: int | None,
    scale: float | None,
    number: int,
) -> Task:
    rows = load(number)
    where = names[number]
    X, y = _checked(rows.X, rows.y, labels, width, outputs, where)
    if rows.X_test is None or rows.y_test is None:
        rng = generator(config["seed"], "split", number)
        kept, held = _split(y, labels, config["test"], rng, where)
        X, y, X_test, y_test = X[kept], y[kept], X[held], y[held]
    else:
        X_test, y_test = _checked(
            rows.X_test, rows.y_test, labels, width, outputs, f"{where} (test)"
        )
    if X.shape[1:] != X_test.shape[1:]:
        raise DataError(
            f"{where}: X and X_test must have rows of one shape, found {X.shape[1:]} and "
            f"{X_test.shape[1:]}."
        )
    classes = None
    if labels is not None:
        classes = tuple(np.union1d(y, y_test).tolist())
    if scale is None:
        scale = 255.0 if X.dtype == np.uint8 else 1.0
    return Task(where, X, y, X_test, y_test, classes, scale)


def _held_out(
    make: Callable[[int], Task],
    names: Sequence[str],
    config: dict[str, Any],
    labels: Labels | None,
    scale: float,
    share: float,
    seed: int,
) -> Stream:
    def no_second(share: float, seed: int) -> Stream:
        raise InputError("validation was asked for twice: this stream is one for tuning.")

    return Stream(
        partial(_tuning_task, make, labels, share, seed),
        names,
        {**config, "validation": {"share": share, "seed": seed}},
        None if labels is None else labels.classes,
        no_second,
        None if labels is None else labels.names,
        scale,
    )


def _tuning_task(
    make: Callable[[int], Task], labels: Labels | None, share: float, seed: int, number: int
) -> Task:
    task = make(number)
    rng = generator(seed, "validation", number)
    kept, held = _split(task.y, labels, share, rng, task.name)
    return replace(task, X=task.X[kept], y=task.y[kept], X_test=task.X[held], y_test=task.y[held])


def _split(
    y: Array, labels: Labels | None, share: float, rng: np.random.Generator, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows kept and the rows held out, by class where there are classes."""
    if len(y) < 2:
        raise DataError(f"{where} has {len(y)} row: a split into two parts needs at least 2.")
    rows = np.arange(len(y))
    size = min(max(1, round(share * len(y))), len(y) - 1)
    held = stratified(None if labels is None else y, rows, size, rng)
    return np.delete(rows, held), held


def _checked(
    X: Array, y: Array, labels: Labels | None, width: int | None, outputs: int | None, where: str
) -> tuple[Array, Array]:
    """Return inputs and targets that can be used, or say why they cannot."""
    if X.ndim < 2:
        raise DataError(f"{where}: X must have rows and columns, found shape {X.shape}.")
    if len(X) != len(y):
        raise DataError(f"{where}: X has {len(X)} rows and y {len(y)}; they must be equal.")
    if len(X) == 0:
        raise DataError(f"{where} has no rows.")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{where}: X must hold numbers, found {X.dtype}; encode text first.")
    _check_finite(X, "X", where)
    X = _padded(X, width, "X", where)
    if labels is not None:
        return X, labels.encode(y)
    if y.dtype.kind not in "fiub":
        raise DataError(f"{where}: y must hold numbers, found {y.dtype}.")
    _check_finite(y, "y", where)
    return X, _padded(y.astype(np.float64), outputs, "y", where) if y.ndim > 1 else y.astype(float)


def _check_finite(values: Array, name: str, where: str) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
        raise DataError(
            f"{where}: {name} is not finite in row {bad}; fill or drop missing values first."
        )


def _padded(values: Array, width: int | None, name: str, where: str) -> Array:
    if width is None or values.shape[1:] == (width,):
        return values
    if values.ndim != 2 or values.shape[1] > width:
        raise DataError(
            f"{where}: {name} has rows of shape {values.shape[1:]}, which cannot be filled up to "
            f"{width} columns."
        )
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))
