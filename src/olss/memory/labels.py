"""Which targets say a class: one rule, for arrays and tables alike.

A class is said by text, booleans, categories, whole numbers, and rows of zeros with a single one.
Floats say one if they are whole numbers, at most `FEW` different ones: 0.0, 1.0, 2.0. The question
is answered once, by the first rows, and remembered with the sketch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.row_blocks import to_numpy
from olss.memory.store import Array, is_arrow

__all__ = ["classes_of", "says_class"]

FEW = 32


def says_class(y: Array) -> bool:
    """Whether a target says a class.

    Examples
    --------
    >>> says_class(np.array([0.0, 1.0])), says_class(np.array([0.5, 1.0]))
    (True, False)
    """
    if is_arrow(y):
        return _column_says_class(y.column(0))
    y = to_numpy(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2:
        return bool(np.all((y == 0) | (y == 1)) and np.all(y.sum(axis=1) == 1))
    return y.ndim == 1 and (y.dtype.kind in "Ubiu" or (y.dtype.kind == "f" and _few_whole(y)))


def classes_of(parts: Sequence[Array]) -> NDArray[Any]:
    """(n,) labels that sort, of the targets of several parts taken as one."""
    if is_arrow(parts[0]):
        import pyarrow as pa

        return _labels(pa.chunked_array([c for y in parts for c in y.column(0).chunks]))
    labels = []
    for y in map(to_numpy, parts):
        flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        labels.append(np.argmax(flat, axis=1) if flat.ndim == 2 else flat)
    return np.concatenate(labels)


def _few_whole(values: NDArray[Any]) -> bool:
    present = values[~np.isnan(values)]
    if not len(present) or not (present == np.floor(present)).all():
        return False
    return len(np.unique(present)) <= FEW


def _column_says_class(column: Any) -> bool:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_floating(kind):
        return _few_whole(column.drop_null().to_numpy())
    return not (kinds.is_nested(kind) or kinds.is_temporal(kind) or kinds.is_decimal(kind))


def _labels(column: Any) -> NDArray[Any]:
    """Return a column as an array that sorts: numbers, or text; gaps are a class of their own."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if (kinds.is_integer(column.type) or kinds.is_floating(column.type)) and not column.null_count:
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    text: NDArray[Any] = np.asarray(
        column.cast(pa.large_string()).fill_null("(missing)").to_pylist(), dtype=np.str_
    )
    return text
