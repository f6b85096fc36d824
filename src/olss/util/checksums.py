"""Checksums inside files (Parquet and JSON), and checked reading of JSON metadata."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from olss.errors import FormatError
from olss.util.files import open_atomic

__all__ = [
    "CHECKSUM_BLANK",
    "CHECKSUM_KEY",
    "ChecksumWriter",
    "Metadata",
    "add_checksum",
    "has_checksum",
    "read_json",
    "verify_checksum",
    "verify_file",
    "write_json",
]

SUM = "sha256"


def write_json(path: Path, content: Any) -> None:
    """Write JSON with sorted keys, so equal content is equal bytes; whole or not at all."""
    with open_atomic(path) as file:
        file.write(_text(content).encode())


def add_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with the sum of all of it beside it.

    Examples
    --------
    >>> add_checksum({"a": 1})["sha256"][:8]
    'b606a40d'
    """
    return {**content, SUM: _sum(content)}


def read_json(path: Path) -> Any:
    """Return what a file says, or raise a `FormatError` if it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged ({error}); delete it and run again.") from error


def verify_checksum(content: dict[str, Any], source: object, *, since: int = 0) -> dict[str, Any]:
    """Return sealed content without its sum, or raise a `FormatError` if the sum is another.

    Content of a "version" before `since` may have none.
    """
    content = dict(content)
    found, version = content.pop(SUM, None), content.get("version")
    if found is None and type(version) is int and version < since:
        return content
    try:
        right = found == _sum(content)
    except ValueError:  # NaN, which no file of ours has
        right = False
    if not right:
        raise FormatError(f"{source} is damaged or was edited: its sum is wrong. Run it again.")
    return content


def _sum(content: Any) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


CHECKSUM_KEY = "olss_sha256"
CHECKSUM_BLANK = "0" * 64
# Behind the key, Parquet's footer has two bytes: the kind of what follows, and its length.
PATTERN = re.compile(CHECKSUM_KEY.encode() + rb".{2}([0-9a-f]{64})", re.DOTALL)
CHUNK = 1 << 20


class ChecksumWriter:
    """A file to write to, which sees what it must be sealed with.

    Write the key and `BLANK` once, in one call, among the last things; then call `finish`.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self._size = 0
        self._place: int | None = None

    def write(self, data: bytes) -> int:
        """Write bytes."""
        data = bytes(data)
        self._sum.update(data)
        match = PATTERN.search(data)
        if match:
            self._place = self._size + match.start(1)
        self._file.write(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is whole."""

    def finish(self) -> None:
        """Put the sum into its place."""
        if self._place is None:
            raise ValueError("no place for the seal was written")
        self._file.seek(self._place)
        self._file.write(self._sum.hexdigest().encode())


def has_checksum(path: Path) -> bool:
    """Whether a file has a seal, right or wrong."""
    return _find(path) is not None


def verify_file(path: Path) -> None:
    """Raise `FormatError` if a file is not byte for byte what was sealed."""
    found = _find(path)
    if found is None:
        raise FormatError(f"{path} has no seal: it is damaged, truncated or of another kind.")
    place, wanted = found
    total, at = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            low, high = place - at, place + 64 - at
            if low < len(chunk) and high > 0:
                low, high = max(low, 0), min(high, len(chunk))
                chunk = chunk[:low] + b"0" * (high - low) + chunk[high:]
            total.update(chunk)
            at += len(chunk)
    if total.hexdigest() != wanted:
        raise FormatError(
            f"{path} is damaged: its checksum is not the one it was written with. Take a copy of "
            "it, or make it anew."
        )


def _find(path: Path) -> tuple[int, str] | None:
    """Return where the seal is and what it says; it is the last in the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        reach = 4096
        while True:
            start = max(0, size - reach)
            file.seek(start)
            matches = list(PATTERN.finditer(file.read()))
            if matches:
                return start + matches[-1].start(1), matches[-1][1].decode()
            if start == 0:
                return None
            reach *= 16


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
    >>> state = Metadata.from_json("a.parquet", b'{"seen": 7, "policy": "paper"}')
    >>> state.integer("seen"), state.string("policy", ["paper", "recent"])
    (7, 'paper')
    >>> state.integer("policy")
    Traceback (most recent call last):
    olss.errors.FormatError: a.parquet: its metadata are damaged: policy is 'paper' where a whole
    number from 0 to ... belongs. Take a copy of the original, or make it anew.
    """

    def __init__(self, place: str, content: Any, inside: str = "") -> None:
        self.place = place
        self._inside = inside
        if not isinstance(content, dict):
            raise self.error(f"{inside or 'all'} is {_short(content)} where a table belongs")
        self._content: dict[str, Any] = content

    @classmethod
    def from_json(cls, place: str, text: bytes | str) -> Metadata:
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

    def value(self, name: str) -> Any:
        """Return an entry as it is."""
        if name not in self._content:
            raise self.error(f"{self._name(name)} is missing")
        return self._content[name]

    def integer(self, name: str, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
        """Return a whole number within bounds."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self._wrong(name, f"a whole number from {minimum} to {maximum}")
        return value

    def number(self, name: str, minimum: float | None = None) -> float:
        """Return a finite number, not below a bound."""
        value = self.value(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # JSON has whole numbers that no float can hold.
        if not is_number or not abs(value) <= LARGEST or (minimum is not None and value < minimum):
            raise self._wrong(name, "a finite number")
        return float(value)

    def boolean(self, name: str) -> bool:
        """Return true or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def string(self, name: str, among: Collection[str] | None = None) -> str:
        """Return text, one of some if they are given."""
        value = self.value(name)
        if not isinstance(value, str) or (among is not None and value not in among):
            raise self._wrong(name, "text" if among is None else f"one of {', '.join(among)}")
        return value

    def array(self, name: str) -> list[Any]:
        """Return a list."""
        value = self.value(name)
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise self._wrong(name, "a list")
        return value

    def object(self, name: str) -> Metadata:
        """Return an object inside this one."""
        return Metadata(self.place, self.value(name), self._name(name))

    def error(self, why: str) -> FormatError:
        """Return the error that says why."""
        return FormatError(
            f"{self.place}: its metadata are damaged: {why}. Take a copy of the original, or make "
            "it anew."
        )

    def _wrong(self, name: str, wanted: str) -> FormatError:
        found = _short(self._content[name])
        return self.error(f"{self._name(name)} is {found} where {wanted} belongs")

    def _name(self, name: str) -> str:
        return f"{self._inside}.{name}" if self._inside else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
