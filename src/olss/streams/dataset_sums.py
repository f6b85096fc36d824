"""Whether a data set is the published one: checked once, and what was right is remembered."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError

__all__ = ["check_md5", "check_records", "check_unpacked", "once", "sha256_of"]

Bytes = NDArray[np.uint8]


def once(files: Sequence[Path], wanted: str, cache: Path, check: Callable[[], None]) -> None:
    """Run a check that raises, unless it passed before on the same files, of the same time.

    What passed is remembered as an empty file in `cache`; where that cannot be written, the check
    is run each time.
    """
    state = [wanted]
    for path in files:
        found = path.stat()
        state += [str(path.resolve()), str(found.st_size), str(found.st_mtime_ns)]
    mark = cache / "checked" / hashlib.sha256("\n".join(state).encode()).hexdigest()
    if mark.exists():
        return
    check()
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def check_md5(path: Path, md5: str) -> None:
    """Raise `FormatError` unless a file has its published md5 sum."""
    with path.open("rb") as file:
        _same(path, "md5", hashlib.file_digest(file, "md5").hexdigest(), md5)


def check_unpacked(path: Path, sha256: str) -> None:
    """Raise `FormatError` unless a file, once unpacked, has the sha256 sum of the published one."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile) as error:
        raise FormatError(f"{path} is cut short or damaged: {error}. Fetch it again.") from error
    _same(path, "sha256", found, sha256)


def check_records(content: Bytes, width: int, sha256: str, where: Path) -> None:
    """Raise `FormatError` unless these are the published records, in whatever order.

    Repacked archives may hold them in another one. The sum is that of the records' own sums, put
    in order.
    """
    _same(where, "sha256", records_sum(content, width), sha256)


def records_sum(content: Bytes, width: int) -> str:
    """Return the sha256 sum of the sorted sha256 sums of records of `width` bytes each."""
    if content.size % width:
        return "none: it does not hold whole records"
    records = content.reshape(-1, width)
    sums = sorted(hashlib.sha256(record.data).digest() for record in records)
    return hashlib.sha256(b"".join(sums)).hexdigest()


def sha256_of(raw: Any) -> str:
    """Return the sha256 sum of bytes."""
    return hashlib.sha256(raw).hexdigest()


def _same(path: Path, kind: str, found: str, published: str) -> None:
    if found != published:
        raise FormatError(
            f"{path} is not what was published: its {kind} sum is {found}, that of the published "
            f"data {published}. It is damaged or another file; delete it and fetch it again."
        )
