"""Decide whether a target is a class, by one rule for arrays, tables, files and streams.

Strings, booleans and categories are classes. Integers are classes if there are at most `FEW`
distinct ones, or at most `MANY` with at least two rows for each, on average; written as floats,
with at least `ROWS_PER_CLASS` rows for each. Everything else is a numeric target: other numbers,
dates, lists, an empty column. More than `FEW` integers with fewer rows for each than
`ROWS_PER_CLASS` are ambiguous, and a note reports the decision.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import is_arrow, to_numpy
from olss.core.sampling import code_values, rows_of_codes
from olss.errors import DataError, InputError, OlssWarning
from olss.tables.schema import (
    as_numbers,
    dictionary_codes,
    is_number,
    is_text,
    label_array,
    numpy_array,
)

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


def is_class_target(y: Any, before: bool | None = None, *, matters: bool = False) -> bool:
    """Return whether a target is a class, given what earlier rows decided.

    The first rows decide, but integers written as floats are no classes any more once other
    numbers follow. Where it matters, a warning reports how an ambiguous target is taken.

    Examples
    --------
    >>> is_class_target(np.array([0.0, 1.0])), is_class_target(np.array([0.5, 1.0]), before=True)
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
    if is_arrow(y) and not is_number(y.column(0).type):
        return True
    numbers = numpy_array(y.column(0)) if is_arrow(y) else y
    return numbers.dtype.kind != "f" or bool(np.all((numbers % 1 == 0) | np.isnan(numbers)))


def class_labels(parts: Sequence[Any]) -> NDArray[Any]:
    """(n,) labels that sort, of the targets of several parts taken as one."""
    if is_arrow(parts[0]):
        import pyarrow as pa

        return _labels(pa.chunked_array([c for y in parts for c in y.column(0).chunks]))
    found = []
    for y in map(to_numpy, parts):
        flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        found.append(np.argmax(flat, axis=1) if flat.ndim == 2 else flat)
    return np.concatenate(found)


def code_classes(y: Any) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """Return the different classes of a target without missing values, sorted, and each row's.

    Classes are Python values: integers, floats, booleans or strings; of one-hot rows, places.

    Examples
    --------
    >>> code_classes(np.array(["b", "a", "b"]))
    (('a', 'b'), array([1, 0, 1]))
    """
    if not is_arrow(y):
        labels = class_labels([y])
        if labels.dtype.kind == "O":
            labels = labels.astype(np.str_)
        codes = code_values(labels)
        return tuple(labels[rows_of_codes(codes)].tolist()), codes
    import pyarrow as pa
    import pyarrow.types as kinds

    column = y.column(0).combine_chunks()
    coded = column if hasattr(column, "indices") else column.dictionary_encode()
    values = coded.dictionary
    if not (is_number(values.type) or kinds.is_boolean(values.type)):
        values = values.cast(pa.large_string())
    indices = numpy_array(coded.indices)
    counts = np.bincount(indices, minlength=1)
    used, codes = np.flatnonzero(counts), (np.cumsum(counts > 0) - 1)[indices]
    found = [values[int(k)].as_py() for k in used] if len(indices) else []
    ordered = sorted(set(found))
    order = {label: k for k, label in enumerate(ordered)}
    places = np.array([order[label] for label in found], dtype=np.int64)
    return tuple(ordered), places[codes] if len(codes) else np.zeros(0, np.int64)


def class_codes(parts: Sequence[Any]) -> NDArray[np.int64]:
    """Return each row's place among the classes, sorted, of several parts taken as one.

    Missing values are a class.
    """
    if not is_arrow(parts[0]):
        return code_values(class_labels(parts))
    import pyarrow as pa

    column = pa.chunked_array([c for y in parts for c in y.column(0).chunks])
    if is_number(column.type) and not column.null_count:
        return code_values(numpy_array(column))
    coded = column.combine_chunks()
    coded = coded if hasattr(coded, "indices") else coded.dictionary_encode()
    labels = label_array(pa.chunked_array([coded.dictionary, pa.nulls(1, coded.dictionary.type)]))
    return code_values(code_values(labels)[dictionary_codes(coded)])  # -1 is the last, missing


def target_numbers(parts: Sequence[Any]) -> NDArray[np.float64]:
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
    """Return a column as an array that sorts: numbers, or text; missing values are a class."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_number(column.type) and not column.null_count:
        return numpy_array(column)
    return label_array(column)
