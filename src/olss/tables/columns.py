"""One class per kind of column: how its values become numbers to score.

`Column.fit` looks at a column of sample rows and returns the fitted column, or the reason why it is
not of this kind.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.tables.schema import is_text, numpy_array, value_type
from olss.util import checks

Floats = NDArray[np.float64]

MAX_WIDTH = 1 << 20  # what a file may ask for: enough for any encoder, little enough for memory
NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Column(ABC):
    """What one column is used for.

    Attributes
    ----------
    name, type : str
        The type as Arrow writes it.
    why : str
        Reason, for the summary.
    """

    name: str
    type: str
    why: str
    use: ClassVar[str]
    indicators: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column fitted to sample rows, or why it is not of this kind.

        The reason is empty if the type of the column already rules it out.
        """

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers that are scored in place of the column."""

    @property
    def labels(self) -> list[str]:
        """A name for each number."""
        return [self.name] if self.width == 1 else [f"{self.name}[{i}]" for i in range(self.width)]

    @property
    def offset(self) -> Floats:
        """(width,) what is subtracted from each number, in units of its scale."""
        return np.zeros(self.width)

    @property
    def scales(self) -> Floats:
        """(width,) what each number was divided by."""
        return np.ones(self.width)

    @property
    def is_indicator(self) -> NDArray[np.bool_]:
        """(width,) which numbers are 0 or 1 by construction."""
        return np.full(self.width, self.indicators)

    @classmethod
    def fits_float32(cls, kind: Any) -> bool:
        """Whether float32 holds values of an Arrow type exactly enough."""
        return cls.indicators

    @abstractmethod
    def encode(self, array: Any, find_nan: bool) -> Any:
        """Return an Arrow array as NumPy arrays; NaN is looked for only if `find_nan`."""

    @abstractmethod
    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write some of the encoded rows into `out`, (width, rows)."""

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        """Return the first row with an absolute value of at least `limit`, or None."""
        return None

    def map_from(self, other: Column) -> Floats | None:
        """Return the linear map from the numbers of another fit of the column to these.

        (width, other.width + 1), the last column for the constant; None if there is no such map.
        """
        return None

    def __post_init__(self) -> None:
        checks.integer("width", self.width, minimum=0, maximum=MAX_WIDTH)


@dataclass(frozen=True)
class Passthrough(Column):
    """A column that is kept and not scored."""

    use: ClassVar[str] = "passthrough"

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column, whatever its type."""
        why = "empty" if column.null_count == len(column) else "neither number, date nor text"
        return cls(name, str(column.type), why)

    @property
    def width(self) -> int:
        return 0

    @classmethod
    def fits_float32(cls, kind: Any) -> bool:
        return True

    def encode(self, array: Any, find_nan: bool) -> None:
        """Return nothing."""

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write nothing."""


def decode(array: Any) -> Any:
    """Return an array, or a column, of categories as one of plain values."""
    plain = value_type(array.type)
    return array if plain == array.type else array.cast(plain)


