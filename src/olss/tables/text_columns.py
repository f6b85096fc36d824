"""Columns of text: one number a value, or values hashed to a few numbers."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.tables.arrow_types import is_text, numpy_array
from olss.tables.columns import Column, bounded, identity
from olss.tables.missing_values import Floats

__all__ = ["ONE_HOT", "Hashed", "OneHot"]

# Text of at most so many different values is one number for each, of at most so many hashed.
ONE_HOT = 32
HASHED = 1000
BUCKETS = 32
MISSING = "\0missing"


@dataclass(frozen=True)
class Text(Column):
    """Text of which one of several numbers is 1 in each row, and the others 0."""

    indicators: ClassVar[bool] = True

    @abstractmethod
    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return which number is 1 for each of some texts, None for a missing one."""

    def map_from(self, other: Column) -> Floats | None:
        """Return which number each value of another plan is; its others are taken for missing."""
        if not isinstance(other, OneHot):
            return None
        taken = np.zeros((self.width, other.width + 1))
        taken[self.places([*other.values, None]), np.arange(other.width)] = 1
        return taken

    def encode(self, array: Any, careful: bool) -> NDArray[np.intp]:
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
        """Write zeros and ones."""
        codes = encoded[part]
        out[:] = 0
        out[codes, np.arange(len(codes))] = 1


@dataclass(frozen=True)
class OneHot(Text):
    """Text of few different values: a number for each, and one for all others and missing ones."""

    values: tuple[str, ...]
    use: ClassVar[str] = "one-hot"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds text of at most `ONE_HOT` different values."""
        distinct = _few_values(column)
        if isinstance(distinct, str):
            return distinct
        if len(distinct) > ONE_HOT:
            return f"text of more than {ONE_HOT} values"
        why = f"{len(distinct)} values, one column each and one for others"
        return cls(name, str(column.type), why, tuple(distinct))

    @property
    def width(self) -> int:
        """One for each value and one for others."""
        return len(self.values) + 1

    @property
    def labels(self) -> list[str]:
        """The column with each of its values."""
        return [f"{self.name} = {value!r}" for value in self.values] + [f"{self.name}, others"]

    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return the place of each value, the last for others."""
        place: dict[str | None, int] = {value: i for i, value in enumerate(self.values)}
        return [place.get(label, len(place)) for label in labels]

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        values = state.get("values")
        if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
            raise InputError(f"values must be a list of texts, found {values!r:.80}.")
        if len(set(values)) < len(values) or not values:
            raise InputError(f"values must differ from each other, found {values!r:.80}.")
        bounded("the number of values", len(values))
        return cls(*identity(state), tuple(values))


@dataclass(frozen=True)
class Hashed(Text):
    """Text of many values: hashed to a few numbers."""

    buckets: int
    use: ClassVar[str] = "hashed"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds text of at most `HASHED` different values."""
        distinct = _few_values(column)
        if isinstance(distinct, str):
            return distinct
        why = f"{len(distinct)} values, hashed to {BUCKETS} columns"
        return cls(name, str(column.type), why, BUCKETS)

    @property
    def width(self) -> int:
        """The number of buckets."""
        return self.buckets

    @property
    def labels(self) -> list[str]:
        """The column with the number of each bucket."""
        return [f"{self.name}, hash {i}" for i in range(self.buckets)]

    def map_from(self, other: Column) -> Floats | None:
        """Return the same buckets, or that of each value."""
        if isinstance(other, Hashed) and other.buckets == self.buckets:
            return np.eye(self.width, self.width + 1)
        return super().map_from(other)

    def places(self, labels: Sequence[str | None]) -> list[int]:
        """Return the bucket of each text: CRC-32 of its UTF-8 bytes, modulo their number."""
        present = (MISSING if label is None else label for label in labels)
        return [zlib.crc32(text.encode()) % self.buckets for text in present]

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        buckets = bounded("buckets", state.get("buckets"))
        return cls(*identity(state), buckets)


def _few_values(column: Any) -> list[str] | str:
    """Return the different texts, sorted, or why a column is not worth numbers as text."""
    import pyarrow as pa

    if not is_text(column.type):
        return ""
    values = column.cast(pa.large_string()).drop_null()
    distinct = values.unique()
    if not len(distinct):
        return "empty"
    if len(distinct) > HASHED or 2 * len(distinct) > max(len(values), 4):
        return f"text, {len(distinct):,} values in {len(values):,}"
    return sorted(distinct.to_pylist())
