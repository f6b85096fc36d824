"""Rows with everything that belongs to them, as tensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Examples", "as_tensor"]


@dataclass(frozen=True)
class Examples:
    """n rows: what goes into the net, the target, and where each row comes from.

    `index` is a row's position in everything seen, so it names the row for ever. `weight` is
    what a row stands for, `outputs` what the net once answered to it (NaN where unknown).
    """

    X: Tensor
    y: Tensor
    task: Tensor
    index: Tensor
    weight: Tensor | None = None
    outputs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> Examples:
        """Return some of the rows."""
        columns: list[Any] = [v if v is None else v.index_select(0, index) for v in self.values()]
        return Examples(*columns)

    def join(self, other: Examples | None) -> Examples:
        """Return these rows and then the others.

        Where only one side has weights or stored outputs, the other side's rows weigh one and
        have outputs unknown.
        """
        if other is None or len(other) == 0:
            return self
        pairs = zip(self._filled_like(other), other._filled_like(self), strict=True)
        columns: list[Any] = [None if a is None else torch.cat([a, b]) for a, b in pairs]
        return Examples(*columns)

    def _filled_like(self, other: Examples) -> list[Any]:
        weight, outputs = self.weight, self.outputs
        if weight is None and other.weight is not None:
            weight = other.weight.new_ones(len(self))
        if outputs is None and other.outputs is not None:
            outputs = other.outputs.new_full((len(self), other.outputs.shape[1]), torch.nan)
        return [self.X, self.y, self.task, self.index, weight, outputs]

    def values(self) -> list[Any]:
        """Return the columns in the order of the constructor."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def nbytes(self) -> int:
        """Bytes of what must be stored to have these rows again."""
        return sum(v.nbytes for v in self.values() if v is not None)


def as_tensor(values: Any, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor over the same memory where possible, read-only arrays included."""
    if isinstance(values, Tensor):
        return values.to(device)
    array = np.asarray(values)
    if any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        # Nothing here writes into rows, so a read-only array needs no copy.
        warnings.filterwarnings("ignore", message=".*not writ(e)?able.*")
        return torch.from_numpy(array).to(device)
