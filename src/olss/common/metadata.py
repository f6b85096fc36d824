"""What a file says of itself, read as what it must be: whatever is wrong is a `FormatError`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from typing import Any

from olss.errors import FormatError

__all__ = ["Metadata"]

# Deeper or longer than anything olss writes.
MOST_ITEMS = 10_000_000
LARGEST = sys.float_info.max


class Metadata:
    """A JSON object, asked for its entries by name and kind.

    Parameters
    ----------
    place : str
        The file, for messages.
    content : dict

    Examples
    --------
    >>> state = Metadata.parsed("a.parquet", b'{"seen": 7, "policy": "paper"}')
    >>> state.whole("seen"), state.text("policy", ["paper", "recent"])
    (7, 'paper')
    >>> state.whole("policy")
    Traceback (most recent call last):
    olss.errors.FormatError: a.parquet: its metadata are damaged: policy is 'paper' where a whole
    number from 0 to ... belongs. Take a copy of the original, or make it anew.
    """

    def __init__(self, place: str, content: Any, inside: str = "") -> None:
        self.place = place
        self._inside = inside
        if not isinstance(content, dict):
            raise self.damaged(f"{inside or 'all'} is {_short(content)} where a table belongs")
        self._content: dict[str, Any] = content

    @classmethod
    def parsed(cls, place: str, text: bytes | str) -> Metadata:
        """Return what JSON text says."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{place}: its metadata are damaged: {error}.") from error
        return cls(place, content)

    def __contains__(self, name: str) -> bool:
        return self._content.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def raw(self, name: str) -> Any:
        """Return an entry as it is."""
        if name not in self._content:
            raise self.damaged(f"{self._name(name)} is missing")
        return self._content[name]

    def whole(self, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a whole number within bounds."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float | None = None) -> float:
        """Return a finite number, not below a bound."""
        value = self.raw(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # JSON has whole numbers that no float can hold.
        if not is_number or not abs(value) <= LARGEST or (least is not None and value < least):
            raise self._wrong(name, "a finite number")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.raw(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str, among: Collection[str] | None = None) -> str:
        """Return text, one of some if they are given."""
        value = self.raw(name)
        if not isinstance(value, str) or (among is not None and value not in among):
            raise self._wrong(name, "text" if among is None else f"one of {', '.join(among)}")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        value = self.raw(name)
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise self._wrong(name, "a list")
        return value

    def table(self, name: str) -> Metadata:
        """Return an object inside this one."""
        return Metadata(self.place, self.raw(name), self._name(name))

    def damaged(self, why: str) -> FormatError:
        """Return the error that says why."""
        return FormatError(
            f"{self.place}: its metadata are damaged: {why}. Take a copy of the original, or make "
            "it anew."
        )

    def _wrong(self, name: str, wanted: str) -> FormatError:
        found = _short(self._content[name])
        return self.damaged(f"{self._name(name)} is {found} where {wanted} belongs")

    def _name(self, name: str) -> str:
        return f"{self._inside}.{name}" if self._inside else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
