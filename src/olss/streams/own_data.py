"""Streams of a user's own arrays and files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.core.row_blocks import dense_array, to_numpy
from olss.errors import DataError, FormatError, InputError
from olss.streams.stream import Stream, Task, hash_arrays, sample_stratified, task_generator
from olss.streams.table_rows import PERIODS, FileTable
from olss.util import checks
from olss.util.files import ARRAY_FILE_ERRORS

__all__ = ["LabelCodes", "TaskRows", "from_arrays", "from_files", "own_stream"]


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
        "sha256": hash_arrays(*(part for rows in parts for part in rows)),
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

    Parquet, CSV (also .gz), Arrow/Feather, JSON lines, ORC, .npy with named columns, and .npz.
    Only the rows of the task asked for are kept in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, in the order of the tasks. A path with ``*`` stands for the files it matches,
        sorted. npz files hold arrays X and y, and may hold X_test and y_test.
    target : str or sequence of str
        Column of the target, or several for several real targets. Not for npz.
    by : str, optional
        Column that says the task of each row (a date, a site): the files are one table
        then. Tasks come in sorted order.
    every : {"day", "week", "month", "year"}, optional
        With a date in `by`: a task for each period instead of each value.
    features : sequence of str, optional
        Columns to learn from; all others by default.
    test : float
        Share of rows to set aside for testing, the same share of each class.
    kind : {"auto", "classes", "values"}
        Whether the target is a label or a real number; see `from_arrays`.
    pad : bool or int
        Files may have different numbers of columns; see `from_arrays`.
    scale : float, optional
        What a network should divide inputs by; 255 for uint8 and 1 otherwise by default.
    seed : int
        Seed of the split.
    sha256 : sequence of str, optional
        What the files must hash to, as `Stream.config` says; an error if one has changed.

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
    files = _files(paths)
    config = {
        "name": "files",
        "paths": [str(path) for path in files],
        "target": target,
        "by": by,
        "every": every,
        "features": features,
        "test": test,
        "kind": kind,
        "pad": pad,
        "scale": scale,
        "seed": seed,
        "sha256": [_sha256_of_file(path) for path in files],
    }
    if sha256 is not None and list(sha256) != config["sha256"]:
        raise DataError("sha256 does not fit: a file has changed since it was written down.")
    if every is not None and (by is None or every not in PERIODS):
        raise InputError(
            f"every must be one of {', '.join(PERIODS)} and needs by=, found {every!r}."
        )
    if any(path.suffix == ".npz" for path in files):
        if target or by or features or any(path.suffix != ".npz" for path in files):
            raise InputError(
                "npz files hold X and y; they go with no target, by, features or other files."
            )
        return _of_npz(files, config)
    targets = [target] if isinstance(target, str) else target
    if not targets or not all(isinstance(name, str) and name for name in targets):
        raise InputError(f"target must name the column to learn, found {target!r}.")
    return _of_tables(files, config)


def _of_npz(files: list[Path], config: dict[str, Any]) -> Stream:
    shapes, targets = [], []
    for path in files:
        rows = _read_npz(path)
        shapes.append(rows.X.shape[1:])
        targets += rows.targets()
    names = [path.stem for path in files]
    return own_stream(partial(_load_npz, files), names, config, shapes, targets)


def _load_npz(files: list[Path], number: int) -> TaskRows:
    return _read_npz(files[number])


def _read_npz(path: Path) -> TaskRows:
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                raise ValueError("it holds a single array without a name")
            names = ("X", "y", "X_test", "y_test")
            return TaskRows(*(stored[name] for name in names[: 4 if "X_test" in stored else 2]))
    except KeyError as error:
        raise FormatError(f"{path} must hold X and y, and y_test with X_test: {error}.") from error
    except ARRAY_FILE_ERRORS as error:
        raise FormatError(f"{path} is not an npz file of plain arrays: {error}.") from error


def _of_tables(files: list[Path], config: dict[str, Any]) -> Stream:
    target, by, features = config["target"], config["by"], config["features"]
    targets = [target] if isinstance(target, str) else list(target)
    if by is None:
        # The first file says which columns there are, unless each may have its own.
        first = FileTable([files[0]], targets, features).features
        tables = [
            FileTable([file], targets, features if config["pad"] else first) for file in files
        ]
        names = [path.stem for path in files]
        ys = [table.read_targets() for table in tables]
    else:
        whole = FileTable(files, targets, features, by, config["every"])
        tables = whole.split()
        names = [str(table.value.as_py()) for table in tables]
        ys = [whole.read_targets()]
    shapes = [(len(table.features),) for table in tables]
    return own_stream(partial(_load_table, tables), names, config, shapes, ys)


def _load_table(tables: list[FileTable], number: int) -> TaskRows:
    return TaskRows(*tables[number].read())


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(given, Sequence) or not all(isinstance(path, str | Path) for path in given):
        raise InputError(f"paths must name one or more files, found {paths!r}.")
    found: list[Path] = []
    for path in map(str, given):
        matches = sorted(glob(path)) if "*" in path else [path]
        missing = [match for match in matches if not Path(match).is_file()]
        if not matches or missing:
            raise InputError(f"paths must name files that are there, found {path!r}.")
        found += map(Path, matches)
    if not found:
        raise InputError("paths must name at least one file, found none.")
    return found


def _sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    checks.choice("kind", kind, ("auto", "classes", "values"))
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
    checks.number("test", config["test"], above=0, maximum=0.9)
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
        return checks.integer("pad", pad, alternative=", True or False")
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
        held = sample_stratified(None if self.labels is None else y, rows, size, rng)
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
