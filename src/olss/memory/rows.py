"""Aligned columns of rows: arrays, tensors, sparse rows, Arrow tables. A store never changes.

A sketch builds the rows it will hold beside those it holds and then swaps one reference, so an
interrupt at any moment finds the rows of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import is_arrow, is_sparse
from olss.tables.schema import arrow_array
from olss.util import sparse as sp
from olss.util.threads import ordered_map

Array: TypeAlias = Any  # numpy.ndarray, torch.Tensor, SciPy CSR rows or pyarrow.Table
Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

EXTRA = "extra:"  # prefix of the extra columns in a store

# The sketch's own columns, and what each is called in its file, beside the user's columns.
FILE_NAMES = {
    "weight": "olss_weight",
    "task": "olss_task",
    "index": "olss_index",
    "priority": "olss_priority",
    "initial_weight": "olss_initial_weight",
    "source": "olss_source",
    "row": "olss_row",
    "key": "olss_key",
}
ORIGIN = ("source", "row")  # the file a row came from and its place there; -1 for other rows
HOLDOUT = "olss_holdout"  # column of a file that says which rows are held out
REPLICATE = "olss_rep_"  # prefix of the columns of replicate weights in a file
RESERVED = frozenset({"X", "y", *FILE_NAMES})

COPY_BYTES = 4_000_000  # what one thread copies at a time


class RowStore:
    """Columns of equal length under names; the first dimension of each is the row.

    Parameters
    ----------
    columns : mapping of str to array
        They belong to the store from now on. `take` and `take_concat` make copies.

    Examples
    --------
    >>> held = RowStore({"x": np.array([10, 11, 12])})
    >>> new = RowStore({"x": np.array([20, 21])})
    >>> held.take_concat(np.array([0, 2]), new, np.array([1]))["x"]
    array([10, 12, 21])
    """

    def __init__(self, columns: Mapping[str, Array] | None = None) -> None:
        self._columns = dict(columns or {})
        self._length = length_of(next(iter(self._columns.values()))) if self._columns else 0

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
        """Return a store with these columns added or replaced."""
        return RowStore(self._columns | dict(columns))

    def take(self, rows: Indices) -> RowStore:
        """Return a store of copies of some rows."""
        return RowStore({name: take(column, rows) for name, column in self._columns.items()})

    def take_concat(self, kept: Indices, new: RowStore, chosen: Indices) -> RowStore:
        """Return a store of copies of some rows of this one, then of some rows of `new`."""
        if not len(self):
            return new.take(chosen)
        return RowStore(
            {
                name: _take_concat([column, new[name]], [kept, chosen])
                for name, column in self._columns.items()
            }
        )

    @staticmethod
    def concat(stores: Sequence[RowStore]) -> RowStore:
        """Return the rows of several stores as one."""
        parts = [store for store in stores if len(store)]
        if len(parts) < 2:
            return (parts or stores)[0]
        return RowStore({name: _concat([part[name] for part in parts]) for name in parts[0]})

    def wipe(self, rows: Indices) -> None:
        """Overwrite some rows with zeros; of an Arrow table, the whole table.

        The one exception to "a store never changes": for rows removed on request, after the
        sketch has let go of this store.
        """
        for column in self._columns.values():
            if is_arrow(column):
                _wipe_table(column)
            elif is_sparse(column):
                stored = np.zeros(column.shape[0], dtype=bool)
                stored[rows] = True
                column.data[np.repeat(stored, np.diff(column.indptr))] = 0
            elif is_torch_array(column):
                column[_torch_indices(rows, column)] = 0
            elif column.flags.writeable:
                column[rows] = np.zeros((), column.dtype)


def length_of(column: Array) -> int:
    """Return the number of rows of a column of any kind."""
    return int(column.num_rows if is_arrow(column) else column.shape[0])


def take(column: Array, rows: Indices) -> Array:
    """Return a copy of the rows at `rows`."""
    if is_arrow(column):
        return _take_table(column, rows)
    if is_torch_array(column):
        return column[_torch_indices(rows, column)]
    return column[rows]


def copy_column(column: Array) -> Array:
    """Return a copy of an array or a tensor."""
    return column.clone() if is_torch_array(column) else column.copy()


def read_only(column: Array) -> Array:
    """Return a read-only view of an array; a copy of a tensor, which cannot be read-only."""
    if is_torch_array(column):
        return column.clone()
    if is_sparse(column):
        parts = [read_only(part) for part in (column.data, column.indices, column.indptr)]
        return sp.csr_array(tuple(parts), shape=column.shape, copy=False)
    view = column.view()
    view.flags.writeable = False
    return view


def _take_concat(columns: Sequence[Array], rows: Sequence[Indices]) -> Array:
    """Return a copy of some rows of several columns of one kind, one after the other."""
    first = columns[0]
    if is_arrow(first):
        return _concat([_take_table(c, at) for c, at in zip(columns, rows, strict=True)])
    if is_sparse(first):
        return sp.csr_array(sp.vstack([c[at] for c, at in zip(columns, rows, strict=True)]))
    shape = (sum(map(len, rows)), *first.shape[1:])
    result: Array
    if is_torch_array(first):
        result = first.new_empty(shape)
    else:  # strings are as wide as the longest
        dtype = np.result_type(*columns) if first.dtype.kind == "U" else first.dtype
        result = np.empty(shape, dtype=dtype)
    start = 0
    for column, at in zip(columns, rows, strict=True):
        part = result[start : start + len(at)]
        if is_torch_array(column):
            part[...] = column[_torch_indices(at, column)]
        elif result.dtype == column.dtype and column.flags.c_contiguous:
            _copy_rows(column, at, part)
        else:
            part[...] = column[at]
        start += len(at)
    return result


def _copy_rows(column: NDArray[Any], rows: Indices, into: NDArray[Any]) -> None:
    """Copy some rows of an array, many of them on several threads."""

    def copy(pieces: Iterable[slice]) -> Iterator[None]:
        for piece in pieces:
            # mode="raise" would copy first
            np.take(column, rows[piece], axis=0, out=into[piece], mode="clip")
            yield

    step = max(1, COPY_BYTES * len(rows) // max(into.nbytes, 1))
    pieces = [slice(start, start + step) for start in range(0, len(rows), step)]
    if len(pieces) > 1:
        ordered_map(pieces, copy)
    else:
        list(copy(pieces))


def _concat(columns: Sequence[Array]) -> Array:
    """Return a copy of columns of one kind, one after the other."""
    first = columns[0]
    if is_arrow(first):
        import pyarrow as pa

        return pa.concat_tables(columns).combine_chunks()
    if is_torch_array(first):
        import torch

        return torch.cat(list(columns))
    return sp.csr_array(sp.vstack(columns)) if is_sparse(first) else np.concatenate(columns)


def _take_table(table: Any, rows: Indices) -> Any:
    """Return a copy of some rows of a table; a column in several chunks is made one first."""
    if not table.num_columns:
        return table.slice(0, 0) if not len(rows) else table
    return table.combine_chunks().take(arrow_array(rows))


def _torch_indices(indices: Indices, like: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(indices)).to(like.device)


def _nbytes(column: Array) -> int:
    if is_sparse(column):
        return int(column.data.nbytes + column.indices.nbytes + column.indptr.nbytes)
    return int(column.nbytes)


def _wipe_table(table: Any) -> None:
    """Overwrite the buffers of a table of our own; users only ever get copies of its rows."""
    import ctypes

    for column in table.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.is_mutable:
                    ctypes.memset(buffer.address, 0, buffer.size)
