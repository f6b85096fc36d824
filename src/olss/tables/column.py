"""What every kind of column answers, and the kind that is kept and not scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.tables.arrow_types import value_type
from olss.tables.gaps import Floats
from olss.util import checks

__all__ = ["WIDTH_LIMIT", "Carried", "Column", "bounded", "decoded", "identity"]


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

    def from_numbers_of(self, other: Column) -> Floats | None:
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
class Carried(Column):
    """A column that is kept and not scored."""

    use: ClassVar[str] = "carried"

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
