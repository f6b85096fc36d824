"""Arrow types and schemas: the plain form in which tables are kept, and columns matched by name.

Some Arrow types, such as views of strings, cannot be concatenated or written to Parquet. Tables are
kept with types that can; `olss.tables.frames.FrameKind` records the original types, and rows
handed out have them again.

The schema of the rows kept grows with new rows: integers to wider ones or to floats, dates to finer
units or to timestamps without a zone, null to anything. Categories and strings convert into each
other; the type known first stays. New rows are converted to the known schema, and a value that
would change is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError
from olss.util.checks import suggest

MAX_NAMES = 5  # in a message


def unify_schemas(known: Any, new: Any, *, place: str, allow_new: bool | None = None) -> Any:
    """Return a schema for rows of both, with the columns in the known order.

    Parameters
    ----------
    known, new : pyarrow.Schema
        Of rows kept and new rows, in plain form (see `plain_type`).
    place : str
        Origin of the new rows, for messages.
    allow_new : bool or None
        Whether new columns are added, at the end; they are null in earlier rows. None if there is
        no such option.

    Examples
    --------
    >>> import pyarrow as pa
    >>> known = pa.schema({"day": pa.date32(), "n": pa.int32()})
    >>> unify_schemas(known, pa.schema({"n": pa.float64(), "day": pa.null()}), place="march.csv")
    day: date32[day]
    n: double
    """
    import pyarrow as pa

    if known.equals(new):
        return known
    check_names(new.names, place)
    here = dict(zip(new.names, new, strict=True))
    before = set(known.names)
    extra = [name for name in new.names if name not in before]
    missing = [name for name in known.names if name not in here]
    if missing or (extra and not allow_new):
        text = _describe_columns(place, missing, [] if allow_new else extra)
        if allow_new is False and not missing:
            text += ', or set new_columns to "keep" or "ignore" (--new-columns)'
        raise DataError(f"{text}.")
    fields = [
        pa.field(field.name, _common_type(field.type, here[field.name].type, field.name, place))
        for field in known
    ]
    return pa.schema([*fields, *(pa.field(name, here[name].type) for name in extra)])


def conform(table: Any, schema: Any, *, place: str) -> Any:
    """Convert a table, or a record batch, to a schema; columns it lacks are null.

    A value that would change raises `DataError`.
    """
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    at = {name: i for i, name in enumerate(table.schema.names)}
    columns = []
    for field in schema:
        if field.name not in at:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(at[field.name])
        try:
            columns.append(as_type(column, field.type))
        except pa.ArrowException as error:
            raise DataError(
                f"{place}: column {field.name!r} is {column.type} and cannot become {field.type}, "
                f"as in other rows, without loss ({_first_line(error)}). Convert the column to one "
                "type in all rows."
            ) from error
    return type(table).from_arrays(columns, schema=schema)


def check_names(names: Sequence[str], place: str) -> None:
    """Raise `DataError` if two columns share a name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{place} has two columns named {name!r}. Rename one.")
        seen.add(name)