@dataclass(frozen=True)
class Number(Column):
    """Numbers and booleans: z = (x - shift) / scale; a missing value counts as the median.

    Attributes
    ----------
    shift, scale : float
        Median and root mean square about it, in the sample.
    missing : bool
        Whether a further number indicates missing values: if there were some in the sample.
    """

    shift: float
    scale: float
    missing: bool
    use: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("scale", self.scale, above=0)
        checks.number("shift", self.shift)

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds numbers or booleans."""
        import pyarrow.types as kinds

        kind = column.type
        is_number = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
        if not (is_number or kinds.is_boolean(kind)):
            return ""
        return cls._measure(name, column, _plain(column.combine_chunks()))

    @classmethod
    def _measure(cls, name: str, column: Any, values: NDArray[Any]) -> Self:
        floats = values.astype(np.float64)
        shift, scale, missing = center(floats)
        why = "missing values indicated" if missing else ""
        return cls(name, str(column.type), why, shift, scale, missing)

    @property
    def width(self) -> int:
        return 1 + self.missing

    @property
    def labels(self) -> list[str]:
        return [self.name, f"{self.name} is missing"][: self.width]

    @property
    def offset(self) -> Floats:
        offset = np.zeros(self.width)
        offset[0] = self.shift / self.scale
        return offset

    @property
    def scales(self) -> Floats:
        return np.array([self.scale, 1.0])[: self.width]

    @property
    def is_indicator(self) -> NDArray[np.bool_]:
        return np.arange(self.width) > 0

    @classmethod
    def fits_float32(cls, kind: Any) -> bool:
        import pyarrow.types as kinds

        is_small = kinds.is_float16(kind) or kinds.is_float32(kind) or kinds.is_boolean(kind)
        return bool(is_small or (kinds.is_integer(kind) and kind.bit_width <= 16))

    def encode(self, array: Any, find_nan: bool) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return (values, where they are missing or None)."""
        array = decode(array)
        values = _plain(array)
        if values.dtype.kind != "f" or not (array.null_count or find_nan or self.missing):
            return values, None
        return fill_missing(values, self.shift)

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        self._write(encoded, part, out, self.shift)

    def _write(self, encoded: Any, part: slice, out: NDArray[Any], shift: float) -> None:
        values, gone = encoded
        np.subtract(values[part], shift, out=out[0], casting="unsafe")
        out[0] *= 1 / self.scale
        if self.missing:
            out[1] = 0 if gone is None else gone[part]

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        return first_beyond(encoded[0], limit)

    def map_from(self, other: Column) -> Floats | None:
        """Return the map from (z', indicator, 1); a missing value is z = 0 in both."""
        if not isinstance(other, Number) or type(other) is not type(self):
            return None
        tick = self._tick_of(other)
        shift = (tick * other.shift - self.shift) / self.scale
        taken = np.zeros((self.width, other.width + 1))
        taken[0, 0], taken[0, -1] = tick * other.scale / self.scale, shift
        if other.missing:
            taken[:, 1] = (-shift, 1.0)[: self.width]
        return taken

    def _tick_of(self, other: Number) -> float:
        """Return how many of the units of this column one of another is."""
        return 1.0


@dataclass(frozen=True)
class Date(Number):
    """Dates, times and durations, as numbers of units since their median.

    Attributes
    ----------
    unit : {"D", "s", "ms", "us", "ns"}
        Values of a finer unit are rounded down to it.
    """

    unit: Literal["D", "s", "ms", "us", "ns"] = "ns"
    use: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("shift", self.shift, above=-(2.0**63), below=2.0**63)

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds dates, times or durations."""
        import pyarrow.types as kinds

        if not kinds.is_temporal(column.type) or kinds.is_interval(column.type):
            return ""
        ticks = _ticks(column.combine_chunks())
        found = cls._measure(name, column, numpy_array(ticks))
        return replace(found, unit=_unit(column.type))

    @property
    def offset(self) -> Floats:
        return np.zeros(self.width)

    @property
    def scales(self) -> Floats:
        days = self.scale * NANOSECONDS[self.unit] / NANOSECONDS["D"]
        return np.array([days, 1.0])[: self.width]

    @classmethod
    def fits_float32(cls, kind: Any) -> bool:
        return False

    def encode(self, array: Any, find_nan: bool) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return (ticks since the median, where they are missing or None)."""
        array = decode(array)
        ticks, gone = _ticks(array), None
        if array.null_count:
            gone = numpy_array(array.is_null())
            ticks = ticks.fill_null(0)
        values = numpy_array(ticks).astype(np.int64)
        here, own = NANOSECONDS[_unit(array.type)], NANOSECONDS[self.unit]
        if here != own:
            values = values // (own // here) if here < own else values * (here // own)
        values -= int(self.shift)
        if gone is not None:
            values[gone] = 0
        return values, gone

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        self._write(encoded, part, out, 0.0)

    def _tick_of(self, other: Number) -> float:
        assert isinstance(other, Date)
        return NANOSECONDS[other.unit] / NANOSECONDS[self.unit]


