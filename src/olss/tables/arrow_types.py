"""Arrow types in the plain form in which tables are kept, and back.

Some Arrow types, such as views of strings, cannot be concatenated or written to Parquet. Tables
are kept with types that do. `olss.tables.frame_kind.FrameKind` records the original types, and rows
handed out have them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "arrow_array",
    "as_numbers",
    "as_type",
    "check_kept",
    "has_empty_lists",
    "have_same_keys",
    "is_number",
    "is_text",
    "numpy_array",
    "plain_table",
    "plain_type",
    "taken",
    "value_type",
]


def arrow_array(values: NDArray[Any]) -> Any:
    """Convert a (n,) NumPy array to Arrow.

    `pyarrow.array` does the same, but imports pandas wherever it is installed, which takes longer
    than sampling a hundred megabytes.

    Examples
    --------
    >>> arrow_array(np.array(["a", "äöü"])).to_pylist()
    ['a', 'äöü']
    """
    import pyarrow as pa

    if values.dtype.kind in "iuf" and values.dtype.isnative:
        numbers = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(values.dtype), len(values), [None, numbers]
        )
    if values.dtype.kind == "U":
        words = [word.encode() for word in values.tolist()]
        ends = np.cumsum([0, *map(len, words)], dtype=np.int64)
        kind = pa.large_string()
        if ends[-1] <= np.iinfo(np.int32).max:
            kind, ends = pa.string(), ends.astype(np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(words))]
        return pa.Array.from_buffers(kind, len(words), buffers)
    return pa.array(values)


def numpy_array(array: Any) -> NDArray[Any]:
    """Convert an Arrow array or column to a (n,) NumPy array that must not be written to.

    Null becomes NaN, and integers with null become floats. `to_numpy` does the same, but imports
    pandas wherever it is installed; here that happens only for other types than numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> numpy_array(pa.array([1, None, 3]))
    array([ 1., nan,  3.])
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if not is_number(array.type):
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values
    if not array.null_count:
        return np.from_dlpack(array)
    valid, numbers = array.buffers()
    there = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little").view(np.bool_)
    there = there[array.offset : array.offset + len(array)]
    whole = pa.Array.from_buffers(array.type, len(array), [None, numbers], offset=array.offset)
    values = np.from_dlpack(whole)
    if kinds.is_integer(array.type):
        values = values.astype(np.float64)
    return np.where(there, values, np.nan)


def taken(array: Any, rows: NDArray[np.int64]) -> Any:
    """Take rows of an Arrow array; for numbers NumPy does it in half the time of `take`."""
    if is_number(array.type) and not array.null_count:
        return arrow_array(numpy_array(array)[rows])
    return array.take(arrow_array(rows))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is of integers or floats."""
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


def value_type(kind: Any) -> Any:
    """Return the type of the values: for categories that of their dictionary."""
    import pyarrow.types as kinds

    return kind.value_type if kinds.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is of strings."""
    import pyarrow.types as kinds

    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def check_kept(array: Any, values: Any) -> None:
    """Raise `TypeError` if Python objects would come back from Arrow as something else.

    UUIDs would as bytes, sets as lists, dicts with keys they did not have, and Timestamps and
    Timedeltas of pandas without their nanoseconds. Tuples may become lists, and any missing value
    another kind of one.
    """
    import pyarrow.types as kinds

    kind = value_type(array.type)
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        raise TypeError("UUIDs would come back as bytes; convert them to strings")
    objects = isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"
    if not objects or is_text(kind) or (kinds.is_primitive(kind) and not kinds.is_temporal(kind)):
        return
    for kept, given in zip(array.to_pylist(), values, strict=True):
        if not _is_same(kept, given):
            raise TypeError(f"{given!r:.80} would come back as {kept!r:.80}")


def _is_same(kept: Any, given: Any) -> bool:
    """Whether Arrow returns an object unchanged."""
    if isinstance(given, Mapping):
        return (
            isinstance(kept, dict)
            and kept.keys() == given.keys()
            and all(_is_same(kept[key], value) for key, value in given.items())
        )
    if isinstance(given, list | tuple | np.ndarray):
        return (
            isinstance(kept, list) and len(kept) == len(given) and all(map(_is_same, kept, given))
        )
    if kept is None or kept != kept:
        return given is None or type(given).__name__ == "NAType" or given != given
    return bool(kept == given)


