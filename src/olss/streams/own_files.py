"""Streams of your own files: a task for each file, or for each value of a column."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, InputError
from olss.streams.own_data import TaskRows, make_stream
from olss.streams.stream import Stream
from olss.tables.readers import survey
from olss.tables.schema import as_type, is_number, is_text, numpy_array, unify_schemas, value_type
from olss.tables.sources import Source, find
from olss.util.files import ARRAY_FILE_ERRORS

__all__ = ["from_files"]

# Formats whose strings sort as time does.
PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}


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
