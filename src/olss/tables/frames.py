"""Convert frames of any library to Arrow columns, and back to the same kind, exact to the cell.

This is the only module that knows pandas and polars; neither is imported unless rows of its kind
are given or asked for. A `FrameKind` records what a table was: its library, and for each column its
Arrow type and the library's own type where that holds more.

What differs when rows come back: missing values in object columns of pandas are all NaN if the
first one of a table was, else all None; tuples in them are lists; frames have no index but row
numbers unless it was kept, and no `attrs`. An integer column without missing values that gets some
(because it is new in later rows) comes back with pandas' nullable type.

A pandas dtype is stored as a string: pandas' own name, except ``string[...]`` and ``str[...]``
(strings with NA or NaN for missing, by storage), ``category``, ``arrow`` (an Arrow type used in
pandas), ``object``, ``object[nan]`` (missing values are NaN) and ``object[array]`` (NumPy arrays).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from olss.errors import DataError, InputError, OlssWarning
from olss.tables.schema import (
    as_type,
    check_kept,
    check_names,
    has_empty_lists,
    have_same_keys,
    plain_table,
    plain_type,
    value_type,
)
from olss.util.threads import cached_property

OBJECT_NAN = "object[nan]"  # pandas' objects whose missing values are NaN, not None


@dataclass(frozen=True)
class Categories:
    """The categories of a pandas column, in their order, used or not.

    Attributes
    ----------
    values : pyarrow.Array
    dtype : str or None
        Of the values, in pandas; None for what pandas makes of them.
    ordered : bool
    """

    values: Any = field(metadata={"arrow": "array"})
    dtype: str | None
    ordered: bool

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Categories)
            and (self.dtype, self.ordered) == (other.dtype, other.ordered)
            and bool(self.values.equals(other.values))
        )

    __hash__ = None  # type: ignore[assignment]

    def merge(self, other: Categories, kind: Any) -> Categories:
        """Return the categories of both, of an Arrow type; ordered if both are, and equal."""
        if self == other:
            return self
        both = self.extend(as_type(other.values, kind))
        return replace(both, ordered=both.ordered and other.ordered)

    def extend(self, values: Any) -> Categories:
        """Append further categories, of their type; ordered if there are no new ones."""
        import pyarrow as pa

        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        mine = as_type(self.values, values.type)
        both = pa.concat_arrays([mine, *chunks]).unique().drop_null()
        dtype = self.dtype if mine.type == self.values.type else None
        return Categories(both, dtype, self.ordered and both.equals(mine))


@dataclass(frozen=True)
class FrameKind:
    """Which library a table came from, and the types its columns had there.

    Attributes
    ----------
    library : {"pyarrow", "pandas", "polars", "mapping"}
    schema : pyarrow.Schema
        Names, Arrow types and metadata as they came.
    dtypes : dict of str to str
        Types as the library calls them, where Arrow's are not enough.
    categories : dict of str to Categories
    whole_names : frozenset of str
        Columns with integer names in pandas; here and in files they are strings.
    index : tuple of (str, str or None)
        Columns that were the index of a pandas frame, and their names there.
    """

    library: Literal["pyarrow", "pandas", "polars", "mapping"]
    schema: Any = field(metadata={"arrow": "schema"})
    dtypes: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Categories] = field(default_factory=dict)
    whole_names: frozenset[str] = frozenset()
    index: tuple[tuple[str, str | None], ...] = ()

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if any(str(int(name)) != name for name in self.whole_names):
            raise InputError("whole_names must be integers.")

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The Arrow fields by name."""
        return dict(zip(self.schema.names, self.schema, strict=True))

    def to_library(self, library: Any, table: Any) -> FrameKind:
        """Return the kind of frames of another library that lose nothing of a table's values."""
        import pyarrow.compute as pc
        import pyarrow.types as kinds

        if library == self.library:
            return self
        dtypes = {}
        for name in table.schema.names if library == "pandas" and table is not None else ():
            column = table.column(name)
            if kinds.is_integer(column.type) and column.null_count:
                bounds = pc.min_max(column).as_py()  # floats, which pandas uses, end at 2^53
                if bounds["max"] is not None and max(-bounds["min"], bounds["max"]) > 2**53:
                    dtypes[name] = "UInt64" if kinds.is_uint64(column.type) else "Int64"
        return FrameKind(library, self.schema, dtypes)

    def knows(self, name: str, kind: Any) -> bool:
        """Whether a column has the plain form of the type it came with."""
        return name in self.fields and plain_type(self.fields[name].type) == kind

    def original_schema(self, schema: Any) -> Any:
        """Return a plain schema with the fields as they came, where they are known."""
        import pyarrow as pa

        fields = [self.fields[f.name] if self.knows(f.name, f.type) else f for f in schema]
        return pa.schema(fields, metadata=self.schema.metadata)

    def merge(self, other: FrameKind, schema: Any) -> FrameKind:
        """Return the kind of two tables together.

        Parameters
        ----------
        other : FrameKind
            Of the later table, which decides the type of columns that were promoted.
        schema : pyarrow.Schema
            Their common plain schema, see `olss.tables.schema.unify_schemas`.
        """
        import pyarrow as pa

        fields, dtypes, categories = [], {}, dict[str, Categories]()
        for column in schema:
            name = column.name
            self._check_keys(other, name)
            source = self if self.knows(name, column.type) else other
            if not source.knows(name, column.type):
                fields.append(column)
                continue
            found = source.fields[name]
            if (
                self.library == "polars"
                and found.metadata != other.fields.get(name, found).metadata
            ):
                found = found.remove_metadata()  # polars' Enum holds no values but its own
            fields.append(found)
            if name in source.dtypes and source.library == self.library:
                dtypes[name] = source.dtypes[name]
                if dtypes[name] == "object" and other.dtypes.get(name) == OBJECT_NAN:
                    dtypes[name] = OBJECT_NAN  # nothing may have been missing yet
            mine, yours = self.categories.get(name), other.categories.get(name)
            if name in source.categories:
                categories[name] = source.categories[name]
                if mine and yours:
                    categories[name] = mine.merge(yours, value_type(column.type))
        names = self.whole_names | (other.whole_names - set(self.fields))
        return FrameKind(
            self.library,
            pa.schema(fields, metadata=self.schema.metadata),
            dtypes,
            categories,
            names,
            self.index,
        )

    def _check_keys(self, other: FrameKind, name: str) -> None:
        """Raise `DataError` if dicts of either table would gain keys that only the other's have."""
        objects = self.library in ("pandas", "mapping") and "object" in self.dtypes.get(
            name, "object"
        )
        if not objects or name not in self.fields or name not in other.fields:
            return
        mine, yours = self.fields[name].type, other.fields[name].type
        if not have_same_keys(mine, yours):
            raise DataError(
                f"column {name!r} holds dicts of other keys than before, {yours} after {mine}, and "
                "cannot be kept as it is. Make them text, e.g. with json.dumps."
            )


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
    """Convert a table to Arrow columns in plain form.

    Parameters
    ----------
    rows : pandas.DataFrame, polars.DataFrame, pyarrow table, batch or reader, mapping of columns
        Or anything else with `__arrow_c_stream__`.
    keep_index : bool
        Whether the index of a pandas frame becomes columns.
    place : str
        Name of the rows in messages.

    Returns
    -------
    table : pyarrow.Table
    kind : FrameKind
        What `from_arrow` needs to restore the frame.

    Examples
    --------
    >>> table, kind = to_arrow({"x": [1.5, None], "name": ["a", "b"]})
    >>> from_arrow(table.take([1]), kind)
    {'x': [None], 'name': ['b']}
    """
    import pyarrow as pa

    if _is_a(rows, "pandas", "DataFrame"):
        table, kind = _from_pandas(rows, keep_index, place)
    elif _is_a(rows, "polars", "LazyFrame"):
        raise DataError(f"{place} is a polars LazyFrame, which has no rows yet. Call collect().")
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
    for column in table.schema:
        if has_empty_lists(column.type):
            raise DataError(
                f"{place}: column {column.name!r} of type {column.type} cannot be kept: its lists "
                "have length 0 and hold nothing. Drop it."
            )
    try:
        return plain_table(table), kind
    except pa.ArrowException as error:
        raise DataError(f"{place} cannot be read as a table: {error}") from error


