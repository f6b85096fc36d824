"""Files of tables as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, InputError
from olss.streams.file_batches import batches, column_names

__all__ = ["PERIODS", "FileTable"]

# Written out so that the text sorts as time does.
PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True)
class FileTable:
    """Rows of one or more files, read when they are asked for.

    Parameters
    ----------
    files : sequence of Path
        Files of the same columns.
    targets : list of str
        Columns to learn.
    chosen : sequence of str or None
        Columns to learn from; None for all others.
    by, every : str or None
        Column, and period of time, that says which rows belong together.
    value : pyarrow.Scalar or None
        Only rows where `by` has this value.
    """

    files: Sequence[Path]
    targets: list[str]
    chosen: Sequence[str] | None
    by: str | None = None
    every: str | None = None
    value: Any = None

    @cached_property
    def features(self) -> list[str]:
        """Columns to learn from."""
        present = self.check_columns()
        others = [name for name in present if name not in (*self.targets, self.by)]
        return others if self.chosen is None else list(self.chosen)

    def check_columns(self) -> list[str]:
        """Return the columns there are, or say which one is not."""
        present = column_names(self.files[0])
        for name in (*self.targets, self.by, *(self.chosen or [])):
            if name is not None and name not in present:
                raise InputError(
                    f"{self.files[0]} has no column {name!r}; it has {', '.join(present)}."
                )
        if both := set(self.chosen or ()) & {*self.targets, self.by}:
            raise InputError(f"features must not hold the target or by, found {both.pop()!r}.")
        return present

    def split(self) -> list[FileTable]:
        """Return a table for each value of the column `by`, sorted."""
        assert self.by is not None
        self.check_columns()
        column = self._group(self._read([self.by]))
        if column.null_count:
            raise DataError(
                f"the column {self.by!r} is empty in {column.null_count} rows: they belong to no "
                "task; fill or drop them first."
            )
        values = sorted(column.unique(), key=lambda value: value.as_py())
        if any(value.as_py() != value.as_py() for value in values):
            raise DataError(f"the column {self.by!r} holds NaN: fill or drop such rows first.")
        return [replace(self, value=value) for value in values]

    def read(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs (n, columns) and targets."""
        if not self.features:
            raise DataError(f"{self.files[0]} has no column left to learn from.")
        table = self._read([*self.features, *self.targets])
        if not table.num_rows:
            raise DataError(f"{self.files[0]} has no rows.")
        inputs = [_numbers(table, name, self.files[0]) for name in self.features]
        return np.column_stack(inputs), self._targets_of(table)

    def read_targets(self) -> NDArray[Any]:
        """Return the targets alone."""
        self.check_columns()
        return self._targets_of(self._read(self.targets))

    def _targets_of(self, table: Any) -> NDArray[Any]:
        columns = []
        for name in self.targets:
            _check_present(table, name, self.files[0])
            columns.append(_values(table, name, self.files[0]))
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def _read(self, columns: list[str]) -> Any:
        """Return the table of these columns, with the rows of this task only."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = [*columns, *([self.by] if self.by and self.by not in columns else [])]
        parts = []
        for path in self.files:
            for batch in batches(path, wanted):
                part = pa.table({name: _plain(batch.column(name)) for name in wanted})
                if self.value is not None:
                    part = part.filter(pc.equal(self._group(part), self.value))
                parts.append(part.select(columns))
        try:
            if not parts:
                raise DataError(f"{self.files[0]} has no rows.")
            return pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as error:
            raise FormatError(
                f"the files from {self.files[0]} on do not have columns of one kind: {error}"
            ) from error

    def _group(self, table: Any) -> Any:
        """Return what rows are told apart by: the column or its period."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = table.column(self.by)
        times = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
        if self.every is not None:
            if not times:
                raise DataError(
                    f"every={self.every!r} needs dates in the column {self.by!r}, found "
                    f"{column.type}."
                )
            return pc.strftime(column, format=PERIODS[self.every])
        # Python's times have microseconds.
        return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def _plain(column: Any) -> Any:
    """Return a column without dictionaries and views, as NumPy knows neither."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    view = pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if view else column


def _numbers(table: Any, name: str, path: Path) -> NDArray[Any]:
    _check_present(table, name, path)
    values = _values(table, name, path)
    if values.dtype.kind not in "fiub":
        raise _refused(table, name, path)
    return values


def _values(table: Any, name: str, path: Path) -> NDArray[Any]:
    """Return numbers, truth values or text; pyarrow's own way to NumPy loads pandas."""
    import pyarrow as pa

    column, kind = table.column(name), table.schema.field(name).type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.to_pylist(), np.str_)
    if pa.types.is_boolean(kind):
        return np.from_dlpack(column.cast(pa.uint8()).combine_chunks()).astype(bool)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.from_dlpack(column.combine_chunks())
    raise _refused(table, name, path)


def _refused(table: Any, name: str, path: Path) -> DataError:
    return DataError(
        f"{path}: the column {name!r} holds {table.schema.field(name).type}, not numbers; "
        "encode it or leave it out with features=[...]."
    )


def _check_present(table: Any, name: str, path: Path) -> None:
    if missing := table.column(name).null_count:
        raise DataError(
            f"{path}: the column {name!r} is empty in {missing} rows; fill or drop them first."
        )
