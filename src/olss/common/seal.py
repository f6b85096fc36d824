"""A checksum of a whole file inside the file: no bit of it can change unnoticed.

The file holds, once, ``olss_sha256`` and behind it, after whatever its format puts between a key
and a text of 64 characters, the SHA-256 of all its bytes, these 64 taken as zeros.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

from olss.errors import FormatError

__all__ = ["BLANK", "SEAL", "Sealing", "is_sealed", "verify"]

SEAL = "olss_sha256"
BLANK = "0" * 64
# Behind the key, Parquet's footer has two bytes: the kind of what follows, and its length.
PATTERN = re.compile(SEAL.encode() + rb".{2}([0-9a-f]{64})", re.DOTALL)
CHUNK = 1 << 20


class Sealing:
    """A file to write to, which sees what it must be sealed with.

    Write the key and `BLANK` once, in one call, among the last things; then call `seal`.
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

    def seal(self) -> None:
        """Put the sum into its place."""
        if self._place is None:
            raise ValueError("no place for the seal was written")
        self._file.seek(self._place)
        self._file.write(self._sum.hexdigest().encode())


def is_sealed(path: Path) -> bool:
    """Whether a file has a seal, right or wrong."""
    return _find(path) is not None


def verify(path: Path) -> None:
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