def from_arrow(table: Any, kind: FrameKind) -> Any:
    """Convert Arrow columns to a frame of a kind; unknown columns stay as they are."""
    if kind.library == "pandas":
        return _to_pandas(table, kind)
    if kind.library == "mapping":
        return _to_mapping(table, kind)
    table = _with_types(table, kind)
    if kind.library == "pyarrow":
        return table
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(table))
    wanted = pl.DataFrame(pl.from_arrow(kind.original_schema(table.schema).empty_table())).schema
    return frame if frame.schema == wanted else frame.cast(wanted)


def _is_a(rows: Any, library: str, *names: str) -> bool:
    """Whether rows are of a library's class; if so, the library has been imported."""
    module = sys.modules.get(library)
    return any(isinstance(rows, getattr(module, name, ())) for name in names)


def _with_types(table: Any, kind: FrameKind) -> Any:
    """Return a table with the Arrow types its columns came with."""
    import pyarrow as pa

    columns, fields = [], []
    for column, own, came in zip(
        table.columns, table.schema, kind.original_schema(table.schema), strict=True
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
            raise DataError(f"{place} must have strings as column names, found {name!r}.")
        try:
            columns[name] = _to_column(values)
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


def _to_column(values: Any) -> Any:
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
        name: _to_array(column, kind.dtypes[name])
        if name in kind.dtypes and kind.knows(name, column.type)
        else column.to_pylist()
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }


