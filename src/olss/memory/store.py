"""Aligned columns of rows: arrays, tensors, Arrow tables. Nothing in a store is ever changed.

A sketch builds the rows it will hold beside those it holds and then points to them, in one step.
So whatever interrupts it finds rows of one moment; and an array a caller took from a sketch stays
what it was. Memory that nobody can see any more is overwritten before it is given back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.tables.arrow_types import taken
from olss.util.threads import ordered_map

__all__ = ["Array", "Indices", "RowStore", "concatenated", "is_arrow", "length_of", "take"]

Array: TypeAlias = Any  # numpy.ndarray, torch.Tensor, SciPy CSR rows or pyarrow.Table
Indices: TypeAlias = NDArray[np.int64]


def _references(columns: Mapping[str, Array]) -> list[int]:
    """Count the references to each column, the dictionary's and those of this call included."""
    return [sys.getrefcount(column) for column in columns.values()]


# Of a column that only its store has. A call's own differ between versions of Python.
(OWN_REFERENCES,) = _references({"alone": object()})
PIECE_BYTES = 4_000_000  # that a thread copies at a time


class RowStore:
    """Columns of equal length under names; the first dimension of each is the row.

    Parameters
    ----------
    columns : mapping of str to array
        They are the store's own from now on: `gathered` and `take` make copies.

    Examples
    --------
    >>> held = RowStore({"x": np.array([10, 11, 12])})
    >>> new = RowStore({"x": np.array([20, 21])})
    >>> held.gathered(np.array([0, 2]), new, np.array([1]))["x"]
    array([10, 12, 21])
    """

    def __init__(self, columns: Mapping[str, Array] | None = None) -> None:
        self._columns = dict(columns or {})
        self._length = length_of(next(iter(self._columns.values()))) if self._columns else 0
        self._forgotten: Indices | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def get(self, name: str) -> Array | None:
        """Return a column, or None if there is none of this name."""
        return self._columns.get(name)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(map(_nbytes, self._columns.values()))

    def with_columns(self, columns: Mapping[str, Array]) -> RowStore:
        """Return a store of these columns and, under other names, those of this one."""
        return RowStore(self._columns | dict(columns))

    def take(self, rows: Indices) -> RowStore:
        """Return a store of copies of some rows."""
        return RowStore({name: take(column, rows) for name, column in self._columns.items()})

    def gathered(self, kept: Indices, new: RowStore, chosen: Indices) -> RowStore:
        """Return a store of copies of some rows of this one, then of some rows of `new`."""
        if not len(self):
            return new.take(chosen)
        return RowStore(
            {
                name: concatenated([column, new[name]], [kept, chosen])
                for name, column in self._columns.items()
            }
        )

    def forget(self, rows: Indices | None) -> None:
        """Have some rows overwritten when this store is let go of, whoever still sees them."""
        self._forgotten = rows

    def __del__(self) -> None:
        columns = getattr(self, "_columns", {})
        counts = _references(columns)
        for column, count in zip(columns.values(), counts, strict=True):
            alone = count <= OWN_REFERENCES
            if is_arrow(column):
                if alone and self._forgotten is not None:
                    _wipe_arrow(column)
            elif alone and isinstance(column, np.ndarray) and column.flags.owndata:
                _wipe(column, slice(None))  # and not what it may be a view of: a caller's file
            elif self._forgotten is not None:
                _wipe(column, self._forgotten)


def length_of(column: Array) -> int:
    """Return the number of rows of a column of any kind."""
    return int(column.num_rows if is_arrow(column) else column.shape[0])


def is_arrow(column: Any) -> bool:
    """Whether a column is an Arrow table; does not import pyarrow to find out."""
    return type(column).__module__.startswith("pyarrow")


def take(column: Array, rows: Indices) -> Array:
    """Return a copy of the rows at `rows`."""
    if is_arrow(column):
        return _taken(column, rows)
    if is_torch_array(column):
        return column[_torch_indices(rows, column)]
    return column[rows]


def concatenated(columns: Sequence[Array], rows: Sequence[Indices]) -> Array:
    """Return a copy of some rows of several columns of one kind, one after the other."""
    first = columns[0]
    if is_arrow(first):
        return _together([_taken(c, at) for c, at in zip(columns, rows, strict=True)])
    if sp.issparse(first):
        return sp.csr_array(sp.vstack([c[at] for c, at in zip(columns, rows, strict=True)]))
    shape = (sum(map(len, rows)), *first.shape[1:])
    if is_torch_array(first):
        return _filled(first.new_empty(shape), columns, rows)
    # Text is as wide as the longest.
    dtype = np.result_type(*columns) if first.dtype.kind == "U" else first.dtype
    return _filled(np.empty(shape, dtype=dtype), columns, rows)


def _filled(result: Array, columns: Sequence[Array], rows: Sequence[Indices]) -> Array:
    start = 0
    for column, at in zip(columns, rows, strict=True):
        part = result[start : start + len(at)]
        if is_torch_array(column):
            part[...] = column[_torch_indices(at, column)]
        elif result.dtype == column.dtype and column.flags.c_contiguous:
            _gather(column, at, part)
        else:
            part[...] = column[at]
        start += len(at)
    return result


def _gather(column: NDArray[Any], rows: Indices, into: NDArray[Any]) -> None:
    """Copy some rows of an array, many of them on several threads."""

    def copy(pieces: Iterable[slice]) -> Iterator[None]:
        for piece in pieces:
            # "raise" would copy first
            np.take(column, rows[piece], axis=0, out=into[piece], mode="clip")
            yield

    step = max(1, PIECE_BYTES * len(rows) // max(into.nbytes, 1))
    pieces = [slice(start, start + step) for start in range(0, len(rows), step)]
    if len(pieces) > 1:
        ordered_map(pieces, copy)
    else:
        list(copy(pieces))


def _taken(table: Any, rows: Indices) -> Any:
    """Return a copy of rows of a table. A column in several chunks is made one first."""
    import pyarrow as pa

    if not table.num_columns:
        return table.slice(0, 0) if not len(rows) else table
    columns = [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
    return pa.Table.from_arrays([taken(column, rows) for column in columns], schema=table.schema)


def _together(tables: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables).combine_chunks()


def _torch_indices(indices: Indices, like: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(indices)).to(like.device)


def _nbytes(column: Array) -> int:
    if sp.issparse(column):
        return int(column.data.nbytes + column.indices.nbytes + column.indptr.nbytes)
    return int(column.nbytes)


def _wipe(column: Array, rows: Any) -> None:
    if sp.issparse(column):
        stored = np.zeros(column.shape[0], dtype=bool)
        stored[rows] = True
        column.data[np.repeat(stored, np.diff(column.indptr))] = 0
    elif is_torch_array(column):
        column[rows if isinstance(rows, slice) else _torch_indices(rows, column)] = 0
    elif column.flags.writeable:
        column[rows] = np.zeros((), column.dtype)


def _wipe_arrow(table: Any) -> None:
    """Overwrite the buffers of a table that nobody else has; callers get copies of its rows."""
    import ctypes

    for column in table.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.is_mutable:
                    ctypes.memset(buffer.address, 0, buffer.size)
