"""Streams of your own arrays and files: a task for each, or for each value of a column."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import dense_array, to_numpy
from olss.errors import DataError, FormatError, InputError, OlssWarning
from olss.streams.stream import Stream, Task, hash_arrays, sample_stratified, task_generator
from olss.tables.class_labels import classify_target
from olss.tables.readers import survey
from olss.tables.schema import as_type, is_number, is_text, numpy_array, unify_schemas, value_type
from olss.tables.sources import Source, find
from olss.util import checks
from olss.util.files import ARRAY_FILE_ERRORS

__all__ = ["TaskRows", "from_arrays", "from_files", "make_stream"]

Array = NDArray[Any]
# Formats whose strings sort as time does.
PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}


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
    """Return a stream of arrays: a list of (X, y), one per task, or one X split by a column.

    Parameters
    ----------
    data : list of tuples, or array (n, ...)
        ``[(X, y), ...]`` or ``[(X, y, X_test, y_test), ...]``; or one array, with `y` and `by`.
        Anything NumPy can read, including tensors and numeric data frames.
    y : array (n,) or (n, outputs), optional
        Targets, when `data` is one array.
    by : array (n,), optional
        The task of each row (a date, a site), when `data` is one array. Tasks are sorted by this
        value; rows keep their order.
    test : float
        Fraction of rows held out for testing where no test rows are given, stratified by class.
    names : sequence of str, optional
        Names of the tasks.
    kind : {"auto", "classes", "values"}
        Whether y holds class labels or numbers to predict. "auto": strings, booleans and integers
        with few distinct values are labels; see `olss.tables.class_labels`.
    pad : bool or int
        Allow tasks with different numbers of columns: fill with zeros up to the widest task
        (True), or up to this many columns.
    scale : float, optional
        Divide inputs by this before a network sees them; 255 for uint8 and 1 otherwise by default.
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
    Task('task 2', 32 training and 8 test rows of shape (4,), numeric target)
    """
    if isinstance(names, str):
        raise InputError(f"names must be a list with a name per task, found {names!r}.")
    tasks, found_names = _split_list(data) if y is None else _split_by(data, y, by)
    names = found_names if names is None else [str(name) for name in names]
    if len(names) != len(tasks):
        raise InputError(f"names must hold {len(tasks)} names, one per task; found {len(names)}.")
    config = {"name": "arrays", "tasks": len(tasks), "test": test, "kind": kind, "pad": pad}
    hashed = hash_arrays(*(array for rows in tasks for array in rows))
    config |= {"scale": scale, "seed": seed, "sha256": hashed}
    shapes = [rows.X.shape[1:] for rows in tasks]
    targets = [target for rows in tasks for target in rows.targets()]
    return make_stream(tasks.__getitem__, names, config, shapes, targets)


class TaskRows(NamedTuple):
    """Rows of one task as given, with or without test rows."""

    X: Array
    y: Array
    X_test: Array | None = None
    y_test: Array | None = None

    def targets(self) -> list[Array]:
        """Return the targets of the training and, if given, test rows."""
        return [self.y] if self.y_test is None else [self.y, self.y_test]


def _split_list(data: Any) -> tuple[list[TaskRows], list[str]]:
    if not isinstance(data, (list, tuple)) or not data:
        raise InputError(
            "data must be a list of (X, y), or one X with y= and by=; found "
            f"{type(data).__name__} without y."
        )
    tasks = []
    for number, arrays in enumerate(data, start=1):
        if not isinstance(arrays, (list, tuple)) or len(arrays) not in (2, 4):
            raise InputError(f"data: task {number} must be (X, y) or (X, y, X_test, y_test).")
        names = (f"task {number}: {name}" for name in TaskRows._fields)
        tasks.append(TaskRows(*map(_to_array, arrays, names)))
    return tasks, [f"task {number}" for number in range(1, len(tasks) + 1)]


def _split_by(data: Any, y: Any, by: Any) -> tuple[list[TaskRows], list[str]]:
    for name, value in (("y", y), ("by", by)):
        if isinstance(value, str):
            raise InputError(
                f"{name} must hold a value for each row, found {value!r}. For a column of a data "
                f"frame pass frame[{value!r}], and as data the columns to learn from."
            )
    if by is None:
        raise InputError(
            "by must hold the task of each row when X and y are given, found None. If the data "
            "are divided into tasks already, pass a list of (X, y)."
        )
    X, y, by = _to_array(data, "X"), _to_array(y, "y"), _to_array(by, "by")
    if len({array.shape[:1] for array in (X, y, by)}) != 1 or by.ndim != 1:
        raise DataError(
            f"X, y and by must have the same number of rows and by one column, found shapes "
            f"{X.shape}, {y.shape}, {by.shape}."
        )
    if by.dtype.kind in "fmM" and not (by == by).all():
        raise DataError("by has missing values, so these rows belong to no task. Drop them.")
    values = np.unique(by)
    tasks = [TaskRows(X[by == value], y[by == value]) for value in values]
    return tasks, [str(value) for value in values]


def _to_array(values: Any, name: str) -> Array:
    """Return an array of numbers, strings or dates, also from the objects of a data frame."""
    array = to_numpy(dense_array(values, name))
    if array.dtype.kind != "O":
        return array
    entries = array.ravel().tolist()
    if any(entry is None or (isinstance(entry, float) and entry != entry) for entry in entries):
        raise DataError(f"{name} has missing values (None or NaN). Fill or drop them.")
    for types, dtype in (
        (str, np.str_),
        (bool, np.bool_),
        (int, np.int64),
        ((int, float), np.float64),
        (date, np.str_),
    ):
        if all(isinstance(entry, types) for entry in entries):
            try:
                return array.astype(dtype)
            except OverflowError as error:
                raise DataError(f"{name} holds integers of more than 64 bits: {error}.") from error
    found = sorted({type(entry).__name__ for entry in entries})
    raise DataError(
        f"{name} must hold only numbers or only strings, found {', '.join(found)}. Encode strings "
        "as numbers, or leave their columns out."
    )


@dataclass(frozen=True)
class LabelCodes:
    """Encode labels as integers, the same in all tasks.

    Integers from 0 to 2**63 - 1 stay as they are. Anything else (strings, booleans, negative or
    larger numbers) is numbered 0, 1, ... in sorted order, and `names` holds the labels as strings.
    """

    codes: dict[Any, int]
    names: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, targets: Iterable[Array]) -> LabelCodes:
        """Return the codes of the labels of all tasks."""
        kinds, found = set(), set()
        for y in targets:
            kinds.add({"U": "string", "b": "boolean"}.get(y.dtype.kind, "number"))
            found.update(np.unique(y).tolist())
        if "string" in kinds and len(kinds) > 1:
            raise DataError("y holds strings in some tasks and numbers in others; use one type.")
        values = sorted(found)
        if not values:
            raise DataError("y has no rows, so there are no labels.")
        if kinds == {"number"} and values[0] >= 0 and values[-1] < 2**63:
            return cls({value: int(value) for value in values})
        return cls({value: code for code, value in enumerate(values)}, tuple(map(str, values)))

    @property
    def classes(self) -> tuple[int, ...]:
        """The labels as integers, sorted."""
        return tuple(self.codes.values())

    def encode(self, y: Array, where: str = "y") -> NDArray[np.int64]:
        """Return the labels as integers."""
        values, places = np.unique(y, return_inverse=True)
        unknown = [value for value in values.tolist() if value not in self.codes]
        if unknown:
            raise DataError(
                f"{where} has the label {unknown[0]!r}, which was not there when the stream was "
                "made: the data have changed since. Make the stream again."
            )
        codes = [self.codes[value] for value in values.tolist()]
        return np.array(codes, np.int64)[places.reshape(y.shape)]


def make_stream(
    load: Callable[[int], TaskRows],
    names: Sequence[str],
    config: dict[str, Any],
    shapes: Sequence[tuple[int, ...]],
    targets: Sequence[Array],
) -> Stream:
    """Return the stream of the tasks that `load` reads.

    `shapes` are those of a row of X in each task; `targets` are those of all tasks, since the
    labels of a stream are known from the start.
    """
    checks.seed(config["seed"])
    checks.number("test", config["test"], above=0, maximum=0.9)
    if config["scale"] is not None:
        checks.number("scale", config["scale"], above=0)
    if not names:
        raise DataError("the data have no rows, so there is no task.")
    labels = LabelCodes.fit(targets) if _are_labels(config["kind"], targets) else None
    config = {**config, "kind": "values" if labels is None else "classes"}
    outputs = [y.shape[1] for y in targets if y.ndim == 2]
    padded = max(outputs) if config["pad"] and outputs else None
    width = _padded_width(shapes, names, config["pad"])
    return _TaskReader(load, names, config, labels, width, padded).stream()


def _are_labels(kind: str, targets: Sequence[Array]) -> bool:
    """Whether the targets are class labels: as asked for, or as they look."""
    checks.choice("kind", kind, ("auto", "classes", "values"))
    possible = all(y.ndim == 1 and _can_be_labels(y) for y in targets)
    if kind == "classes" and not possible:
        raise DataError("kind='classes' needs one label per row, found fractions or columns.")
    if kind != "auto" or not possible:
        return kind == "classes"
    y = np.concatenate(targets)
    verdict = classify_target(y)
    if verdict.note and y.dtype.kind != "f":
        warnings.warn(f"{verdict.note} Decide with kind=.", OlssWarning, stacklevel=4)
    return verdict.is_class


def _can_be_labels(y: Array) -> bool:
    whole = y.dtype.kind == "f" and bool((np.isfinite(y) & (y == np.floor(y))).all())
    return y.dtype.kind in "iubU" or whole


def _padded_width(
    shapes: Sequence[tuple[int, ...]], names: Sequence[str], pad: bool | int
) -> int | None:
    """Return the number of columns to pad to, or None when rows stay as they are."""
    if pad is not False and any(len(shape) != 1 for shape in shapes):
        raise InputError("pad fills columns of tables; rows with several axes cannot be padded.")
    if pad is True:
        return max(shape[0] for shape in shapes)
    if pad is not False:
        return checks.integer("pad", pad, alternative=", True or False")
    for shape, name in zip(shapes, names, strict=True):
        if shape != shapes[0]:
            raise DataError(
                f"{name} has rows of shape {shape}, {names[0]} of {shapes[0]}. Pass pad=True to "
                "fill missing columns with zeros."
            )
    return None


@dataclass(frozen=True, eq=False)
class _TaskReader:
    """How tasks are made of the rows that `load` reads; see `make_stream`."""

    load: Callable[[int], TaskRows]
    names: Sequence[str]
    config: dict[str, Any]
    labels: LabelCodes | None
    width: int | None
    outputs: int | None

    def stream(self) -> Stream:
        scale = self.config["scale"]
        return Stream(
            self.tuning_task if "validation" in self.config else self.task,
            self.names,
            self.config,
            None if self.labels is None else self.labels.classes,
            self.hold_out,
            None if self.labels is None else self.labels.names,
            self.task(0).scale if scale is None else scale,
        )

    def hold_out(self, share: float, seed: int) -> Stream:
        config = {**self.config, "validation": {"share": share, "seed": seed}}
        return replace(self, config=config).stream()

    def task(self, number: int) -> Task:
        """Read task `number`."""
        rows, where = self.load(number), self.names[number]
        X, y = self._check(rows.X, rows.y, where)
        if rows.X_test is None or rows.y_test is None:
            rng = task_generator(self.config["seed"], "split", number)
            kept, held = self._split(y, self.config["test"], rng, where)
            X, y, X_test, y_test = X[kept], y[kept], X[held], y[held]
        else:
            X_test, y_test = self._check(rows.X_test, rows.y_test, f"{where} (test)")
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
        """Read task `number`, with held-out training rows in place of the test rows."""
        task, options = self.task(number), self.config["validation"]
        rng = task_generator(options["seed"], "validation", number)
        kept, held = self._split(task.y, options["share"], rng, task.name)
        X, y = task.X, task.y
        return replace(task, X=X[kept], y=y[kept], X_test=X[held], y_test=y[held])

    def _split(
        self, y: Array, share: float, rng: np.random.Generator, where: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows kept and the rows held out, stratified by class if there are classes."""
        if len(y) < 2:
            raise DataError(f"{where} has {len(y)} row; a split needs at least 2.")
        rows = np.arange(len(y))
        size = min(max(1, round(share * len(y))), len(y) - 1)
        held = sample_stratified(None if self.labels is None else y, rows, size, rng)
        return np.delete(rows, held), held

    def _check(self, X: Array, y: Array, where: str) -> tuple[Array, Array]:
        """Return inputs and encoded targets, or raise `DataError`."""
        if X.ndim < 2 or X.size == 0:
            raise DataError(f"{where}: X must have rows and columns, found shape {X.shape}.")
        if y.ndim == 0 or len(X) != len(y):
            raise DataError(
                f"{where}: y must have one entry for each of the {len(X)} rows of X, found shape "
                f"{y.shape}."
            )
        X = _pad(_check_numbers(X, "X", where), self.width, "X", where)
        if self.labels is not None:
            return X, self.labels.encode(y, where)
        return X, _pad(_check_numbers(y, "y", where).astype(float), self.outputs, "y", where)


