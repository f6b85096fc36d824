"""A file of the input: opened by its address, known by its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olss.errors import DataError, FormatError, InputError, MissingExtraError

__all__ = ["Source", "fsspec_module", "named", "open_address"]

FINGERPRINT_BYTES = 65_536


@dataclass(frozen=True)
class Source:
    """A file: its address, format and size in bytes."""

    address: str
    format: str
    bytes: int

    def open(self) -> Any:
        """Open for reading bytes."""
        return open_address(self.address)

    def fingerprint(self) -> str:
        """Return a digest of the size and of five stretches of the content."""
        digest = hashlib.blake2b(str(self.bytes).encode(), digest_size=16)
        with self.open() as file:
            for part in range(5):
                file.seek(max(0, self.bytes - FINGERPRINT_BYTES) * part // 4)
                digest.update(file.read(FINGERPRINT_BYTES))
        return digest.hexdigest()


def open_address(address: str) -> Any:
    """Open a local file or an fsspec address for reading bytes."""
    if "://" in address:
        return fsspec_module().open(address, "rb").open()
    return Path(address).open("rb")


def fsspec_module() -> Any:
    """Return fsspec, or say how to get it."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "dask", "reading from an address with '://'") from error
    return fsspec


@contextmanager
def named(place: str) -> Iterator[None]:
    """Say of every error in reading where it happened."""
    import zipfile
    import zlib

    import pyarrow as pa

    failures = (pa.ArrowException, OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile)
    try:
        yield
    except (DataError, FormatError, InputError):
        raise
    except failures as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise FormatError(
            f"{place}: cannot be read ({reason.rstrip('.')}). Mend or take out the file, or ask "
            "for bad files and row groups to be skipped (--skip-bad, skip_bad=True)."
        ) from error
