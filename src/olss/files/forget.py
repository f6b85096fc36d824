"""Rows out of a sketch file for good."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from olss.diagnostics.select import column_of
from olss.errors import InputError, OlssWarning
from olss.memory import sketch_file
from olss.memory.state import State
from olss.sketch import Sketch, state_of
from olss.tables.text_columns import OneHot
from olss.util.text import escape_controls

__all__ = ["Forgotten", "forget"]

SUBTRACTED = (
    "They are subtracted from the Gram matrix of everything seen. Similar rows that earlier draws "
    "dropped are still in it, as part of a sum."
)
NO_MOMENTS = "No Gram matrix is kept, so no sum over rows seen contains them."
SCALES = "The scales of columns, fitted to the first rows, stay."
COUNTS = (
    "Counts stay: rows seen, and how many rows each file had. Copies of the file are not touched."
)


@dataclass(frozen=True)
class Forgotten:
    """What `forget` did; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    removed, rows, seen : int
        Rows that went, rows held now, rows seen.
    remains : list of str
        What of them is left in the file, in words.
    """

    path: Path
    removed: int
    rows: int
    seen: int
    remains: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.removed:
            return f"{self.path}: no row held matches; the file is unchanged."
        went = "1 row" if self.removed == 1 else f"{self.removed:,} rows"
        lines = [f"{self.path}: {went} removed, {self.rows:,} of {self.seen:,} seen are left."]
        return escape_controls("\n".join(lines + self.remains))


def forget(path: str | os.PathLike[str], where: Mapping[str, Any]) -> Forgotten:
    """Take rows out of a sketch file for good: the file is written anew, whole or not at all.

    What a row taken out had in the sums kept is taken off; see `olss.Sketch.remove`. The file goes
    on as before: under "weighted" and "reservoir" it is an unbiased sketch of all rows but these.

    Parameters
    ----------
    path : path
        A file made by `compress`, or by `olss.Sketch.save`.
    where : mapping of str to value or values
        Columns, and the values by which rows go; several columns must all match. None stands for
        a missing value.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = f"{tempfile.mkdtemp()}/out.parquet"
    >>> people = {"person": ["ann", "bob", "ann"], "x": [1.0, 2.0, 3.0]}
    >>> Sketch(10, "reservoir").update(people).save(path)
    >>> forget(path, {"person": "ann"}).removed, len(Sketch.load(path))
    (2, 1)
    """
    if not isinstance(where, Mapping) or not where:
        raise InputError(f"where must name columns and values, found {where!r}.")
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "there is no sketch file", str(path))
    with sketch_file.lock(path), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", OlssWarning)
        sketch = Sketch.load(path)
        removed = sketch.remove(where=where)
        if removed:
            sketch.save(path)
    state = state_of(sketch)
    remains = [SUBTRACTED if state.moments is not None else NO_MOMENTS]
    remains += [SCALES] if state.encoder.plan is not None else []
    remains += [
        f"The value {value!r} stays listed among the values of column {name!r}."
        for name, value in _known_values(state, where)
    ]
    remains += [str(w.message) for w in told if issubclass(w.category, OlssWarning)]
    return Forgotten(path, removed, len(sketch), sketch.seen, [*remains, COUNTS])


def _known_values(state: State, where: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the values that the column plan, or a column of categories, knows by name."""
    known: dict[str, set[Any]] = {name: set() for name in where}
    for column in () if state.encoder.plan is None else state.encoder.plan.columns:
        if isinstance(column, OneHot) and column.name in known:
            known[column.name] |= set(column.values)
    for name in where:
        column = column_of(state, name, "where")
        kind = getattr(column, "type", None)
        if hasattr(kind, "value_type") and hasattr(kind, "index_type"):  # categories
            for chunk in column.chunks:
                known[name] |= set(chunk.dictionary.to_pylist())
    found = []
    for name, wanted in where.items():
        values = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        found += [(name, v) for v in values if v is not None and v in known[name]]
    return found
