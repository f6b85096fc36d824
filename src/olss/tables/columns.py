"""One class for each kind of column: what its values are worth as numbers to be scored.

Every kind answers the same questions, see `Column`. `decide` looks at a column of sample rows and
returns it as this kind sees it, or a reason why it is not of this kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.tables.arrow_types import numpy_array, value_type
from olss.tables.missing_values import Floats, center, fill_missing, first_beyond, spread
from olss.util import checks

__all__ = [
    "WIDTH_LIMIT",
    "Column",
    "Date",
    "Number",
    "Passthrough",
    "Vector",
    "bounded",
    "decoded",
    "identity",
]


# What a file may ask for: enough for any plan that was ever made, little enough to be harmless.
WIDTH_LIMIT = 1 << 20
TEXT_LIMIT = 1 << 20


@dataclass(frozen=True)
class Column(ABC):
    """What one column is used for.

    Attributes
    ----------
    name, type : str
        The type as Arrow writes it.
    why : str
        In words, for the summary.
    """

    name: str
    type: str
    why: str
    use: ClassVar[str]
    indicators: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return what a column of sample rows is worth, or why it is not of this kind.

        The reason is empty if already the type of the column is another.
        """

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers that are scored in the column's place."""

    @property
    def labels(self) -> list[str]:
        """What to call each number, for people."""
        return [self.name] if self.width == 1 else [f"{self.name}[{i}]" for i in range(self.width)]

    @property
    def offset(self) -> Floats:
        """(width,) what is subtracted of each number, in units of its scale."""
        return np.zeros(self.width)

    @property
    def is_indicator(self) -> NDArray[np.bool_]:
        """(width,) which numbers are 0 or 1 by construction."""
        return np.full(self.width, self.indicators)

    @classmethod
    def is_small(cls, kind: Any) -> bool:
        """Whether float32 holds values of an Arrow type exactly enough."""
        return cls.indicators

    @abstractmethod
    def encode(self, array: Any, careful: bool) -> Any:
        """Return an Arrow array as NumPy arrays; NaN is looked for only with `careful`."""

    @abstractmethod
    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write some of the encoded rows into `out`, (width, rows)."""

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        """Return the first row with a value of this size or more, or None."""
        return None

    def map_from(self, other: Column) -> Floats | None:
        """Return how the numbers of a column under another plan are those of this one.

        (width, other.width + 1), the last for the constant; None if they do not say.
        """
        return None

    def to_json(self) -> dict[str, Any]:
        """Return what `column_from_json` reads."""
        return {"use": self.use, **asdict(self)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        return cls(*identity(state))


@dataclass(frozen=True)
class Passthrough(Column):
    """A column that is kept and not scored."""

    use: ClassVar[str] = "passthrough"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column, whatever it is."""
        why = "empty" if column.null_count == len(column) else "neither number, date nor text"
        return cls(name, str(column.type), why)

    @property
    def width(self) -> int:
        """None."""
        return 0

    @classmethod
    def is_small(cls, kind: Any) -> bool:
        """Nothing of it is scored."""
        return True

    def encode(self, array: Any, careful: bool) -> None:
        """Return nothing."""

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write nothing."""


def decoded(array: Any) -> Any:
    """Return an array, or a column, of categories as one of plain values."""
    plain = value_type(array.type)
    return array if plain == array.type else array.cast(plain)


def identity(state: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (name, type, why) of a JSON object."""
    for name in ("name", "type", "why"):
        value = state.get(name)
        if not isinstance(value, str) or len(value) > TEXT_LIMIT:
            raise InputError(f"{name} must be a text, found {value!r:.80}.")
    return state["name"], state["type"], state["why"]


def bounded(name: str, value: Any) -> int:
    """Return a positive whole number that a file may ask for."""
    found = checks.integer(name, value)
    if found > WIDTH_LIMIT:
        raise InputError(f"{name} must be at most {WIDTH_LIMIT:,}, found {found:,}.")
    return found


NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Number(Column):
    """Numbers and booleans: z = (x - shift) / scale, a missing one as the median.

    Attributes
    ----------
    shift, scale : float
        Median and root mean square about it, in the sample.
    missing : bool
        Whether a further number says where values are missing: if some were in the sample.
    """

    shift: float
    scale: float
    missing: bool
    use: ClassVar[str] = "number"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds numbers or booleans."""
        import pyarrow.types as kinds

        kind = column.type
        is_number = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
        if not (is_number or kinds.is_boolean(kind)):
            return ""
        return cls._measured(name, column, _plain(column.combine_chunks()))

    @classmethod
    def _measured(cls, name: str, column: Any, values: NDArray[Any]) -> Self:
        floats = values.astype(np.float64)
        shift, scale, missing = center(floats)
        why = "missing ones marked" if missing else ""
        return cls(name, str(column.type), why, shift, scale, missing)

    @property
    def width(self) -> int:
        """One, and one more if missing values are marked."""
        return 1 + self.missing

    @property
    def labels(self) -> list[str]:
        """The column, and that values of it are missing."""
        return [self.name, f"{self.name} is missing"][: self.width]

    @property
    def offset(self) -> Floats:
        """What is subtracted of the number, in units of its scale; nothing of the mark."""
        offset = np.zeros(self.width)
        offset[0] = self.shift / self.scale
        return offset

    @property
    def is_indicator(self) -> NDArray[np.bool_]:
        """The mark is one."""
        return np.arange(self.width) > 0

    @classmethod
    def is_small(cls, kind: Any) -> bool:
        """Whether the type has at most 24 significant bits."""
        import pyarrow.types as kinds

        is_small = kinds.is_float16(kind) or kinds.is_float32(kind) or kinds.is_boolean(kind)
        return bool(is_small or (kinds.is_integer(kind) and kind.bit_width <= 16))

    def encode(self, array: Any, careful: bool) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return (values, where they are missing or None)."""
        array = decoded(array)
        values = _plain(array)
        if values.dtype.kind != "f" or not (array.null_count or careful or self.missing):
            return values, None
        return fill_missing(values, self.shift)

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write z, and the mark."""
        self._write(encoded, part, out, self.shift)

    def _write(self, encoded: Any, part: slice, out: NDArray[Any], shift: float) -> None:
        values, gone = encoded
        np.subtract(values[part], shift, out=out[0], casting="unsafe")
        out[0] *= 1 / self.scale
        if self.missing:
            out[1] = 0 if gone is None else gone[part]

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        """Return the first row with a value of this size or more, or None."""
        return first_beyond(encoded[0], limit)

    def map_from(self, other: Column) -> Floats | None:
        """Return how (z', mark, 1) becomes (z, mark): a missing number is z = 0 under both."""
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

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        shift = checks.number("shift", state.get("shift"))
        scale = checks.number("scale", state.get("scale"), above=0)
        missing = state.get("missing")
        if not isinstance(missing, bool):
            raise InputError(f"missing must be true or false, found {missing!r}.")
        return cls(*identity(state), shift, scale, missing)


@dataclass(frozen=True)
class Date(Number):
    """Dates, times and durations: as numbers, counted from their median on.

    Attributes
    ----------
    unit : {"D", "s", "ms", "us", "ns"}
        What is counted. Values of a finer unit are rounded down to it.
    """

    unit: str = "ns"
    use: ClassVar[str] = "date"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds dates, times or durations."""
        import pyarrow.types as kinds

        if not kinds.is_temporal(column.type) or kinds.is_interval(column.type):
            return ""
        ticks = _ticks(column.combine_chunks())
        found = cls._measured(name, column, numpy_array(ticks))
        return replace(found, unit=_unit(column.type))

    @property
    def offset(self) -> Floats:
        """Nothing: dates have no natural zero."""
        return np.zeros(self.width)

    @classmethod
    def is_small(cls, kind: Any) -> bool:
        """No date is."""
        return False

    def encode(self, array: Any, careful: bool) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return (whole ticks since the median, where they are missing or None)."""
        array = decoded(array)
        ticks, gone = _ticks(array), None
        if array.null_count:
            gone = array.is_null().to_numpy(zero_copy_only=False)
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
        """Write z, and the mark."""
        self._write(encoded, part, out, 0.0)

    def _tick_of(self, other: Number) -> float:
        assert isinstance(other, Date)
        return NANOSECONDS[other.unit] / NANOSECONDS[self.unit]

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        column = super().from_json(state)
        if abs(column.shift) >= 2.0**63:
            raise InputError(f"shift must be a number of 64 bits, found {column.shift!r}.")
        unit = checks.choice("unit", state.get("unit"), NANOSECONDS)
        return replace(column, unit=unit)


@dataclass(frozen=True)
class Vector(Column):
    """Lists of one fixed length: as many numbers, divided by a common scale; missing ones as 0."""

    scale: float
    length: int
    use: ClassVar[str] = "vector"

    @classmethod
    def decide(cls, name: str, column: Any) -> Self | str:
        """Return the column if it holds lists of one fixed length, of numbers."""
        import pyarrow.types as kinds

        kind = column.type
        if not kinds.is_fixed_size_list(kind):
            return ""
        if not (kinds.is_integer(kind.value_type) or kinds.is_floating(kind.value_type)):
            return "lists of other than numbers"
        if not kind.list_size:
            return "lists of no numbers"
        values = _flat(column.combine_chunks(), kind.list_size)
        scale = spread(values[np.isfinite(values)])
        return cls(name, str(kind), f"{kind.list_size} numbers", scale, kind.list_size)

    @property
    def width(self) -> int:
        """The length of the lists."""
        return self.length

    @classmethod
    def is_small(cls, kind: Any) -> bool:
        """Whether its items are."""
        return Number.is_small(kind.value_type)

    def encode(self, array: Any, careful: bool) -> NDArray[Any]:
        """Return (n, length) numbers."""
        values = _flat(array, self.length)
        if careful and values.dtype.kind == "f":
            return np.where(np.isnan(values), 0, values)
        return values

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write them, divided by the scale."""
        np.multiply(encoded[part].T, 1 / self.scale, out=out, casting="unsafe")

    def map_from(self, other: Column) -> Floats | None:
        """Return the numbers in units of this scale."""
        if not isinstance(other, Vector) or other.length != self.length:
            return None
        return np.eye(self.length, self.length + 1) * (other.scale / self.scale)

    def row_beyond(self, encoded: Any, limit: float = np.inf) -> int | None:
        """Return the first row with a value of this size or more, or None."""
        return first_beyond(encoded, limit)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the column that `to_json` wrote, or raise `ValueError`."""
        scale = checks.number("scale", state.get("scale"), above=0)
        length = bounded("length", state.get("length"))
        return cls(*identity(state), scale, length)


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
    """Return dates and times as an Arrow array of whole numbers of their unit."""
    import pyarrow as pa

    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _unit(kind: Any) -> str:
    import pyarrow.types as kinds

    if kinds.is_date(kind):
        return "D" if kinds.is_date32(kind) else "ms"
    return str(kind.unit)


def _flat(array: Any, k: int) -> NDArray[Any]:
    """Return an array of fixed-size lists as (n, k); a missing list is zeros."""
    items = _wide(numpy_array(array.flatten())).reshape(-1, k)
    if not array.null_count:
        return items
    values: NDArray[Any] = np.zeros((len(array), k))
    values[array.is_valid().to_numpy(zero_copy_only=False)] = items
    return values
