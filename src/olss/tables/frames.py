"""Frames of any library in, the same kind out, exact to the cell.

With `olss.tables.pandas_frames` this is the only module that knows of pandas and polars; neither
is ever imported unless rows of its kind are at hand or asked for.

What is not the same when rows come back: gaps in object columns of pandas are all NaN if the first
one of a table was, else all None; tuples in them are lists; frames have no index but row numbers
unless it was kept, and no `attrs`. A column of whole numbers without gaps that has got some
(because it is new in later rows) comes back as pandas' nullable type.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from olss.errors import DataError
from olss.tables.arrow_types import as_type, check_kept, has_empty_lists, plain_table
from olss.tables.frame_kind import FrameKind
from olss.tables.schemas import check_names

__all__ = ["FrameKind", "from_arrow", "is_table", "to_arrow"]


def is_table(rows: Any) -> bool:
    """Whether rows are a table: a frame, Arrow columns, or a mapping of columns.

    Arrays, tensors, lists and single columns are not.

    Examples
    --------
    >>> import numpy as np
    >>> is_table({"x": [1, 2]}), is_table(np.ones((2, 2)))
    (True, False)
    """
    if isinstance(rows, Mapping):
        return True
    if _is_a(rows, "pandas", "DataFrame") or _is_a(rows, "polars", "DataFrame", "LazyFrame"):
        return True
    if _is_a(rows, "pyarrow", "Table", "RecordBatch", "RecordBatchReader"):
        return True
    one_column = (
        _is_a(rows, "pyarrow", "Array", "ChunkedArray")
        or _is_a(rows, "pandas", "Series", "Index")
        or _is_a(rows, "polars", "Series")
    )
    return hasattr(rows, "__arrow_c_stream__") and not one_column


def to_arrow(rows: Any, *, keep_index: bool = False, place: str = "rows") -> tuple[Any, FrameKind]:
    """Return a table as Arrow columns in plain form, and what it was.

    Parameters
    ----------
    rows : pandas.DataFrame, polars.DataFrame, pyarrow table, batch or reader, mapping of columns
        Or anything else with `__arrow_c_stream__`.
    keep_index : bool
        Whether the index of a pandas frame becomes columns.
    place : str
        What rows are called in messages.

    Returns
    -------
    table : pyarrow.Table
    kind : FrameKind
        With which `from_arrow` gives the same kind of frame back.

    Examples
    --------
    >>> table, kind = to_arrow({"x": [1.5, None], "name": ["a", "b"]})
    >>> from_arrow(table.take([1]), kind)
    {'x': [None], 'name': ['b']}
    """
    import pyarrow as pa

    if _is_a(rows, "pandas", "DataFrame"):
        from olss.tables.pandas_frames import from_pandas

        table, kind = from_pandas(rows, keep_index, place)
    elif _is_a(rows, "polars", "LazyFrame"):
        raise DataError(f"{place} is a polars LazyFrame, a query and no rows yet. collect() it.")
    elif _is_a(rows, "polars", "DataFrame"):
        table, kind = _from_polars(rows, place)
    elif isinstance(rows, Mapping):
        table, kind = _from_mapping(rows, place)
    else:
        table = _from_stream(rows, place)
        kind = FrameKind("pyarrow", table.schema)
    check_names(table.schema.names, place)
    if not table.num_columns:
        raise DataError(f"{place} has no columns.")
    for field in table.schema:
        if has_empty_lists(field.type):
            raise DataError(
                f"{place}: column {field.name!r} of type {field.type} cannot be kept: its lists "
                "have length 0 and hold nothing. Drop it."
            )
    try:
        return plain_table(table), kind
    except pa.ArrowException as error:
        raise DataError(f"{place} cannot be read as a table: {error}") from error


def from_arrow(table: Any, kind: FrameKind) -> Any:
    """Return Arrow columns as a frame of a kind; columns that it does not know as they are."""
    if kind.library == "pandas":
        from olss.tables.pandas_frames import to_pandas

        return to_pandas(table, kind)
    if kind.library == "mapping":
        return _to_mapping(table, kind)
    table = _with_types(table, kind)
    if kind.library == "pyarrow":
        return table
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(table))
    wanted = pl.DataFrame(pl.from_arrow(kind.remembered(table.schema).empty_table())).schema
    return frame if frame.schema == wanted else frame.cast(wanted)


def _is_a(rows: Any, library: str, *names: str) -> bool:
    """Whether rows are of a library's class; if so, the library has been imported."""
    module = sys.modules.get(library)
    return any(isinstance(rows, getattr(module, name, ())) for name in names)


