"""Missing values in numbers: medians to fill them with, and arrays with NaN as numbers to score.

A missing value counts as the median of its column in the first rows. Columns with missing values in
the first rows get an indicator of them. The rows kept stay as they are, with their NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.util import checks

__all__ = ["Floats", "MissingIndicator", "center", "fill_missing", "first_beyond", "spread"]


Floats = NDArray[np.float64]


def center(values: Floats) -> tuple[float, float, bool]:
    """Return (median, spread about it, whether some are missing) of numbers, missing ones NaN.

    The median is the upper of two middle ones, so that it is one of the values.
    """
    present = values[np.isfinite(values)]
    shift = (
        float(np.partition(present, len(present) // 2)[len(present) // 2]) if len(present) else 0.0
    )
    return shift, spread(present - shift), bool(np.isnan(values).any())


def spread(values: NDArray[Any]) -> float:
    """Return the root mean square, or 1 if that is zero or not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        root = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 1.0
    return root if 0 < root < np.inf else 1.0


def fill_missing(
    values: NDArray[Any], filler: float
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return floats with `filler` for NaN, and where NaN was, or None if nowhere."""
    gone = np.isnan(values)
    if not gone.any():
        return values, None
    return np.where(gone, values.dtype.type(filler), values), gone


def first_beyond(values: NDArray[Any], limit: float) -> int | None:
    """Return the first row with an absolute value of at least `limit`, or None."""
    if values.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):  # float16 ends before most limits
        bad = ~(np.abs(values) < limit).reshape(len(values), -1).all(axis=1)
    return int(bad.argmax()) if bad.any() else None


# The median is of at most so many first rows and numbers.
SAMPLE_ROWS = 16_384
SAMPLE_NUMBERS = 1 << 20


@dataclass(frozen=True, eq=False)
class MissingIndicator:
    """Fill and indicate the missing values of an array.

    Attributes
    ----------
    fill : (d,) float64
        The number that replaces a missing one, by column.
    marked : (k,) int64
        The columns with an indicator of missing values.

    Examples
    --------
    >>> X = np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, 9.0], [4.0, 7.0]])
    >>> missing = MissingIndicator.fit(X)
    >>> missing.transform(np.array([[np.nan, np.nan], [8.0, 2.0]]))
    array([[3., 7., 1.],
           [8., 2., 0.]])
    """

    fill: Floats
    marked: NDArray[np.int64]

    @classmethod
    def fit(cls, rows: NDArray[Any]) -> MissingIndicator:
        """Fit to the first rows of an array, (n, ...)."""
        A = rows.reshape(len(rows), -1)
        gone = np.isnan(A).any(axis=0) if A.dtype.kind == "f" else np.zeros(A.shape[1], bool)
        size = max(64, SAMPLE_NUMBERS // max(1, A.shape[1]))
        sample = np.ascontiguousarray(A[: min(SAMPLE_ROWS, size)].T, dtype=np.float64)
        fill = [center(column)[0] for column in sample]
        return cls(np.asarray(fill, dtype=np.float64), np.flatnonzero(gone))

    @property
    def columns(self) -> int:
        """Number of columns of the array, d."""
        return len(self.fill)

    @property
    def width(self) -> int:
        """Numbers per row that are scored, d + k."""
        return len(self.fill) + len(self.marked)

    def transform(self, rows: NDArray[Any], *, place: str = "X", start: int = 0) -> NDArray[Any]:
        """Return rows, (n, ...), as (n, d + k) numbers; the same array if there is nothing to do.

        Raises `DataError` that names row and column of an infinite value; `start` is the index of
        the first row.
        """
        A = rows.reshape(len(rows), -1)
        if A.shape[1] != self.columns:
            raise DataError(
                f"{place} must have {self.columns:,} numbers per row, as before, found "
                f"{A.shape[1]:,}."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            clean = A.dtype.kind != "f" or np.isfinite(np.sum(A, dtype=np.float64))
        if clean:
            return A if not len(self.marked) else self._append(A, np.zeros(A.shape, bool))
        gone = np.isnan(A)
        infinite = np.isinf(A)
        if infinite.any():
            row, column = divmod(int(infinite.argmax()), A.shape[1])
            raise DataError(
                f"{place} holds an infinite value in row {start + row}, column "
                f"{self._name(column, rows.shape[1:])}. Repair it, or make it NaN, which counts as "
                "missing."
            )
        return self._append(np.where(gone, self.fill.astype(A.dtype), A), gone)

    def map_from(self, other: MissingIndicator | None) -> Floats:
        """Return A with z = A z' for the numbers z' of another fit."""
        d, theirs = self.columns, np.zeros(0, np.int64) if other is None else other.marked
        A = np.eye(self.width, d + len(theirs))
        A[d:] = 0
        for place, column in enumerate(theirs):
            assert other is not None
            A[column, d + place] = self.fill[column] - other.fill[column]
            A[d:, d + place] = self.marked == column
        return A

    def _append(self, A: NDArray[Any], gone: NDArray[np.bool_]) -> NDArray[Any]:
        if not len(self.marked):
            return A
        return np.concatenate([A, gone[:, self.marked].astype(A.dtype)], axis=1)

    @staticmethod
    def _name(column: int, shape: tuple[int, ...]) -> str:
        if len(shape) < 2:
            return str(column)
        return str(tuple(int(i) for i in np.unravel_index(column, shape)))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"fill": self.fill.tolist(), "marked": self.marked.tolist()}

    @classmethod
    def from_json(cls, state: Any) -> MissingIndicator:
        """Return what `to_json` wrote, or raise `InputError`."""
        if not isinstance(state, dict) or not all(
            isinstance(state.get(name), list) for name in ("fill", "marked")
        ):
            raise InputError(f"missing values must be an object of two lists, found {state!r:.80}.")
        fill = [checks.number("fill", value) for value in state["fill"]]
        marked = [checks.integer("marked", value, minimum=0) for value in state["marked"]]
        if marked != sorted(set(marked)) or (marked and marked[-1] >= len(fill)):
            raise InputError(f"marked must be sorted columns, found {marked!r:.80}.")
        return cls(np.asarray(fill, dtype=np.float64), np.asarray(marked, dtype=np.int64))
