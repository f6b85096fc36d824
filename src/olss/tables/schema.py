"""Match columns by name: reorder them, promote types where nothing is lost, refuse the rest.

The schema of the rows kept grows with new rows: integers to wider ones or to floats, dates to finer
units or to timestamps without a zone, null to anything. Categories and strings convert into each
other; the type known first stays. New rows are converted to the known schema, and a value that
would change is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from olss.errors import DataError
from olss.tables.arrow_types import as_type, is_text, value_type
from olss.util.checks import suggest

__all__ = ["check_names", "conform", "unify_schemas"]

MAX_NAMES = 5  # in a message


def unify_schemas(known: Any, new: Any, *, place: str, allow_new: bool | None = None) -> Any:
    """Return a schema for rows of both, with the columns in the known order.

    Parameters
    ----------
    known, new : pyarrow.Schema
        Of rows kept and new rows, in plain form (see `olss.tables.arrow_types`).
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
        pa.field(field.name, _common(field.type, here[field.name].type, field.name, place))
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


def _common(known: Any, new: Any, name: str, place: str) -> Any:
    """Return a type for values of both, or raise `DataError`."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if known == new or kinds.is_null(new):
        return known
    if kinds.is_null(known):
        return new
    if kinds.is_dictionary(known) or kinds.is_dictionary(new):
        plain = _common(value_type(known), value_type(new), name, place)
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
