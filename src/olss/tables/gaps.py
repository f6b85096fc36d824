"""Numbers with gaps: their middle, their spread, and gaps filled and marked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "center", "fill_gaps", "first_beyond", "spread"]

Floats = NDArray[np.float64]


def center(values: Floats) -> tuple[float, float, bool]:
    """Return (median, spread about it, whether some are missing) of numbers with gaps as NaN.

    The median is the upper of two middle ones, so that it is one of the values.
    """
    present = values[np.isfinite(values)]
    shift = (
        float(np.partition(present, len(present) // 2)[len(present) // 2]) if len(present) else 0.0
    )
    return shift, spread(present - shift), bool(np.isnan(values).any())


def spread(values: NDArray[Any]) -> float:
    """Return the root mean square, or 1 if that is zero or no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        root = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 1.0
    return root if 0 < root < np.inf else 1.0


def fill_gaps(values: NDArray[Any], filler: float) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return floats with `filler` for NaN, and where NaN was, or None if nowhere."""
    gone = np.isnan(values)
    if not gone.any():
        return values, None
    return np.where(gone, values.dtype.type(filler), values), gone


def first_beyond(values: NDArray[Any], limit: float) -> int | None:
    """Return the first row with a value of this size or more, or None."""
    if values.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):  # float16 ends before most limits
        bad = ~(np.abs(values) < limit).reshape(len(values), -1).all(axis=1)
    return int(bad.argmax()) if bad.any() else None
