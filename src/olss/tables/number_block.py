"""Neighbouring columns of plain numbers, written in one step.

Column by column, the threads of a process would wait for each other before each of them, and two
threads would be slower than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.tables.column import Column
from olss.tables.gaps import Floats
from olss.tables.number_columns import Number

__all__ = ["NumberBlock", "neighbours"]

FLOATS = ("float", "double")  # as Arrow writes float32 and float64


@dataclass(frozen=True)
class NumberBlock:
    """Columns of floats: z = (x - shift) / scale in each, as `Number` has it.

    Attributes
    ----------
    columns : tuple of Number
        None of them marks where values are missing.
    shift, scale : (k, 1) float arrays
    """

    columns: tuple[Number, ...]
    shift: Floats
    scale: Floats

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def encode(self, arrays: Sequence[Any]) -> Any:
        """Return the columns as a record batch, or None if they are not floats without gaps."""
        import pyarrow as pa

        kinds = {str(array.type) for array in arrays}
        if len(kinds) > 1 or kinds.isdisjoint(FLOATS) or any(a.null_count for a in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write z of some rows into `out`, (k, rows)."""
        rows = encoded.slice(part.start, part.stop - part.start).to_tensor(row_major=False)
        numbers = rows.to_numpy().T
        np.subtract(numbers, self.shift.astype(numbers.dtype), out=out, casting="unsafe")
        out *= (1 / self.scale).astype(out.dtype)


def neighbours(columns: Sequence[Column]) -> list[tuple[NumberBlock | None, list[Column]]]:
    """Return columns in stretches, in their order, each with the block it is if it is one."""
    stretches: list[tuple[NumberBlock | None, list[Column]]] = []
    for kind, some in groupby(columns, _kind):
        stretch = list(some)
        numbers = tuple(column for column in stretch if isinstance(column, Number))
        block = None
        if kind is not None and len(stretch) > 1:
            shift, scale = ([getattr(c, name) for c in numbers] for name in ("shift", "scale"))
            block = NumberBlock(numbers, np.array(shift)[:, None], np.array(scale)[:, None])
        stretches.append((block, stretch))
    return stretches


def _kind(column: Column) -> str | None:
    """Return the type of a column that can be part of a block, else None."""
    plain = type(column) is Number and not column.missing and column.type in FLOATS
    return column.type if plain else None
