"""Tasks made of a user's own rows: checks, labels, padding, the split into train and test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.streams.stream import Stream
from olss.streams.stream_draws import stratified, task_generator
from olss.streams.task import Task
from olss.util import checks

__all__ = ["LabelCodes", "TaskRows", "own_stream"]

Array = NDArray[Any]


class TaskRows(NamedTuple):
    """Rows of one task as they came: test rows may be given or not."""

    X: Array
    y: Array
    X_test: Array | None = None
    y_test: Array | None = None

    def targets(self) -> list[Array]:
        """Return the targets there are."""
        return [self.y] if self.y_test is None else [self.y, self.y_test]


@dataclass(frozen=True)
class LabelCodes:
    """How labels become whole numbers, the same in all tasks.

    Whole numbers from 0 to 2**63 - 1 stay as they are. Anything else (text, booleans, negative
    or larger numbers) is numbered 0, 1, ... in sorted order, and `names` says what was what.
    """

    codes: dict[Any, int]
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, targets: Iterable[Array]) -> LabelCodes:
        """Return the codes of the targets of all tasks."""
        kinds, found = set(), set()
        for y in targets:
            kinds.add({"U": "text", "b": "truth"}.get(y.dtype.kind, "numbers"))
            found.update(np.unique(y).tolist())
        if "text" in kinds and len(kinds) > 1:
            raise DataError("y holds text in some tasks and numbers in others; use one kind.")
        values = sorted(found)
        if not values:
            raise DataError("there are no rows, so there are no labels.")
        if kinds == {"numbers"} and values[0] >= 0 and values[-1] < 2**63:
            return cls({value: int(value) for value in values})
        codes = {value: code for code, value in enumerate(values)}
        return cls(codes, tuple(map(str, values)))

    @property
    def classes(self) -> tuple[int, ...]:
        """The labels as whole numbers, sorted."""
        return tuple(self.codes.values())

    def encode(self, y: Array, where: str = "y") -> NDArray[np.int64]:
        """Return the labels as whole numbers."""
        values, places = np.unique(y, return_inverse=True)
        unknown = [value for value in values.tolist() if value not in self.codes]
        if unknown:
            raise DataError(
                f"{where} has the label {unknown[0]!r}, which was not there when the stream was "
                "made: the data have changed since. Make the stream again."
            )
        codes = [self.codes[value] for value in values.tolist()]
        return np.array(codes, np.int64)[places.reshape(y.shape)]


def target_kind(kind: str, targets: Sequence[Array]) -> str:
    """Return "classes" or "values": as asked for, or as the targets look."""
    checks.known_name("kind", kind, ("auto", "classes", "values"))
    discrete = all(y.dtype.kind in "iubU" and y.ndim == 1 for y in targets)
    if kind == "auto":
        return "classes" if discrete else "values"
    whole = all(y.ndim == 1 and (y.dtype.kind in "iubU" or _are_whole(y)) for y in targets)
    if kind == "classes" and not whole:
        raise DataError("kind='classes' needs one label a row, found fractions or columns.")
    return kind


def _are_whole(y: Array) -> bool:
    return y.dtype.kind == "f" and bool(np.isfinite(y).all() and (y == np.floor(y)).all())


def own_stream(
    load: Callable[[int], TaskRows],
    names: Sequence[str],
    config: dict[str, Any],
    shapes: Sequence[tuple[int, ...]],
    targets: Sequence[Array],
) -> Stream:
    """Return the stream of tasks that `load` reads.

    Parameters
    ----------
    load : callable
        Reads the rows of task i.
    names : sequence of str
        Name of each task.
    config : dict
        What the stream is, with the keys "test", "kind", "pad", "scale" and "seed".
    shapes : sequence of tuple
        Shape of a row of X, for each task.
    targets : sequence of arrays
        The targets of all tasks, to know the labels of the stream from the start.
    """
    checks.seed(config["seed"])
    checks.number("test", config["test"], above=0, most=0.9)
    if config["scale"] is not None:
        checks.number("scale", config["scale"], above=0)
    if not names:
        raise DataError("there are no rows, so there is no task.")
    config = {**config, "kind": target_kind(config["kind"], targets)}
    labels = LabelCodes.of(targets) if config["kind"] == "classes" else None
    width = _width(shapes, names, config["pad"])
    outputs = [y.shape[1] for y in targets if y.ndim == 2]
    padded = max(outputs) if config["pad"] and outputs else None
    return OwnTasks(load, names, config, labels, width, padded).stream()


def _width(shapes: Sequence[tuple[int, ...]], names: Sequence[str], pad: bool | int) -> int | None:
    """Return the number of columns to fill up to, or None when rows stay as they are."""
    if pad is not False and any(len(shape) != 1 for shape in shapes):
        raise InputError("pad fills columns of tables; rows of several axes cannot be padded.")
    if pad is True:
        return max(shape[0] for shape in shapes)
    if pad is not False:
        return checks.whole("pad", pad, more=", True or False")
    for shape, name in zip(shapes, names, strict=True):
        if shape != shapes[0]:
            raise DataError(
                f"{name} has rows of shape {shape}, {names[0]} of {shapes[0]}; pass pad=True to "
                "fill columns with zeros."
            )
    return None


@dataclass(frozen=True, eq=False)
class OwnTasks:
    """How tasks are made of the rows that `load` reads; see `own_stream`."""

    load: Callable[[int], TaskRows]
    names: Sequence[str]
    config: dict[str, Any]
    labels: LabelCodes | None
    width: int | None
    outputs: int | None

    def stream(self) -> Stream:
        """Return the stream of the tasks."""
        tuning = "validation" in self.config
        scale = self.config["scale"]
        return Stream(
            self.tuning_task if tuning else self.task,
            self.names,
            self.config,
            None if self.labels is None else self.labels.classes,
            self.held_out,
            None if self.labels is None else self.labels.names,
            self.task(0).scale if scale is None else scale,
        )

    def held_out(self, share: float, seed: int) -> Stream:
        """Return the stream for tuning."""
        config = {**self.config, "validation": {"share": share, "seed": seed}}
        return replace(self, config=config).stream()

    def task(self, number: int) -> Task:
        """Return task `number`, read now."""
        rows = self.load(number)
        where = self.names[number]
        X, y = self._checked(rows.X, rows.y, where)
        if rows.X_test is None or rows.y_test is None:
            rng = task_generator(self.config["seed"], "split", number)
            kept, held = self._split(y, self.config["test"], rng, where)
            X, y, X_test, y_test = X[kept], y[kept], X[held], y[held]
        else:
            X_test, y_test = self._checked(rows.X_test, rows.y_test, f"{where} (test)")
        if X.shape[1:] != X_test.shape[1:]:
            raise DataError(
                f"{where}: X and X_test must have rows of one shape, found {X.shape[1:]} and "
                f"{X_test.shape[1:]}."
            )
        classes = None if self.labels is None else tuple(np.union1d(y, y_test).tolist())
        scale = self.config["scale"]
        if scale is None:
            scale = 255.0 if X.dtype == np.uint8 else 1.0
        return Task(where, X, y, X_test, y_test, classes, scale)

    def tuning_task(self, number: int) -> Task:
        """Return task `number` with held-out training rows in place of the test rows."""
        task, how = self.task(number), self.config["validation"]
        rng = task_generator(how["seed"], "validation", number)
        kept, held = self._split(task.y, how["share"], rng, task.name)
        X, y = task.X, task.y
        return replace(task, X=X[kept], y=y[kept], X_test=X[held], y_test=y[held])

    def _split(
        self, y: Array, share: float, rng: np.random.Generator, where: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows kept and the rows held out, by class where there are classes."""
        if len(y) < 2:
            raise DataError(f"{where} has {len(y)} row: a split into two parts needs at least 2.")
        rows = np.arange(len(y))
        size = min(max(1, round(share * len(y))), len(y) - 1)
        held = stratified(None if self.labels is None else y, rows, size, rng)
        return np.delete(rows, held), held

    def _checked(self, X: Array, y: Array, where: str) -> tuple[Array, Array]:
        """Return inputs and targets that can be used, or say why they cannot."""
        if X.ndim < 2:
            raise DataError(f"{where}: X must have rows and columns, found shape {X.shape}.")
        if y.ndim == 0 or len(X) != len(y):
            raise DataError(
                f"{where}: y must have an entry for each of the {len(X)} rows of X, found shape "
                f"{y.shape}."
            )
        if X.size == 0:
            raise DataError(f"{where} has no rows, or rows without numbers: shape {X.shape}.")
        X = _padded(_numbers(X, "X", where), self.width, "X", where)
        if self.labels is not None:
            return X, self.labels.encode(y, where)
        return X, _padded(_numbers(y, "y", where).astype(float), self.outputs, "y", where)


def _numbers(values: Array, name: str, where: str) -> Array:
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: {name} must hold numbers, found {values.dtype}; encode it.")
    if values.dtype.itemsize > 8:
        raise DataError(
            f"{where}: {name} must hold numbers of 64 bits at most, found {values.dtype}; give "
            f"{name}.astype(float)."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        raise DataError(
            f"{where}: {name} is not finite in {len(bad)} rows, the first is row {bad[0]}; fill or "
            "drop missing values first."
        )
    return values


def _padded(values: Array, width: int | None, name: str, where: str) -> Array:
    if width is None or values.shape[1:] == (width,):
        return values
    if values.ndim != 2 or values.shape[1] > width:
        raise DataError(
            f"{where}: {name} has rows of shape {values.shape[1:]}, which cannot be filled up to "
            f"{width} columns."
        )
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))