def _check_numbers(values: Array, name: str, where: str) -> Array:
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: {name} must hold numbers, found {values.dtype}. Encode it.")
    if values.dtype.itemsize > 8:
        raise DataError(
            f"{where}: {name} must hold numbers of at most 64 bits, found {values.dtype}. Pass "
            f"{name}.astype(float)."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        raise DataError(
            f"{where}: {name} is not finite in {len(bad)} rows, the first is row {bad[0]}. Fill or "
            "drop missing values."
        )
    return values


def _pad(values: Array, width: int | None, name: str, where: str) -> Array:
    if width is None or values.shape[1:] == (width,):
        return values
    if values.ndim != 2 or values.shape[1] > width:
        raise DataError(
            f"{where}: {name} has rows of shape {values.shape[1:]}, which cannot be padded to "
            f"{width} columns."
        )
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))


# ------------------------------------------------------------------ files


def from_files(
    paths: str | Path | Sequence[str | Path],
    target: str | Sequence[str] | None = None,
    *,
    by: str | None = None,
    every: str | None = None,
    features: Sequence[str] | None = None,
    test: float = 0.2,
    kind: str = "auto",
    pad: bool | int = False,
    scale: float | None = None,
    seed: int = 0,
    sha256: Sequence[str] | None = None,
) -> Stream:
    r"""Return a stream of files: a task for each file or for each value of a column.

    Reads Parquet, CSV and JSON lines (also .gz), Arrow/Feather, ORC, .npy with named columns, and
    .npz. Only the rows of the task asked for are kept in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders, globs or fsspec addresses, in the order of the tasks; the files of a folder
        or glob are sorted. npz files hold arrays X and y, and optionally X_test and y_test.
    target : str or sequence of str
        Column to predict, or several numeric ones. Not for npz.
    by : str, optional
        Column with the task of each row (a date, a site); the files are one table then. Tasks are
        sorted by this value.
    every : {"day", "week", "month", "year"}, optional
        With a date in `by`: a task for each period instead of each value.
    features : sequence of str, optional
        Columns to learn from; all others by default.
    test : float
        Fraction of rows held out for testing, stratified by class.
    kind, pad, scale, seed
        See `from_arrays`.
    sha256 : sequence of str, optional
        Hashes of the files, as in `Stream.config`; an error if a file has changed.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Path(folder.name, "visits.csv")
    >>> lines = [f"2024-0{m}-1{d},{d},{m * d},{'ill' if d > 4 else 'well'}"
    ...          for m in (1, 2, 3) for d in range(10)]
    >>> _ = table.write_text("\n".join(["day,age,dose,state", *lines]))
    >>> stream = from_files(table, "state", by="day", every="month")
    >>> for task in stream:
    ...     print(task)
    Task('2024-01', 8 training and 2 test rows of shape (2,), 2 classes)
    Task('2024-02', 8 training and 2 test rows of shape (2,), 2 classes)
    Task('2024-03', 8 training and 2 test rows of shape (2,), 2 classes)
    >>> folder.cleanup()
    """
    sources = _find_sources(paths)
    config = {
        "name": "files", "paths": [source.address for source in sources], "target": target,
        "by": by, "every": every, "features": features, "test": test, "kind": kind, "pad": pad,
        "scale": scale, "seed": seed, "sha256": [_hash_file(source) for source in sources],
    }  # fmt: skip
    if sha256 is not None and list(sha256) != config["sha256"]:
        raise DataError("sha256 does not match: a file has changed since the stream was made.")
    if every is not None and (by is None or every not in PERIODS):
        raise InputError(
            f"every must be one of {', '.join(PERIODS)} and needs by=, found {every!r}."
        )
    if any(source.format == "npz" for source in sources):
        if target or by or features or any(source.format != "npz" for source in sources):
            raise InputError(
                "paths: npz files hold X and y, so they cannot be combined with target, by, "
                "features or files of other formats."
            )
        return _from_npz(sources, config)
    targets = [target] if isinstance(target, str) else target
    if not targets or not all(isinstance(name, str) and name for name in targets):
        raise InputError(f"target must name the column to predict, found {target!r}.")
    return _from_tables(sources, list(targets), config)


