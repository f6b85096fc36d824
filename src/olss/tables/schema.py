"""Columns by their names: put in order, promoted where nothing is lost, refused otherwise.

The schema of what is kept grows with what comes: whole numbers to wider ones or to floats, dates
to finer units or to times without a zone, nothing at all to anything. Categories and text go into
each other; what was known first stays. What comes later is brought into the schema known, value by
value, and a value that would not stay what it is ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from olss.errors import DataError
from olss.tables.arrow_types import as_type, is_text, value_type
from olss.util.checks import suggest

__all__ = ["check_names", "conform", "unify_schemas"]

# So many names are listed in a message.
NAMES_SHOWN = 5


def unify_schemas(known: Any, new: Any, *, place: str, allow_new: bool | None = None) -> Any:
    """Return the schema that holds what two schemas hold, columns ordered as known.

    Parameters
    ----------
    known, new : pyarrow.Schema
        Of what is kept and of what comes, in plain form (see `olss.tables.arrow_types`).
    place : str
        Where the new rows are from, for messages.
    allow_new : bool or None
        Whether columns not known before are added, at the end. They are missing in rows before.
        None where nobody can ask for it.

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
        text = _names_text(place, missing, [] if allow_new else extra)
        if allow_new is False and not missing:
            text += ", or allow new columns (new_columns=True)"
        raise DataError(f"{text}.")
    fields = [
        pa.field(field.name, _common(field.type, here[field.name].type, field.name, place))
        for field in known
    ]
    return pa.schema([*fields, *(pa.field(name, here[name].type) for name in extra)])


def conform(table: Any, schema: Any, *, place: str) -> Any:
    """Return a table, or a record batch, with the columns, order and types of a schema.

    Columns that it lacks are null. A value that would change is an error that names it.
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
                f"which it is elsewhere, without loss ({_first_line(error)}). Convert the column "
                "so that all rows have it in one type."
            ) from error
    return type(table).from_arrays(columns, schema=schema)


def check_names(names: Sequence[str], place: str) -> None:
    """Raise `DataError` if two columns share a name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{place} has two columns called {name!r}. Rename one.")
        seen.add(name)


def _common(known: Any, new: Any, name: str, place: str) -> Any:
    """Return the type that holds values of both, or raise `DataError`."""
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
    if families == {"whole", "float"}:
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
        f"{place}: column {name!r} is {new}, before it was {known}. Convert it to the type of "
        "before, or begin anew with these rows."
    )


def _family(kind: Any) -> str:
    """Return the name under which types may be promoted to each other."""
    import pyarrow.types as kinds

    if kinds.is_fixed_size_list(kind):
        return f"vector of {kind.list_size}"
    families = {
        "whole": kinds.is_integer,
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


def _names_text(place: str, missing: Sequence[str], extra: Sequence[str]) -> str:
    """Say which columns are missing and which are too many, and what may have been meant."""
    parts = []
    if missing:
        parts.append(f"lacks {_listed(missing)} known from before")
    if extra:
        parts.append(f"has {_listed(extra)} not known before")
    text = f"{place} {' and '.join(parts)}."
    if missing and extra:
        near = suggest(extra[0], missing)
        text += f" {near}" if near.startswith("Did") else ""
    remedy = "Rename columns or leave them out" if extra else "Add it, null where it is unknown"
    return f"{text} {remedy}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"the column{'s' if len(names) > 1 else ''} {shown}{more}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), repr(error)).rstrip(".")
