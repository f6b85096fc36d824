"""One class for each kind of column: what its values are worth as numbers to be scored.

Every kind answers the same questions, see `Column`. `decide` looks at a column of sample rows and
returns it as this kind sees it, or a reason why it is not of this kind. `KINDS` says in which order
kinds are asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from olss.errors import InputError
from olss.tables.column import Carried, Column, decoded
from olss.tables.number_columns import Date, Number, Vector
from olss.tables.text_columns import TextByHash, TextByValue
from olss.util import checks

__all__ = [
    "KINDS",
    "Carried",
    "Column",
    "Date",
    "Number",
    "TextByHash",
    "TextByValue",
    "Vector",
    "column_from_json",
    "decide",
]

KINDS: dict[str, type[Column]] = {
    kind.use: kind for kind in (Number, Date, Vector, TextByValue, TextByHash, Carried)
}


def decide(name: str, column: Any) -> Column:
    """Return a column of sample rows as the first kind that takes it.

    If none but `Carried` does, the last reason given by the others says why.

    Examples
    --------
    >>> import pyarrow as pa
    >>> decide("colour", pa.chunked_array([["red", "red", "blue", "blue"]])).width
    3
    >>> decide("note", pa.chunked_array([["a", "b", "c"]])).why
    'text, 3 values in 3'
    """
    column, text, reason = decoded(column), str(column.type), ""
    for kind in KINDS.values():
        found = kind.decide(name, column)
        if isinstance(found, str):
            reason = found or reason
            continue
        why = reason if isinstance(found, Carried) and reason else found.why
        return replace(found, type=text, why=why)
    raise AssertionError("a column is carried if nothing else")


def column_from_json(state: Any) -> Column:
    """Return the column that `Column.to_json` wrote, or raise `ValueError`."""
    if not isinstance(state, dict):
        raise InputError(f"a column must be a JSON object, found {state!r:.80}.")
    return KINDS[checks.choice("use", state.get("use"), KINDS)].from_json(state)
