"""Aligned columns of rows, NumPy or torch, in memory that is reserved once and written in place.

A full sketch replaces some of its rows at each update. `Rows.replace` writes the new rows into
the slots of those that go, a block at a time, so that an update needs no second buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.row_blocks import BLOCK_BYTES

__all__ = ["Array", "Indices", "Rows", "copy_rows", "overlap", "take"]

Array: TypeAlias = Any  # numpy.ndarray or torch.Tensor
Indices: TypeAlias = NDArray[np.int64]


class Rows:
    """Columns of equal length under names; the first dimension of each is the row.

    Examples
    --------
    >>> rows = Rows()
    >>> rows.replace(np.arange(0), {"x": np.array([10, 11, 12])}, np.array([0, 1, 2]))
    array([0, 1, 2])
    >>> rows.replace(np.array([0, 2]), {"x": np.array([20, 21])}, np.array([1]))
    array([0, 2, 1])
    >>> rows["x"]
    array([10, 21, 12])
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __contains__(self, name: str) -> bool:
        return name in self._buffers

    def __getitem__(self, name: str) -> Array:
        """Return a view of the column, not a copy."""
        return self._buffers[name][: self._length]

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)()
        other.replace(np.arange(0), {name: self[name] for name in self}, np.arange(len(self)))
        return other

    def replace(
        self, keep: Indices, new: Mapping[str, Array], chosen: Indices, reserve: int = 0
    ) -> Indices:
        """Keep some rows, drop the others, and put rows of `new` into their place.

        Kept rows stay in their slots, but for those beyond the new length, which move down.

        Parameters
        ----------
        keep : int array
            Slots of the rows that stay, ascending.
        new : mapping of str to array
            Columns of the same names and row shapes as those held; they may be any if none are.
        chosen : int array
            The rows of `new` to take in.
        reserve : int
            The rows to reserve memory for when it must grow, so that it grows rarely.

        Returns
        -------
        int array
            The slots of the kept rows, then of the chosen ones.
        """
        length = len(keep) + len(chosen)
        free = np.ones(length, dtype=bool)
        staying, moving = keep[keep < length], keep[keep >= length]
        free[staying] = False
        free_slots = np.flatnonzero(free)
        targets, arrivals = free_slots[: len(moving)], free_slots[len(moving) :]

        # All that may fail for want of memory comes before the first row is overwritten.
        buffers = {name: self._fitted(name, new[name], length, reserve) for name in new}
        for name, buffer in buffers.items():
            held = self._buffers.get(name, buffer)
            if held is not buffer:
                copy_rows(buffer, staying, held, staying)
            copy_rows(buffer, targets, held, moving)
            copy_rows(buffer, arrivals, new[name], chosen)
        self._buffers, self._length = buffers, length
        return np.concatenate([staying, targets, arrivals])

    def drop(self, keep: Indices) -> None:
        """Keep the rows in the slots `keep`, ascending, and erase what the others held."""
        held = self._length
        nothing = {name: self._buffers[name][:0] for name in self}
        self.replace(keep, nothing, np.arange(0))
        for buffer in self._buffers.values():
            erased = buffer[self._length : held]
            erased[...] = np.zeros((), buffer.dtype) if isinstance(buffer, np.ndarray) else 0

    def _fitted(self, name: str, new: Array, length: int, reserve: int) -> Array:
        """Return the buffer of a column, grown or shrunk to hold `length` rows of `new`'s dtype."""
        held = self._buffers.get(name)
        if held is None:
            return _empty(max(length, reserve), new)
        text_grows = (
            isinstance(held, np.ndarray) and held.dtype.kind == "U" and new.dtype > held.dtype
        )
        # Memory more than half empty is given back, unless it is wanted again.
        if not text_grows and length <= len(held) <= 2 * max(length, reserve):
            return held
        return _empty(max(length, reserve), new if text_grows else held)


def take(array: Array, indices: Indices) -> Array:
    """Return a copy of the rows at `indices`."""
    if is_torch_array(array):
        return array[_torch_indices(indices)]
    return array[indices]


def copy_rows(target: Array, slots: Indices, source: Array, indices: Indices) -> None:
    """Write ``target[slots] = source[indices]`` a block at a time, without a copy of the whole."""
    row_bytes = max(1, int(np.prod(target.shape[1:])) * target.dtype.itemsize)
    step = max(1, BLOCK_BYTES // row_bytes)
    for start in range(0, len(slots), step):
        to, block = slots[start : start + step], take(source, indices[start : start + step])
        if is_torch_array(target):
            target[_torch_indices(to)] = block
        else:
            target[to] = block


def overlap(first: Array, second: Array) -> bool:
    """Whether two arrays may lie in the same memory."""
    if is_torch_array(first):
        storages = first.untyped_storage(), second.untyped_storage()
        return bool(storages[0].data_ptr() == storages[1].data_ptr())
    return np.may_share_memory(first, second)


def _empty(length: int, like: Array) -> Array:
    shape = (length, *like.shape[1:])
    if is_torch_array(like):
        return like.new_empty(shape)
    return np.empty(shape, dtype=like.dtype)


def _torch_indices(indices: Indices) -> Any:
    import torch

    return torch.from_numpy(indices)
