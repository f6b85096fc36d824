"""Columns of text: one-hot encoded, or hashed."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.tables.columns import Column, Floats
from olss.tables.schema import is_text, numpy_array

# Text of at most so many distinct values is one-hot encoded, of at most so many hashed.
MAX_ONE_HOT = 32
MAX_HASHED = 1000
FEW_VALUES = 8
BUCKETS = 32
MISSING = "\0missing"


@dataclass(frozen=True)
class Text(Column):
    """Text as indicators: one number is 1 in each row, the others 0."""

    indicators: ClassVar[bool] = True

    @abstractmethod
    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return which number is 1 for each label; None is a missing value."""

    def map_from(self, other: Column) -> Floats | None:
        """Return which number each value of another fit is; others count as missing."""
        if not isinstance(other, OneHot):
            return None
        taken = np.zeros((self.width, other.width + 1))
        taken[self.places([*other.values, None]), np.arange(other.width)] = 1
        return taken

    def encode(self, array: Any, find_nan: bool) -> NDArray[np.intp]:
        """Return the place of the number that is 1 in each row."""
        import pyarrow as pa
        import pyarrow.types as kinds

        if not kinds.is_dictionary(array.type):
            array = array.dictionary_encode()
        labels = array.dictionary.cast(pa.large_string()).to_pylist()
        places = np.asarray(self.places([*labels, None]), dtype=np.intp)
        codes = numpy_array(array.indices)
        if array.indices.null_count:
            codes = np.nan_to_num(codes, nan=len(labels)).astype(np.intp)
        numbers: NDArray[np.intp] = places[codes]
        return numbers

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        codes = encoded[part]
        out[:] = 0
        out[codes, np.arange(len(codes))] = 1


@dataclass(frozen=True)
class OneHot(Text):
    """Text of few distinct values: an indicator of each, and one for all others and missing."""

    values: tuple[str, ...]
    use: ClassVar[str] = "one-hot"

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds text of at most `MAX_ONE_HOT` distinct values."""
        distinct = _few_values(column)
        if isinstance(distinct, str):
            return distinct
        if len(distinct) > MAX_ONE_HOT:
            return f"text of more than {MAX_ONE_HOT} values"
        why = f"{len(distinct)} values, one column each and one for others"
        return cls(name, str(column.type), why, tuple(distinct))

    @property
    def width(self) -> int:
        return len(self.values) + 1

    @property
    def labels(self) -> list[str]:
        return [f"{self.name} = {value!r}" for value in self.values] + [f"{self.name}, others"]

    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return the place of each value, the last for others."""
        place: dict[str | None, int] = {value: i for i, value in enumerate(self.values)}
        return [place.get(label, len(place)) for label in labels]


@dataclass(frozen=True)
class Hashed(Text):
    """Text of many distinct values, hashed to a few indicators."""

    buckets: int
    use: ClassVar[str] = "hashed"

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds text of at most `MAX_HASHED` distinct values."""
        distinct = _few_values(column)
        if isinstance(distinct, str):
            return distinct
        why = f"{len(distinct)} values, hashed to {BUCKETS} columns"
        return cls(name, str(column.type), why, BUCKETS)

    @property
    def width(self) -> int:
        return self.buckets

    @property
    def labels(self) -> list[str]:
        return [f"{self.name}, hash {i}" for i in range(self.buckets)]

    def map_from(self, other: Column) -> Floats | None:
        """Return the same buckets, or that of each value."""
        if isinstance(other, Hashed) and other.buckets == self.buckets:
            return np.eye(self.width, self.width + 1)
        return super().map_from(other)

    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return the bucket of each label: CRC-32 of its UTF-8 bytes, modulo their number."""
        present = (MISSING if label is None else label for label in labels)
        return [zlib.crc32(text.encode()) % self.buckets for text in present]


def _few_values(column: Any) -> list[str] | str:
    """Return the distinct texts, sorted, or why a column is not encoded as text."""
    import pyarrow as pa

    if not is_text(column.type):
        return ""
    values = column.cast(pa.large_string()).drop_null()
    distinct = values.unique()
    if not len(distinct):
        return "empty"
    # Many values with few rows each are rather identifiers than categories.
    rows_each = 2 if len(distinct) <= FEW_VALUES else 5
    if len(distinct) > MAX_HASHED or rows_each * len(distinct) > max(len(values), 4):
        return f"text, {len(distinct):,} values in {len(values):,}"
    return sorted(distinct.to_pylist())


def fit_category(name: str, column: Any) -> OneHot | Hashed:
    """Return a text column encoded as a category, however many values it has."""
    import pyarrow as pa

    if not is_text(column.type):
        raise InputError(
            f"columns: {name!r} must hold strings to be a category, found {column.type}; cast it."
        )
    distinct = sorted(column.cast(pa.large_string()).drop_null().unique().to_pylist())
    kind, why = str(column.type), f"{len(distinct)} values, a category by choice"
    if len(distinct) <= MAX_ONE_HOT:
        return OneHot(name, kind, why, tuple(distinct))
    return Hashed(name, kind, why, BUCKETS)