def _with_types(table: Any, kind: FrameKind) -> Any:
    """Return a table whose columns have the Arrow types they came with."""
    import pyarrow as pa

    columns, fields = [], []
    for column, own, came in zip(
        table.columns, table.schema, kind.remembered(table.schema), strict=True
    ):
        try:
            columns.append(as_type(column, came.type))
            fields.append(came)
        except pa.ArrowException:  # more categories than codes of the type; no way back to a view
            columns.append(column)
            fields.append(own)
    nullable = [
        field if field.nullable or not column.null_count else field.with_nullable(True)
        for field, column in zip(fields, columns, strict=True)
    ]
    schema = pa.schema(nullable, metadata=kind.schema.metadata)
    return pa.Table.from_arrays(columns, schema=schema)


def _from_stream(rows: Any, place: str) -> Any:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    try:
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if isinstance(rows, pa.RecordBatchReader):
            return rows.read_all()
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{place} must be a frame, Arrow columns or a mapping of columns, found "
            f"{type(rows).__name__} ({error})."
        ) from error


def _from_polars(rows: Any, place: str) -> tuple[Any, FrameKind]:
    import polars as pl
    import pyarrow as pa

    oldest = pl.CompatLevel.oldest()  # text as text, not as views
    try:
        if pl.Object in rows.dtypes:
            raise pa.ArrowTypeError("Python objects")
        table = rows.to_arrow(compat_level=oldest)
    except pa.ArrowException as error:
        if len(rows.columns) > 1:
            for name in rows.columns:  # which raises at the one
                _from_polars(rows.select(name), place)
        raise DataError(
            f"{place}: column {rows.columns[0]!r} of dtype {rows.dtypes[0]} cannot be kept "
            f"({error}). Cast it to a type that Arrow knows, or drop it."
        ) from error
    return table, FrameKind("polars", table.schema)


def _from_mapping(rows: Mapping[Any, Any], place: str) -> tuple[Any, FrameKind]:
    import pyarrow as pa

    columns, dtypes = {}, {}
    for name, values in rows.items():
        if not isinstance(name, str):
            raise DataError(f"{place} must call columns by texts, found {name!r}.")
        try:
            columns[name] = _column(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{place}: column {name!r} cannot be read ({error}). Give values of one type."
            ) from error
        if isinstance(values, np.ndarray):
            dtypes[name] = str(values.dtype)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{n} of {name!r}" for name, n in list(lengths.items())[:5])
        raise DataError(f"{place} must have columns of one length, found {text}.")
    table = pa.table(columns)
    return table, FrameKind("mapping", table.schema, dtypes)


def _column(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.ndim > 2:
        raise ValueError(f"an array of shape {values.shape}; one row is to be a number or a vector")
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if isinstance(values, np.ndarray) and values.dtype.kind in "US":
        return pa.array(values.tolist())
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{type(values).__name__}, not a column")
    array = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
    check_kept(array, values)
    return array


def _to_mapping(table: Any, kind: FrameKind) -> dict[str, Any]:
    return {
        name: _array(column, kind.dtypes[name])
        if name in kind.dtypes and kind.knows(name, column.type)
        else column.to_pylist()
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }


def _array(column: Any, dtype: str) -> Any:
    import pyarrow.types as kinds

    if kinds.is_fixed_size_list(column.type) and not column.null_count:
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, column.type.list_size).astype(dtype, copy=False)
    try:
        wanted = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        wanted = np.dtype(object)
    values = column.to_numpy()
    if wanted.kind in "US" and not column.null_count:
        return np.asarray(values.tolist(), dtype=wanted.kind)  # as wide as the longest
    if wanted.kind not in "biufmM" or (column.null_count and wanted.kind in "biu"):
        return values  # objects, or floats with NaN
    return values.astype(wanted, copy=False)
