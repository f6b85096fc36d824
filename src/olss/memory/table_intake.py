"""Tables a sketch is given: columns by name, the target apart, types promoted without loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from olss.core.blocks import dense_array, to_numpy
from olss.errors import DataError, InputError
from olss.memory.own_columns import OWN
from olss.memory.store import RowStore, take
from olss.tables.class_labels import check_no_missing
from olss.tables.frames import FrameKind, from_arrow, is_table, to_arrow
from olss.tables.schema import conform, unify_schemas
from olss.util import checks

__all__ = ["TableKind", "incoming_table", "with_schemas"]


@dataclass(frozen=True)
class TableKind:
    """What the tables given to a sketch are.

    Attributes
    ----------
    rows, y : FrameKind
        Of which library, with which types of its own; of the target, if there is one.
    target : str or None
        The name of the column to be predicted.
    task : str or None
        Of rows from files: the name of the column that says the task.
    """

    rows: FrameKind
    y: FrameKind | None = None
    target: str | None = None
    task: str | None = None

    def frame(self, table: Any) -> Any:
        """Return rows as a frame of the kind that came in: a copy, of these rows alone."""
        return from_arrow(take(table, np.arange(table.num_rows)), self.rows)

    def column(self, table: Any) -> Any:
        """Return targets as a column of the kind that came in."""
        assert self.y is not None
        frame = self.targets(table)
        # Of a frame whose columns have whole numbers for names, the target's is one, too.
        return frame.column(0) if self.y.library == "pyarrow" else frame[_names(frame)[0]]

    def targets(self, table: Any) -> Any:
        """Return targets as a frame of the kind that came in, of one column."""
        assert self.y is not None
        return from_arrow(take(table, np.arange(table.num_rows)), self.y)


def incoming_table(
    rows: Any,
    y: Any,
    *,
    held: RowStore,
    known: TableKind | None,
    new_columns: bool = False,
    keep_index: bool = False,
    only_rows: bool = False,
) -> tuple[dict[str, Any], TableKind]:
    """Return the columns X and y of an update as tables, and what tables are given.

    Their schemas have room for what is held, too: see `with_schemas`. Raises `DataError` if the
    two do not fit. With `only_rows`, a target may be there or not, and does not matter.
    """
    if "X" in held and known is None:
        raise DataError("rows were an array so far and are a table now; use one kind throughout.")
    table, frame = to_arrow(rows, keep_index=keep_index)
    before = None if known is None else known.target
    if only_rows and known is not None:
        table = table.drop_columns([n for n in table.schema.names if n == before])
        schema = unify_schemas(held["X"].schema, table.schema, place="rows")
        return {"X": conform(table, schema, place="rows")}, known
    if y is None or isinstance(y, str):
        target = y or before
        parts = _split(table, target)
        y_frame = frame if target is not None else None
    else:
        parts, y_frame = _with_target(table, y, _name_of(y) or before or "y")
        target = parts["y"].schema.names[0]
    if not table.num_rows:
        raise DataError("rows must hold at least one row, found an empty table.")
    if known is not None and before != target:
        was, now = (_told(name) for name in (before, target))
        raise DataError(
            f"the rows seen so far came with {was}, these come with {now}; every update must "
            "bring the same columns."
        )
    _check_names(parts["X"], target)
    if known is None:
        return parts, TableKind(frame, y_frame, target)
    for name, part in parts.items():
        allowed = new_columns and name == "X"
        schema = unify_schemas(held[name].schema, part.schema, place="rows", allow_new=allowed)
        parts[name] = conform(part, schema, place="rows")
    joined = _joined(known.rows, frame, parts["X"].schema)
    if target is None or known.y is None or y_frame is None:
        return parts, TableKind(joined, task=known.task)
    return parts, TableKind(
        joined, _joined(known.y, y_frame, parts["y"].schema), target, known.task
    )


def _joined(known: FrameKind, new: FrameKind, schema: Any) -> FrameKind:
    """Return the kind of both; rows that came as plain Arrow, from files, go by what follows."""
    if known.library == "pyarrow" != new.library:
        return new.joined(known, schema)
    return known.joined(new, schema)


def with_schemas(held: RowStore, parts: dict[str, Any]) -> RowStore:
    """Return the rows held, with the columns and types of others."""
    if all(held[name].schema.equals(part.schema) for name, part in parts.items()):
        return held
    return held.with_columns(
        {name: conform(held[name], part.schema, place="the sketch") for name, part in parts.items()}
    )


def _split(table: Any, target: str | None) -> dict[str, Any]:
    if target is None:
        return {"X": table}
    checks.column("y", target, table.schema.names)
    check_no_missing(target, table.column(target))
    return {"X": table.drop_columns([target]), "y": table.select([target])}


def _with_target(table: Any, y: Any, target: str) -> tuple[dict[str, Any], FrameKind]:
    """Return rows and a target that came beside them; a frame of one column names it itself."""
    if is_table(y):
        frame = y
    elif hasattr(y, "to_frame"):
        frame = y.to_frame(target)
    else:
        frame = {target: to_numpy(dense_array(y, "y")) if hasattr(y, "detach") else y}
    if hasattr(frame, "reset_index"):  # an index says nothing here
        frame = frame.reset_index(drop=True)
    column, kind = to_arrow(frame, place="y")
    if column.num_columns != 1:
        raise DataError(
            f"y must be one column, found a table of {column.num_columns:,}. Give the one to be "
            "predicted; the others may be among the rows, or ride along in extra."
        )
    (target,) = column.schema.names
    if target in table.schema.names:
        raise InputError(
            f"rows have a column {target!r} already, the name of y; if that is the target, say "
            f"y={target!r}, else rename it."
        )
    if column.num_rows != table.num_rows:
        raise DataError(
            f"y must have one entry for each of the {table.num_rows} rows, found {column.num_rows}."
        )
    check_no_missing(target, column.column(0))
    return {"X": table, "y": column}, kind


def _check_names(X: Any, target: str | None) -> None:
    if not X.num_columns:
        raise DataError(f"rows have no columns beside the target {target!r}.")
    for name in X.schema.names:
        if name in OWN.values():
            raise InputError(
                f"rows have a column {name!r}, a name a sketch needs for itself: they may come "
                "from a sketch already. Rename the column, or leave it out."
            )


def _names(frame: Any) -> list[Any]:
    """Return what a frame, or a mapping, calls its columns."""
    return list(getattr(frame, "columns", frame))


def _name_of(y: Any) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def _told(target: str | None) -> str:
    return "no target" if target is None else f"the target {target!r}"
