"""Remove rows from a sketch file for good."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from olss.diagnostics.select import chosen_rows, column_of, find_matches
from olss.errors import InputError, OlssWarning
from olss.memory import sketch_file
from olss.memory.state import State
from olss.sketch import Sketch, state_of
from olss.tables.columns import OneHot
from olss.util.files import is_address, local_copy
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
    path : Path, or str for an address
    removed, rows, seen : int
        Rows removed, rows left, rows seen.
    remains : list of str
        What is left of them in the file, in words.
    dry_run : bool
        Whether the file was left as it is, and `removed` and `rows` are what they would be.
    """

    path: Path | str
    removed: int
    rows: int
    seen: int
    remains: list[str] = field(default_factory=list)
    dry_run: bool = False

    def __str__(self) -> str:
        if not self.removed:
            return escape_controls(f"{self.path}: no row held matches; the file is unchanged.")
        went = "1 row" if self.removed == 1 else f"{self.removed:,} rows"
        done, are = ("would be removed", "would be") if self.dry_run else ("removed", "are")
        lines = [f"{self.path}: {went} {done}, {self.rows:,} of {self.seen:,} seen {are} left."]
        return escape_controls("\n".join(lines + self.remains))


def forget(
    path: str | os.PathLike[str], where: Mapping[str, Any], *, dry_run: bool = False
) -> Forgotten:
    """Remove rows from a sketch file for good; it is replaced as a whole or not at all.

    The rows are subtracted from the sums kept; see `olss.Sketch.remove`. The file can be continued
    as before: under "weighted" and "reservoir" it is an unbiased sketch of all rows but these.

    Parameters
    ----------
    path : path
        A file made by `compress`, or by `olss.Sketch.save`.
    where : mapping of str to value, values or ranges
        Columns, and what the rows to remove have there: a value, a list of values (any of them),
        a range such as ``("<", 5)`` or a list of ranges (all of them). Several columns must all
        match. None stands for a missing value.
    dry_run : bool
        Count the rows, and change nothing.

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
    if isinstance(path, str) and is_address(path):
        with local_copy(path, changes=not dry_run) as local:
            return replace(forget(local, where, dry_run=dry_run), path=path)
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "there is no sketch file", str(path))
    with sketch_file.lock(path), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", OlssWarning)
        sketch = Sketch.load(path)
        if dry_run:
            state = state_of(sketch)
            removed = int(chosen_rows(state, where).sum())
            return Forgotten(path, removed, len(sketch) - removed, sketch.seen, dry_run=True)
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


def _known_values(state: State, where: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the values chosen that stay listed, in the encoder or in a column of categories."""
    import pyarrow as pa

    known: dict[str, set[str]] = {name: set() for name in where}
    for column in () if state.encoder.plan is None else state.encoder.plan.columns:
        if isinstance(column, OneHot) and column.name in known:
            known[column.name] |= set(column.values)
    for name in where:
        column = column_of(state, name, "where")
        kind = getattr(column, "type", None)
        if hasattr(kind, "value_type") and hasattr(kind, "index_type"):  # categories
            for chunk in column.chunks:
                known[name] |= {str(value) for value in chunk.dictionary.to_pylist()}
    found = []
    for name, wanted in where.items():
        values = sorted(known[name])
        matches = find_matches(name, pa.array(values, pa.large_string()), wanted)
        found += [(name, value) for value, match in zip(values, matches, strict=True) if match]
    return found
