"""What Frequent Directions know of a stream of rows too wide for a Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks
from olss.core.frequent_directions import DirectionsFactor, FrequentDirections
from olss.core.gram import COLUMN_LIMIT, RidgeRule
from olss.errors import InputError

__all__ = ["DirectionSum"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DirectionSum:
    """Frequent Directions as a value: what changes it returns a new one.

    The same verbs as `olss.core.running_gram.GramSum`, for rows of more columns.
    """

    directions: FrequentDirections

    @classmethod
    def empty(cls, columns: int) -> DirectionSum:
        """Return that of no rows: of as many directions as take the memory of a Gram matrix.

        It is a quarter of the largest one, 34 MB, with 16 to 512 directions.
        """
        return cls(FrequentDirections(max(16, min(512, COLUMN_LIMIT**2 // (8 * columns)))))

    @property
    def columns(self) -> int:
        """Columns of the rows seen."""
        return self.directions.columns or 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return 16 * self.directions.size * self.columns

    @property
    def shed(self) -> float:
        """G <= B'B + shed in every direction."""
        return self.directions.error_bound()

    @property
    def over(self) -> float:
        """G >= B'B - over in every direction; 0 unless rows were removed."""
        return self.directions.over

    def state(self) -> tuple[dict[str, Any], Floats]:
        """Return all there is to know, as a few numbers and one array."""
        return self.directions.state()

    @classmethod
    def from_state(cls, numbers: dict[str, Any], rows: Floats) -> DirectionSum:
        """Return the sum that `state` describes."""
        return cls(FrequentDirections.from_state(numbers, rows))

    def as_rows(self) -> Floats:
        """(l, d) rows B."""
        factor = self.directions.scorer()
        return np.sqrt(factor.s)[:, None] * factor.V.T

    def factor(self, rule: RidgeRule, T: Any = None) -> DirectionsFactor:
        """Return what scores rows, with a ridge by this rule but not below what was shed."""
        if T is not None:
            raise InputError(f"a map needs rows of at most {COLUMN_LIMIT:,} columns.")
        if not rule.asks:
            return self.directions.scorer()
        return self.directions.scorer(rule.of_spectrum(self.directions.scorer().s))

    def plus(self, blocks: Blocks) -> DirectionSum:
        """Return the sum with these rows in it."""
        return DirectionSum(self.directions.copy().update(blocks.source, blocks.weights))

    def merged(self, other: DirectionSum) -> DirectionSum:
        """Return the sum of both."""
        return DirectionSum(self.directions.copy().merge(other.directions))

    def minus(self, blocks: Blocks) -> DirectionSum:
        """Return the sum without rows that are in it."""
        return DirectionSum(self.directions.without(blocks.source, blocks.weights))

    def scaled(self, factor: float) -> DirectionSum:
        """Return the sum with all weights multiplied."""
        return DirectionSum(self.directions.scaled(factor))