def _common_type(known: Any, new: Any, name: str, place: str) -> Any:
    """Return a type for values of both, or raise `DataError`."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if known == new or kinds.is_null(new):
        return known
    if kinds.is_null(known):
        return new
    if kinds.is_dictionary(known) or kinds.is_dictionary(new):
        plain = _common_type(value_type(known), value_type(new), name, place)
        if not kinds.is_dictionary(known):
            return plain
        ordered = known.ordered and kinds.is_dictionary(new) and new.ordered
        return pa.dictionary(pa.int32(), plain, ordered)
    families = {_family(known), _family(new)}
    if families == {"integer", "float"}:
        return pa.float64()
    if families == {"date", "timestamp"}:
        return known if kinds.is_timestamp(known) else new
    if len(families) == 1:
        try:
            schemas = [pa.schema([("", known)]), pa.schema([("", new)])]
            both = pa.unify_schemas(schemas, promote_options="permissive")
            return both.field(0).type
        except pa.ArrowException:
            pass
    raise DataError(
        f"{place}: column {name!r} is {new}, but was {known} before. Convert it to the earlier "
        "type, or start again with these rows."
    )


def _family(kind: Any) -> str:
    """Return the name of a family of types that may be promoted to each other."""
    import pyarrow.types as kinds

    if kinds.is_fixed_size_list(kind):
        return f"vector of {kind.list_size}"
    families = {
        "integer": kinds.is_integer,
        "float": kinds.is_floating,
        "decimal": kinds.is_decimal,
        "date": kinds.is_date,
        "time": kinds.is_time,
        "timestamp": lambda k: kinds.is_timestamp(k) and k.tz is None,
        "text": is_text,
        "bytes": lambda k: kinds.is_binary(k) or kinds.is_large_binary(k),
        "list": lambda k: kinds.is_list(k) or kinds.is_large_list(k),
    }
    return next((name for name, belongs in families.items() if belongs(kind)), str(kind.id))


def _describe_columns(place: str, missing: Sequence[str], extra: Sequence[str]) -> str:
    """Describe missing and unknown columns, with a suggestion."""
    parts = []
    if missing:
        parts.append(f"lacks {_list_names(missing)} of earlier rows")
    if extra:
        parts.append(f"has {_list_names(extra)} unknown before")
    text = f"{place} {' and '.join(parts)}."
    if missing and extra:
        near = suggest(extra[0], missing)
        text += f" {near}" if near.startswith("Did") else ""
    remedy = "Rename columns or leave them out" if extra else "Add it, with null where unknown"
    return f"{text} {remedy}"


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f"the column{'s' if len(names) > 1 else ''} {shown}{more}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), repr(error)).rstrip(".")


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
    pandas wherever it is installed; here that happens only for types other than numbers and
    booleans.

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
    if kinds.is_boolean(array.type) and not array.null_count:
        return _unpack_bits(array.buffers()[1], array)
    if not is_number(array.type):
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values
    if not array.null_count:
        return np.from_dlpack(array)
    valid, numbers = array.buffers()
    there = _unpack_bits(valid, array)
    whole = pa.Array.from_buffers(array.type, len(array), [None, numbers], offset=array.offset)
    values = np.from_dlpack(whole)
    if kinds.is_integer(array.type):
        values = values.astype(np.float64)
    return np.where(there, values, np.nan)


def label_array(column: Any) -> NDArray[np.str_]:
    """Return a column as strings, "(missing)" where it is null."""
    import pyarrow as pa

    words = column.cast(pa.large_string()).to_pylist()
    return np.asarray(["(missing)" if word is None else word for word in words], dtype=np.str_)


def _unpack_bits(buffer: Any, array: Any) -> NDArray[np.bool_]:
    """Return the bits of a buffer that belong to the entries of an array."""
    bits = np.frombuffer(buffer, np.uint8) if len(array) else np.zeros(0, np.uint8)
    flags = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return flags[array.offset :].view(np.bool_)


def dictionary_codes(array: Any) -> NDArray[np.int64]:
    """Return the place of each value in a dictionary array's dictionary, -1 where it is missing.

    `fill_null` does the same, but imports pandas wherever it is installed.
    """
    codes = numpy_array(array.indices)
    return (np.nan_to_num(codes, nan=-1) if array.indices.null_count else codes).astype(np.int64)


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
    import pyarrow.types as kinds

    if column.type == kind:
        return column
    import pyarrow.compute as pc  # slow to load

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


def to_microseconds(column: Any) -> Any:
    """Return times as exactly as Python has them, where that is exact: pandas has more digits."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type
    if getattr(kind, "unit", None) != "ns":
        return column
    try:
        if kinds.is_timestamp(kind):
            return column.cast(pa.timestamp("us", kind.tz))
        return column.cast(pa.duration("us") if kinds.is_duration(kind) else pa.time64("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.large_string())


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