def _to_array(column: Any, dtype: str) -> Any:
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


STORAGES = ("python", "pyarrow")


def _from_pandas(rows: Any, keep_index: bool, place: str) -> tuple[Any, FrameKind]:
    """Convert a pandas frame to Arrow columns."""
    import pandas as pd
    import pyarrow as pa

    index: tuple[tuple[str, str | None], ...] = ()
    if keep_index:
        called = [None if name is None else str(name) for name in rows.index.names]
        index = tuple((name or f"index_{i}", name) for i, name in enumerate(called))
        levels = {name: rows.index.get_level_values(i) for i, (name, _) in enumerate(index)}
        rows = pd.concat([pd.DataFrame(levels), rows.reset_index(drop=True)], axis=1)
    elif _index_matters(rows.index):
        warnings.warn(
            f"the index of {place} ({', '.join(str(name) for name in rows.index.names)}) is "
            "dropped. Keep it with keep_index=True, or make it a column with reset_index().",
            OlssWarning,
            stacklevel=4,
        )
    names = [_column_name(name, place) for name in rows.columns]
    check_names(names, place)
    arrays, dtypes, categories = [], {}, {}
    for i, name in enumerate(names):
        array, dtypes[name], found = _arrow_column(rows.iloc[:, i], name, place)
        arrays.append(array)
        if found is not None:
            categories[name] = found
    table = pa.table(arrays, names=names)
    whole = frozenset(str(name) for name in rows.columns if not isinstance(name, str))
    return table, FrameKind("pandas", table.schema, dtypes, categories, whole, index)


def _index_matters(index: Any) -> bool:
    """Whether an index is more than row numbers: named, or not of integers."""
    return any(name is not None for name in index.names) or index.dtype.kind not in "iu"


def _column_name(name: Any, place: str) -> str:
    whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
    if not (isinstance(name, str) or (whole and -(10**18) < name < 10**18)):
        raise DataError(
            f"{place} must have strings or integers as column names, found {name!r}. Rename them, "
            "e.g. frame.columns = frame.columns.map(str)."
        )
    return str(name)


def _to_pandas(table: Any, kind: FrameKind) -> Any:
    """Convert Arrow columns in plain form to a pandas frame."""
    import pandas as pd
    import pyarrow as pa

    columns = {}
    for i, (column, came) in enumerate(
        zip(table.columns, kind.original_schema(table.schema), strict=True)
    ):
        name = came.name
        dtype = kind.dtypes.get(name) if kind.knows(name, column.type) else None
        try:
            columns[i] = _pandas_column(column, came.type, dtype, kind.categories.get(name))
        except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"column {name!r} of {column.type} cannot become pandas' {dtype} ({error})."
            ) from error
    frame = pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))
    names = [int(name) if name in kind.whole_names else name for name in table.schema.names]
    frame.columns = pd.Index(names)
    levels = [(column, name) for column, name in kind.index if column in kind.fields]
    if levels and all(column in names for column, _ in levels):
        frame = frame.set_index([column for column, _ in levels])
        frame.index.names = [name for _, name in levels]
    return frame