def have_same_keys(one: Any, other: Any) -> bool:
    """Whether structs at the same place in two Arrow types have the same field names."""
    import pyarrow.types as kinds

    if not (kinds.is_nested(one) and kinds.is_nested(other)):
        return True
    if kinds.is_struct(one) and kinds.is_struct(other):
        names = {field.name for field in one}
        return names == {field.name for field in other} and all(
            have_same_keys(one.field(name).type, other.field(name).type) for name in names
        )
    pairs = zip(_inside(one), _inside(other), strict=False)
    return all(have_same_keys(a, b) for a, b in pairs)


def _inside(kind: Any) -> list[Any]:
    return [kind.field(i).type for i in range(kind.num_fields)]


def has_empty_lists(kind: Any) -> bool:
    """Whether an Arrow type is or contains a list of fixed length 0."""
    import pyarrow.types as kinds

    if kinds.is_fixed_size_list(kind) and kind.list_size == 0:
        return True
    return kinds.is_nested(kind) and any(map(has_empty_lists, _inside(kind)))


def plain_type(kind: Any) -> Any:
    """Return the type in which values of an Arrow type are kept.

    Views of strings and bytes become large strings and bytes, categories get 32-bit codes,
    extension types become their storage, run-end encodings and list views are decoded.

    Examples
    --------
    >>> import pyarrow as pa
    >>> plain_type(pa.list_(pa.string_view()))
    ListType(list<item: large_string>)
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if kinds.is_string_view(kind):
        return pa.large_string()
    if kinds.is_binary_view(kind):
        return pa.large_binary()
    if kinds.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if kinds.is_dictionary(kind):
        return pa.dictionary(pa.int32(), plain_type(kind.value_type), kind.ordered)
    if not kinds.is_nested(kind) or kinds.is_union(kind):
        return kind
    if kinds.is_struct(kind):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    if kinds.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    item = _plain_field(kind.value_field)
    if kinds.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    large = kinds.is_large_list(kind) or kinds.is_large_list_view(kind)
    return pa.large_list(item) if large else pa.list_(item)


def _plain_field(field: Any) -> Any:
    return field.with_type(plain_type(field.type))


def plain_table(table: Any) -> Any:
    """Convert the columns of a table, or a record batch, to plain form.

    Fields lose their metadata and are nullable, so that schemas of equal tables are equal.
    """
    import pyarrow as pa

    fields = [pa.field(field.name, plain_type(field.type)) for field in table.schema]
    columns = [
        column if column.type == field.type else as_type(column, field.type)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return type(table).from_arrays(columns, schema=pa.schema(fields))


def as_type(column: Any, kind: Any) -> Any:
    """Cast a column or an array, or raise `pyarrow.ArrowException` if a value would change."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [as_type(chunk, kind) for chunk in column.chunks]
        return pa.chunked_array(chunks, type=kind)
    if isinstance(column, pa.ExtensionArray):
        return as_type(column.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, as_type(column, kind.storage_type))
    if kinds.is_run_end_encoded(column.type):
        return as_type(pc.run_end_decode(column), kind)
    if kinds.is_run_end_encoded(kind):
        return pc.run_end_encode(as_type(column, kind.value_type), kind.run_end_type)
    if kinds.is_dictionary(kind) and not kinds.is_dictionary(column.type):
        return as_type(as_type(column, kind.value_type).dictionary_encode(), kind)
    if kinds.is_dictionary(kind):
        codes, values = column.indices, column.dictionary
        if len(values) and not len(values) - 1 <= _largest(kind.index_type):
            raise pa.ArrowInvalid(f"{len(values):,} categories are too many for {kind}")
        return pa.DictionaryArray.from_arrays(
            codes.cast(kind.index_type), as_type(values, kind.value_type), ordered=kind.ordered
        )
    if kinds.is_dictionary(column.type):
        return as_type(column.dictionary, kind).take(column.indices)
    return column.cast(kind)


def as_numbers(column: Any) -> NDArray[np.float64] | None:
    """Convert a column of numbers or booleans to floats, NaN where missing; None for others."""
    import pyarrow as pa
    import pyarrow.types as kinds

    column = as_type(column, value_type(column.type))
    kind = column.type
    if kinds.is_integer(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind):
        column = column.cast(pa.float64())
    if not kinds.is_floating(column.type):
        return None
    return numpy_array(column).astype(np.float64)


def _largest(index_type: Any) -> int:
    import pyarrow.types as kinds

    bits: int = index_type.bit_width
    return int(2 ** (bits if kinds.is_unsigned_integer(index_type) else bits - 1)) - 1
