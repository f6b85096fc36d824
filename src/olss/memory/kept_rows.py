"""Rows as users see them: those a sketch keeps, or those of its hold-out."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from olss.errors import InputError
from olss.memory import sketch_file
from olss.memory.rows import EXTRA, Array, Floats, Indices, copy_column, read_only
from olss.memory.state import State


class KeptRows:
    """Columns of kept rows, each with an entry a row, in the order the rows came in.

    `olss.Sketch.holdout` is one: the rows as they were when it was asked for.
    """

    def __init__(self, state: State) -> None:
        self._own = state

    def __repr__(self) -> str:
        return f"KeptRows({len(self):,} rows)"

    def _kept(self) -> State:
        """Return the state whose rows these are."""
        return self._own

    def _held(self, column: str | None = None) -> State:
        """Return the state if it has rows, or once had this column; else raise `InputError`."""
        state = self._kept()
        if (column in state.rows) if column else len(state.rows):
            return state
        if not state.seen:
            raise InputError("the sketch is empty; call update(rows, y) first.")
        raise InputError(
            f"the sketch holds none of the {state.seen:,} rows seen: all were removed. Call "
            "update(rows, y) or, for a file, olss compress, to add new ones."
        )

    def __len__(self) -> int:
        return len(self._kept().rows)

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows kept, (len, ...), or a frame."""
        state = self._held("X")
        if state.table is not None:
            return state.table.frame(state.rows["X"])
        return read_only(state.rows["X"])

    @property
    def y(self) -> Any:
        """Their targets, or None."""
        state = self._kept()
        if "y" not in state.rows:
            return None
        if state.table is not None:
            return state.table.column(state.rows["y"])
        return copy_column(state.rows["y"])

    @property
    def task(self) -> NDArray[Any]:
        """Their tasks."""
        tasks: NDArray[Any] = self._held("task").rows["task"].copy()
        return tasks

    @property
    def weight(self) -> Floats:
        """How many of the rows seen each stands for."""
        weights: Floats = self._held("weight").rows["weight"].copy()
        return weights

    @property
    def index(self) -> Indices:
        """Their positions in the stream."""
        indices: Indices = self._held("index").rows["index"].copy()
        return indices

    @property
    def extra(self) -> dict[str, Array]:
        """The extra columns."""
        rows = self._kept().rows
        names = [name for name in rows if name.startswith(EXTRA)]
        return {name.removeprefix(EXTRA): copy_column(rows[name]) for name in names}

    @property
    def frame(self) -> Any:
        """Tables: everything that is kept, as one frame of the kind that came in."""
        state = self._kept()
        if state.table is None:
            found = "nothing yet" if "X" not in state.rows else "arrays: use X, y and extra"
            raise InputError(f"frame needs a sketch of tables; this one holds {found}.")
        return state.table.frame(sketch_file.to_table(state))