def _arrow_column(series: Any, name: str, place: str) -> tuple[Any, str, Categories | None]:
    """Return a series as an Arrow array or chunks, its dtype as a string, and its categories."""
    import pandas as pd
    import pyarrow as pa

    dtype = _dtype_name(series)
    try:
        array = pa.array(series, from_pandas=True)
        if dtype != "arrow":
            check_kept(array, series)
        if isinstance(value_type(array.type), pa.BaseExtensionType) and dtype == "category":
            raise TypeError(f"its categories are {series.dtype.categories.dtype}")
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), repr(error)).rstrip(".")
        remedy = (
            "Make it one type, e.g. frame[name].astype(str)"
            if dtype.startswith(("object", "category"))
            else "Convert it to a type that Arrow knows"
        )
        raise DataError(
            f"{place}: column {name!r} of dtype {series.dtype} cannot be kept ({reason}). {remedy}."
        ) from error
    if not isinstance(series.dtype, pd.CategoricalDtype):
        return array, dtype, None
    values = series.cat.categories.to_series()
    categories = Categories(
        pa.array(values, from_pandas=True), _dtype_name(values), bool(series.cat.ordered)
    )
    return array, dtype, categories


def _pandas_column(column: Any, kind: Any, dtype: str | None, categories: Categories | None) -> Any:
    """Return Arrow chunks as a pandas array.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        In plain form.
    kind : pyarrow.DataType
        The Arrow type it had when it came from pandas.
    dtype : str or None
        What `_arrow_column` returned; None for the default of pandas.
    categories : Categories or None
    """
    import pandas as pd
    import pyarrow as pa

    if dtype == "category" and categories is not None:
        plain = as_type(column, value_type(column.type))
        found = categories.extend(plain.unique())  # text may have come since
        codes = pa.compute.index_in(plain, value_set=found.values)
        values = _pandas_column(
            pa.chunked_array([found.values]), found.values.type, found.dtype, None
        )
        whole = codes.fill_null(-1).to_numpy()
        return pd.Categorical.from_codes(whole, pd.Index(values), ordered=found.ordered)
    wanted = _parse_dtype(dtype)
    if dtype in ("object", OBJECT_NAN):
        objects = np.empty(len(column), dtype=object)
        objects[:] = column.to_pylist()
        if dtype == OBJECT_NAN:
            objects[column.is_null().to_numpy()] = np.nan
        return pd.Series(objects, dtype=object)
    if dtype == "arrow":
        return pd.arrays.ArrowExtensionArray(as_type(column, kind))
    if wanted is None:
        return column.to_pandas().array
    if isinstance(wanted, np.dtype):
        if column.null_count and wanted.kind in "biu":
            return _nullable(wanted).__from_arrow__(column)
        return column.to_numpy().astype(wanted, copy=False)
    if isinstance(wanted, pd.DatetimeTZDtype):
        return column.to_pandas().astype(wanted).array
    return wanted.__from_arrow__(column)


def _dtype_name(series: Any) -> str:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.StringDtype):
        return f"{'string' if dtype.na_value is pd.NA else 'str'}[{dtype.storage}]"
    if isinstance(dtype, pd.ArrowDtype):
        return "arrow"
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        present = (value for value in series if pd.api.types.is_list_like(value) or pd.notna(value))
        if isinstance(next(present, None), np.ndarray):
            return "object[array]"
        missing = series[series.isna()]
        return OBJECT_NAN if len(missing) and isinstance(missing.iloc[0], float) else "object"
    return str(dtype)


def _parse_dtype(text: str | None) -> Any:
    """Return the dtype of a string, None if pandas is to choose."""
    import pandas as pd

    if text is None or text in ("object", OBJECT_NAN, "object[array]", "arrow", "category"):
        return None
    for prefix, missing in (("string[", pd.NA), ("str[", np.nan)):
        if text.startswith(prefix):
            storage = text.removeprefix(prefix).removesuffix("]")
            return pd.StringDtype(storage, na_value=missing) if storage in STORAGES else None
    try:
        dtype = pd.api.types.pandas_dtype(text)
    except (TypeError, ValueError, SyntaxError):  # of a library that is not there
        return None
    return dtype if not isinstance(dtype, np.dtype) or dtype.kind in "biufmM" else None


def _nullable(dtype: np.dtype[Any]) -> Any:
    """Return pandas' dtype for the same numbers with missing values."""
    import pandas as pd

    if dtype.kind == "b":
        return pd.BooleanDtype()
    return pd.api.types.pandas_dtype(f"{'U' if dtype.kind == 'u' else ''}Int{8 * dtype.itemsize}")
