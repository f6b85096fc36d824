"""Targets as classes; the rule is that of `olss.tables.class_labels`.

The question whether a target says a class is answered once, by the first rows, and remembered with
the sketch. Whole numbers written as floats cease to be classes where other numbers follow.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.errors import InputError, OlssWarning
from olss.memory.rows import Array, is_arrow
from olss.tables.class_labels import classify_target
from olss.tables.schema import as_numbers, is_number, numpy_array

__all__ = ["classes_of", "numbers_of_target", "say_classes"]


def say_classes(y: Array, before: bool | None = None, *, matters: bool = False) -> bool:
    """Whether a target says a class, given what was found of rows before.

    Where it matters, a warning says how a case of doubt is taken.

    Examples
    --------
    >>> say_classes(np.array([0.0, 1.0])), say_classes(np.array([0.5, 1.0]), before=True)
    (True, False)
    """
    if before is False:
        return False
    y = y if is_arrow(y) else to_numpy(y)
    if not is_arrow(y) and y.ndim == 2 and y.shape[1] != 1:
        return bool(np.all((y == 0) | (y == 1)) and np.all(y.sum(axis=1) == 1))
    if before is None:
        verdict = classify_target(y.column(0) if is_arrow(y) else y)
        if verdict.note and matters:
            warnings.warn(verdict.note, OlssWarning, stacklevel=2)
        return verdict.is_class
    numbers = numpy_array(y.column(0)) if is_arrow(y) else y
    return numbers.dtype.kind != "f" or bool(np.all((numbers % 1 == 0) | np.isnan(numbers)))


def classes_of(parts: Sequence[Array]) -> NDArray[Any]:
    """(n,) labels that sort, of the targets of several parts taken as one."""
    if is_arrow(parts[0]):
        import pyarrow as pa

        return _labels(pa.chunked_array([c for y in parts for c in y.column(0).chunks]))
    found = []
    for y in map(to_numpy, parts):
        flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        found.append(np.argmax(flat, axis=1) if flat.ndim == 2 else flat)
    return np.concatenate(found)


def numbers_of_target(parts: Sequence[Array]) -> NDArray[np.float64]:
    """(n, k) numbers, of the targets of several parts taken as one, or raise `InputError`."""
    found = []
    for y in parts:
        numbers = as_numbers(y.column(0)) if is_arrow(y) else to_numpy(y)
        if numbers is None or numbers.dtype.kind not in "biuf":
            kind = y.schema.field(0).type if is_arrow(y) else numbers.dtype  # type: ignore[union-attr]
            raise InputError(
                "scores='target' takes targets that are classes, or numbers; found a target of "
                f"type {kind} that is neither."
            )
        found.append(numbers.reshape(len(numbers), -1).astype(np.float64))
    return np.concatenate(found)


def _labels(column: Any) -> NDArray[Any]:
    """Return a column as an array that sorts: numbers, or text; gaps are a class of their own."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_number(column.type) and not column.null_count:
        return numpy_array(column)
    text: NDArray[Any] = np.asarray(
        column.cast(pa.large_string()).fill_null("(missing)").to_pylist(), dtype=np.str_
    )
    return text
