"""Pandas frames as Arrow columns, and back with the same dtypes.

A dtype is remembered by a text: what pandas itself calls it, except ``string[...]`` and
``str[...]`` (text with NA or NaN for gaps, by its storage), ``category``, ``arrow`` (an Arrow type
used in pandas), ``object``, ``object[nan]`` (objects whose gaps are NaN) and ``object[array]``
(objects that are NumPy arrays).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from olss.errors import DataError, OlssWarning
from olss.tables.arrow_types import as_type, check_kept, value_type
from olss.tables.frame_kind import OBJECT_NAN, Categories, FrameKind
from olss.tables.schemas import check_names

__all__ = ["from_pandas", "to_pandas"]

STORAGES = ("python", "pyarrow")


def from_pandas(rows: Any, keep_index: bool, place: str) -> tuple[Any, FrameKind]:
    """Return a pandas frame as Arrow columns, and what it was."""
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
    names = [_name(name, place) for name in rows.columns]
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
    """Whether an index is more than row numbers: named, or of other than whole numbers."""
    return any(name is not None for name in index.names) or index.dtype.kind not in "iu"


def _name(name: Any, place: str) -> str:
    whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
    if not (isinstance(name, str) or (whole and -(10**18) < name < 10**18)):
        raise DataError(
            f"{place} must call columns by texts or whole numbers, found {name!r}. "
            "Rename them, e.g. frame.columns = frame.columns.map(str)."
        )
    return str(name)


def to_pandas(table: Any, kind: FrameKind) -> Any:
    """Return Arrow columns in plain form as a pandas frame."""
    import pandas as pd
    import pyarrow as pa

    columns = {}
    for i, (column, came) in enumerate(
        zip(table.columns, kind.remembered(table.schema), strict=True)
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
    """Return a series as Arrow array or chunks, its dtype's text, and its categories if it has."""
    import pandas as pd
    import pyarrow as pa

    dtype = _dtype_text(series)
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
        pa.array(values, from_pandas=True), _dtype_text(values), bool(series.cat.ordered)
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
        What `_arrow_column` said; None for what pandas makes of it by itself.
    categories : Categories or None
    """
    import pandas as pd
    import pyarrow as pa

    if dtype == "category" and categories is not None:
        plain = as_type(column, value_type(column.type))
        found = categories.widened(plain.unique())  # text may have come since
        codes = pa.compute.index_in(plain, value_set=found.values)
        values = _pandas_column(
            pa.chunked_array([found.values]), found.values.type, found.dtype, None
        )
        whole = codes.fill_null(-1).to_numpy()
        return pd.Categorical.from_codes(whole, pd.Index(values), ordered=found.ordered)
    wanted = _dtype_of(dtype)
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


def _dtype_text(series: Any) -> str:
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
        gaps = series[series.isna()]
        return OBJECT_NAN if len(gaps) and isinstance(gaps.iloc[0], float) else "object"
    return str(dtype)


def _dtype_of(text: str | None) -> Any:
    """Return the dtype a text stands for, None if pandas is to choose."""
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
    """Return the dtype of pandas that holds the same numbers and gaps."""
    import pandas as pd

    if dtype.kind == "b":
        return pd.BooleanDtype()
    return pd.api.types.pandas_dtype(f"{'U' if dtype.kind == 'u' else ''}Int{8 * dtype.itemsize}")