def _find_sources(paths: Any) -> list[Source]:
    given = [paths] if isinstance(paths, str | Path) else paths
    are_paths = isinstance(given, Sequence) and all(isinstance(p, str | Path) for p in given)
    if not given or not are_paths:
        raise InputError(f"paths must name one or more files, found {paths!r}.")
    return [source for path in given for source in find([path])]


def _hash_file(source: Source) -> str:
    with source.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _task_name(source: Source) -> str:
    return Path(source.address).name.removesuffix(".gz").rsplit(".", 1)[0]


def _from_npz(sources: list[Source], config: dict[str, Any]) -> Stream:
    shapes, targets = [], []
    for source in sources:
        rows = _read_npz(source)
        shapes.append(rows.X.shape[1:])
        targets += rows.targets()
    names = list(map(_task_name, sources))
    return make_stream(partial(_load_npz, sources), names, config, shapes, targets)


def _load_npz(sources: list[Source], number: int) -> TaskRows:
    return _read_npz(sources[number])


def _read_npz(source: Source) -> TaskRows:
    try:
        with source.open() as file:
            stored = np.load(file, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                raise ValueError("it holds a single array without a name")
            names = ("X", "y", "X_test", "y_test")
            return TaskRows(*(stored[name] for name in names[: 4 if "X_test" in stored else 2]))
    except KeyError as error:
        raise FormatError(
            f"{source.address} must hold X and y, and y_test with X_test: {error}."
        ) from error
    except ARRAY_FILE_ERRORS as error:
        raise FormatError(
            f"{source.address} is not an npz file of plain arrays: {error}."
        ) from error


def _from_tables(sources: list[Source], targets: list[str], config: dict[str, Any]) -> Stream:
    by, features = config["by"], config["features"]
    tables: list[_FileTable] = []
    if by is None:
        for source in sources:
            # Without padding, all files must have the columns of the first.
            chosen = features if config["pad"] or not tables else tables[0].features
            tables.append(_FileTable([source], targets, chosen))
        values: list[Any] = [None] * len(tables)
        names = list(map(_task_name, sources))
        ys = [table.read_targets() for table in tables]
    else:
        table = _FileTable(sources, targets, features, by, config["every"])
        values = table.group_values()
        names = [str(value.as_py()) for value in values]
        tables = [table] * len(values)
        ys = [table.read_targets()]
    shapes = [(len(table.features),) for table in tables]
    return make_stream(partial(_load_table, tables, values), names, config, shapes, ys)


def _load_table(tables: list[_FileTable], values: list[Any], number: int) -> TaskRows:
    return tables[number].read(values[number])


class _FileTable:
    """Rows of one or more files of the same columns, read when they are asked for."""

    def __init__(
        self,
        sources: list[Source],
        targets: list[str],
        features: Sequence[str] | None,
        by: str | None = None,
        every: str | None = None,
    ) -> None:
        self.targets, self.by, self.every = targets, by, every
        self.place = sources[0].address
        self.surveys = [survey(source, 0) for source in sources]
        grouping = [] if by is None else [by]
        for source, (schema, _) in zip(sources, self.surveys, strict=True):
            _check_columns(source, schema.names, [*targets, *grouping, *(features or [])])
        if both := set(features or ()) & {*targets, *grouping}:
            raise InputError(f"features must not hold the target or by, found {both.pop()!r}.")
        others = [n for n in self.surveys[0][0].names if n not in (*targets, *grouping)]
        self.features = others if features is None else list(features)
        if not self.features:
            raise DataError(f"{self.place} has no column left to learn from.")
        self.columns = list(dict.fromkeys([*self.features, *targets, *grouping]))
        self.schema = reduce(
            partial(unify_schemas, place=self.place), map(self._select, self.surveys)
        )

    def _select(self, surveyed: Any) -> Any:
        import pyarrow as pa

        return pa.schema([surveyed[0].field(name) for name in self.columns])

    def group_values(self) -> list[Any]:
        """Return the values that tell tasks apart, sorted, as Arrow scalars."""
        column = self._group(self._scan([self.by]))
        if column.null_count:
            raise DataError(
                f"by: column {self.by!r} has {column.null_count} missing values, so these rows "
                "belong to no task. Fill or drop them."
            )
        values = sorted(column.unique(), key=lambda value: value.as_py())
        if any(value.as_py() != value.as_py() for value in values):
            raise DataError(f"by: column {self.by!r} holds NaN. Fill or drop such rows.")
        return values

    def read(self, value: Any = None) -> TaskRows:
        """Return inputs (n, features) and targets; of one task if `value` is given."""
        table = self._scan([*self.features, *self.targets], value)
        inputs = [self._to_numpy(table, name) for name in self.features]
        for name, column in zip(self.features, inputs, strict=True):
            if column.dtype.kind == "U":
                raise self._not_numeric(table, name)
        return TaskRows(np.column_stack(inputs), self._stack_targets(table))

    def read_targets(self) -> NDArray[Any]:
        """Return the targets of all rows."""
        return self._stack_targets(self._scan(self.targets))

    def _stack_targets(self, table: Any) -> NDArray[Any]:
        columns = [self._to_numpy(table, name) for name in self.targets]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def _scan(self, columns: Sequence[Any], value: Any = None) -> Any:
        """Return a table of these columns, with the rows of one task if `value` is given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = list(dict.fromkeys([*columns, *([] if value is None else [self.by])]))
        batches = []
        for schema, pieces in self.surveys:
            for name in self.columns:  # types that hold the values of all files
                schema = schema.set(schema.get_field_index(name), self.schema.field(name))
            for piece in pieces:
                for _, batch in piece.read(schema, wanted):
                    if value is not None:
                        batch = batch.filter(pc.equal(self._group(batch), value))
                    batches.append(batch.select(columns))
        return pa.Table.from_batches(batches)

    def _group(self, table: Any) -> Any:
        """Return the column by which rows are grouped, or its period."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = table.column(self.by)
        column = as_type(column, value_type(column.type))
        is_time = pa.types.is_timestamp(column.type)
        if self.every is not None:
            if not is_time and not pa.types.is_date(column.type):
                raise DataError(
                    f"every={self.every!r} needs dates in column {self.by!r}, found {column.type}."
                )
            return pc.strftime(column, format=PERIODS[self.every])
        # Python's datetimes have microseconds.
        return column.cast(pa.timestamp("us")) if is_time else column

    def _to_numpy(self, table: Any, name: str) -> NDArray[Any]:
        """Return a column of numbers, booleans or strings; `to_numpy` would load pandas."""
        import pyarrow as pa

        column = table.column(name)
        column = as_type(column, value_type(column.type))
        if column.null_count:
            raise DataError(
                f"{self.place}: column {name!r} has {column.null_count} missing values. Fill or "
                "drop them."
            )
        if is_text(column.type):
            return np.array(column.to_pylist(), np.str_)
        if pa.types.is_boolean(column.type):
            return numpy_array(column.cast(pa.uint8())).astype(bool)
        if is_number(column.type):
            return numpy_array(column)
        raise self._not_numeric(table, name)

    def _not_numeric(self, table: Any, name: str) -> DataError:
        return DataError(
            f"{self.place}: column {name!r} holds {table.schema.field(name).type}, not numbers. "
            "Encode it, or leave it out with features=[...]."
        )


def _check_columns(source: Source, present: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in present]
    if missing:
        hint = " Save X and y together with numpy.savez." if source.format == "npy" else ""
        raise InputError(
            f"{source.address} has no column {missing[0]!r}; it has {', '.join(present)}.{hint}"
        )