@dataclass(frozen=True)
class Vector(Column):
    """Lists of one length, divided by a common scale; missing values count as 0."""

    scale: float
    length: int
    use: ClassVar[str] = "vector"

    @classmethod
    def fit(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds lists of numbers, or lists of floats of one length."""
        import pyarrow.compute as pc
        import pyarrow.types as kinds

        kind = column.type
        fixed = kinds.is_fixed_size_list(kind)
        if not (fixed or kinds.is_list(kind) or kinds.is_large_list(kind)):
            return ""
        is_float = kinds.is_floating(kind.value_type)
        if not (is_float or (fixed and kinds.is_integer(kind.value_type))):
            return f"lists of {kind.value_type}"
        lengths = (
            [kind.list_size]
            if fixed
            else pc.unique(pc.list_value_length(column)).drop_null().to_pylist()
        )
        if len(lengths) > 1:
            return "lists of different lengths"
        if not lengths or not lengths[0]:
            return "lists of no numbers"
        values = _flat(column.combine_chunks(), lengths[0])
        scale = spread(values[np.isfinite(values)])
        return cls(name, str(kind), f"{lengths[0]} numbers", scale, lengths[0])

    @property
    def width(self) -> int:
        return self.length

    @classmethod
    def fits_float32(cls, kind: Any) -> bool:
        return Number.fits_float32(kind.value_type)

    def encode(self, array: Any, find_nan: bool) -> NDArray[Any]:
        """Return (n, length) numbers."""
        import pyarrow.compute as pc

        other = pc.not_equal(pc.list_value_length(array), self.length)
        if pc.any(other).as_py():
            found = len(array[pc.index(other, True).as_py()])
            raise DataError(
                f"column {self.name!r}: the first rows held lists of {self.length} numbers, found "
                f"one of {found}. Start over without the column: exclude=[{self.name!r}]."
            )
        values = _flat(array, self.length)
        if find_nan and values.dtype.kind == "f":
            return np.where(np.isnan(values), 0, values)
        return values

    @property
    def scales(self) -> Floats:
        return np.full(self.width, self.scale)

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        np.multiply(encoded[part].T, 1 / self.scale, out=out, casting="unsafe")

    def map_from(self, other: Column) -> Floats | None:
        """Return the change of scale."""
        if not isinstance(other, Vector) or other.length != self.length:
            return None
        return np.eye(self.length, self.length + 1) * (other.scale / self.scale)

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        return first_beyond(encoded, limit)


def _plain(array: Any) -> NDArray[Any]:
    """Return numbers as NumPy, null as NaN."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = array.type
    if kinds.is_decimal(kind) or (kinds.is_boolean(kind) and array.null_count):
        array = array.cast(pa.float64())
    values = numpy_array(array)
    return values.view(np.uint8) if values.dtype == np.bool_ else _wide(values)


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    """Return float16 as float32: differences of two would not fit."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _ticks(array: Any) -> Any:
    """Return dates and times as an Arrow array of integers in their unit."""
    import pyarrow as pa

    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _unit(kind: Any) -> Any:
    import pyarrow.types as kinds

    if kinds.is_date(kind):
        return "D" if kinds.is_date32(kind) else "ms"
    return str(kind.unit)


def _flat(array: Any, k: int) -> NDArray[Any]:
    """Return an array of lists of k numbers as (n, k); a missing list is zeros."""
    items = _wide(numpy_array(array.flatten())).reshape(-1, k)
    if not array.null_count:
        return items
    values: NDArray[Any] = np.zeros((len(array), k))
    values[numpy_array(array.is_valid())] = items
    return values


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
