"""Decide whether a target is a class, by one rule for arrays, tables, files and streams.

Strings, booleans and categories are classes. Integers are classes if there are at most `FEW`
distinct ones, or at most `MANY` with at least two rows for each, on average; written as floats,
with at least `ROWS_PER_CLASS` rows for each. Everything else is a numeric target: other numbers,
dates, lists, an empty column. More than `FEW` integers with fewer rows for each than
`ROWS_PER_CLASS` are ambiguous, and a note reports the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError
from olss.tables.schema import is_number, is_text, numpy_array

__all__ = ["check_no_missing", "classify_target"]

FEW = 32
MANY = 1000
ROWS_PER_CLASS = 10


@dataclass(frozen=True)
class Verdict:
    """Whether a target is a class, and a note if that is ambiguous."""

    is_class: bool
    note: str = ""


def classify_target(target: Any, name: str = "y") -> Verdict:
    """Decide whether a target is a class: an array (n,) or (n, 1), or an Arrow column.

    Examples
    --------
    >>> classify_target(np.array([0.0, 1.0, 2.0])).is_class
    True
    >>> classify_target(np.array([0.5, 1.0, 2.0])).is_class
    False
    >>> classify_target(np.arange(50.0)).note
    "y: 50 distinct integers in 50 rows are taken as numbers to predict, not as classes; ..."
    """
    if not isinstance(target, np.ndarray):
        return _column_verdict(target, name)
    if target.ndim > 2 or (target.ndim == 2 and target.shape[1] != 1):
        return Verdict(False)
    if target.dtype.kind in "USbO":
        return Verdict(True)
    return (
        _number_verdict(target.reshape(-1), name) if target.dtype.kind in "iuf" else Verdict(False)
    )


def check_no_missing(name: str, column: Any, place: str = "") -> None:
    """Raise `DataError` if a target, an Arrow column, has null or NaN."""
    import pyarrow.compute as pc

    missing = int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0)
    if missing:
        raise DataError(
            f"{place and place + ': '}target {name!r} has {missing:,} missing values in "
            f"{len(column):,} rows. Drop these rows, or fill them."
        )


def _column_verdict(column: Any, name: str) -> Verdict:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_dictionary(kind) or kinds.is_boolean(kind) or is_text(kind):
        return Verdict(True)
    if not is_number(kind):
        return Verdict(False)
    return _number_verdict(numpy_array(column.drop_null()), name)


def _number_verdict(values: NDArray[Any], name: str) -> Verdict:
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
        if not (np.isfinite(values) & (values == np.floor(values))).all():
            return Verdict(False)
    different = len(np.unique(values))
    if different <= FEW:
        return Verdict(different > 0)
    enough = ROWS_PER_CLASS * different <= len(values)
    few_each = 2 * different > len(values)  # rather identifiers
    is_class = different <= MANY and (enough or (values.dtype.kind != "f" and not few_each))
    if enough and is_class:
        return Verdict(True)
    taken = "classes, not as numbers" if is_class else "numbers to predict, not as classes"
    return Verdict(
        is_class,
        f"{name}: {different:,} distinct integers in {len(values):,} rows are taken as {taken}; "
        f"of a table, columns={{{name!r}: 'number'}} or 'category' overrules that.",
    )
