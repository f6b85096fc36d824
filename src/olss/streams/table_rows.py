"""Parquet and CSV files as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, InputError
from olss.streams.own_rows import Rows

__all__ = ["PERIODS", "Table"]

# Written out so that the text sorts as time does.
PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


@dataclass(frozen=True)
class Table:
    """Rows of one or more Parquet or CSV files, read when they are asked for.

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
    value : object
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
        present: list[str] = self._open().schema.names
        for name in (*self.targets, self.by, *(self.chosen or [])):
            if name is not None and name not in present:
                raise InputError(
                    f"{self.files[0]} has no column {name!r}; it has {', '.join(present)}."
                )
        if both := set(self.chosen or ()) & {*self.targets, self.by}:
            raise InputError(f"features must not hold the target or by, found {both.pop()!r}.")
        return present

    def split(self) -> list[Table]:
        """Return a table for each value of the column `by`, sorted."""
        assert self.by is not None
        self.check_columns()
        import pyarrow.compute as pc

        column = self._open().to_table(columns={self.by: self._group()}).column(0)
        if column.null_count:
            raise DataError(
                f"the column {self.by!r} is empty in {column.null_count} rows: they belong to no "
                "task; fill or drop them first."
            )
        return [replace(self, value=value) for value in sorted(pc.unique(column).to_pylist())]

    def read(self) -> Rows:
        """Read inputs (n, columns) and targets."""
        table = self._read([*self.features, *self.targets])
        if not table.num_rows:
            raise DataError(f"{self.files[0]} has no rows.")
        inputs = [_numbers(table, name, self.files[0]) for name in self.features]
        return Rows(np.column_stack(inputs), self._targets_of(table))

    def read_targets(self) -> NDArray[Any]:
        """Read the targets alone."""
        self.check_columns()
        return self._targets_of(self._read(self.targets))

    def _targets_of(self, table: Any) -> NDArray[Any]:
        columns = []
        for name in self.targets:
            _check_present(table, name, self.files[0])
            values = table.column(name).to_numpy()
            columns.append(values.astype(str) if values.dtype.kind == "O" else values)
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def _open(self) -> Any:
        import pyarrow
        from pyarrow import dataset

        kinds = {FORMATS.get(path.suffix) for path in self.files}
        if None in kinds or len(kinds) > 1:
            raise InputError(
                "files must all be .parquet or all .csv (or all .npz), found "
                f"{', '.join(sorted({path.name for path in self.files}))}."
            )
        try:
            return dataset.dataset([str(path) for path in self.files], format=kinds.pop())
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise FormatError(f"{self.files[0]} cannot be read: {error}") from error

    def _read(self, columns: list[str]) -> Any:
        import pyarrow

        only = None if self.value is None else self._group() == self.value
        try:
            return self._open().to_table(columns=columns, filter=only)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise FormatError(f"{self.files[0]} cannot be read: {error}") from error

    def _group(self) -> Any:
        """Return the expression rows are told apart by: the column or its period."""
        import pyarrow.compute as pc

        if self.every is None:
            return pc.field(self.by)
        return pc.strftime(pc.field(self.by), format=PERIODS[self.every])


def _numbers(table: Any, name: str, path: Path) -> NDArray[Any]:
    _check_present(table, name, path)
    values: NDArray[Any] = table.column(name).to_numpy()
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: the column {name!r} holds {table.schema.field(name).type}, not numbers; "
            "encode it or leave it out with features=[...]."
        )
    return values


def _check_present(table: Any, name: str, path: Path) -> None:
    if missing := table.column(name).null_count:
        raise DataError(
            f"{path}: the column {name!r} is empty in {missing} rows; fill or drop them first."
        )
