"""Input files: find them by path, folder, glob or URL, open them, and fingerprint them."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from olss.errors import DataError, FormatError, InputError, MissingExtraError
from olss.util.files import ARRAY_FILE_ERRORS

__all__ = ["Source", "find", "named"]


FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".jsonl": "json",
    ".jsonl.gz": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}


def find(inputs: Sequence[str | os.PathLike[str] | Source]) -> list[Source]:
    """Find the files of paths, folders, globs and URLs, each once; sources stay as they are."""
    if not inputs:
        raise InputError("inputs is empty: pass one or more files, folders, globs or URLs.")
    found: dict[str, Source] = {}
    for item in inputs:
        for source in [item] if isinstance(item, Source) else _found(os.fspath(item)):
            found.setdefault(source.place, source)
    return list(found.values())


def _found(item: str) -> Iterator[Source]:
    return _remote(item) if "://" in item else _local(item)


def _local(item: str) -> Iterator[Source]:
    path = Path(item)
    if os.path.isdir(item):
        names = sorted(str(p) for p in path.rglob("*") if _wanted(p.relative_to(path)))
        files = [name for name in names if os.path.isfile(name)]
    elif os.path.exists(item) or not has_magic(item):
        files = [item]
    else:
        files = sorted(name for name in glob(item, recursive=True) if os.path.isfile(name))
    if not files:
        raise InputError(
            f"{item}: no {'readable ' if os.path.isdir(item) else ''}file found. {_kinds()}"
        )
    for name in files:
        if not os.path.isfile(name):
            raise InputError(f"{name}: no such file.")
        yield Source.local(name, _format(name))


def _remote(item: str) -> Iterator[Source]:
    with named(item):
        fs, path = _file_system(item)
        if has_magic(path):
            paths = sorted(fs.glob(path))
        elif fs.isdir(path):
            paths = [p for p in sorted(fs.find(path)) if _wanted(Path(p[len(path) :].lstrip("/")))]
        else:
            paths = [path]
        if not paths:
            raise InputError(f"{item}: no file found. {_kinds()}")
        for found in paths:
            yield Source(fs.unstrip_protocol(found), _format(found), int(fs.info(found)["size"]))


def _file_system(item: str) -> tuple[Any, str]:
    fsspec = fsspec_module()
    try:
        fs, path = fsspec.core.url_to_fs(item)
    except (ImportError, ValueError) as error:  # a further package is needed; no such protocol
        raise InputError(f"{item}: cannot be opened ({error}).") from error
    return fs, path


def _wanted(path: Path) -> bool:
    """Whether a file of a folder is data: of a known format, and not hidden."""
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and _suffix(path.name) in FORMATS


def _suffix(name: str) -> str:
    low = name.lower()
    stem, last = os.path.splitext(low)
    return os.path.splitext(stem)[1] + last if last == ".gz" else last


def _format(name: str) -> str:
    kind = FORMATS.get(_suffix(name))
    if kind is None:
        raise InputError(f"{name}: unknown file format. {_kinds()}")
    return kind


def _kinds() -> str:
    return f"Formats are recognised by their ending: {', '.join(FORMATS)}."


# Stretches of blocks are read at the same time; neither changes a fingerprint with the machine.
FINGERPRINT_BLOCK, FINGERPRINT_STRETCH, FINGERPRINT_THREADS = 1 << 20, 1 << 25, 4


@dataclass(frozen=True)
class Source:
    """A file of the input.

    Attributes
    ----------
    address, format : str
    bytes : int
    modified : int
        Time of the last change, in nanoseconds; 0 if unknown.
    inode : int
        Number in the file system; 0 if unknown.
    number : int
        Index among all files ingested, now and before.
    path : str
        Where it is read, if not at its address: for a table that was passed in, or a name that is
        not UTF-8.
    given : bool
        Whether it is a table that was passed in.
    """

    address: str
    format: str
    bytes: int
    modified: int = 0
    inode: int = 0
    number: int = 0
    path: str = ""
    given: bool = False

    @classmethod
    def local(cls, name: str, format: str) -> Source:
        """Return a local file."""
        status = os.stat(name)
        place = Path(name).as_posix()
        # What is not UTF-8 is written out, as in caf\xe9.csv.
        address = os.fsencode(place).decode("utf-8", "backslashreplace")
        path = "" if address == place else place
        return cls(address, format, status.st_size, status.st_mtime_ns, status.st_ino, path=path)

    @property
    def place(self) -> str:
        """Path or URL to read."""
        return self.path or self.address

    def open(self) -> Any:
        """Open for reading bytes."""
        return open_address(self.place)

    def fingerprint(self) -> str:
        """Return a digest of all bytes; for a remote file, of its server's metadata."""
        if "://" in self.address:
            fs, path = fsspec_module().core.url_to_fs(self.address)
            return f"remote {fs.ukey(path)}"
        # A CRC of every block and a digest of these: a third of the time of a digest of all bytes,
        # and no block can change unnoticed but by intent.
        digest = hashlib.blake2b(str(self.bytes).encode(), digest_size=16)
        starts = range(0, self.bytes, FINGERPRINT_STRETCH)
        with ThreadPoolExecutor(FINGERPRINT_THREADS) as pool:
            for sums in pool.map(self._block_sums, starts):
                digest.update(sums)
        return digest.hexdigest()

    def _block_sums(self, start: int) -> bytearray:
        """Return the CRCs of consecutive blocks of the file."""
        sums = bytearray()
        with self.open() as file:
            file.seek(start)
            for _ in range(FINGERPRINT_STRETCH // FINGERPRINT_BLOCK):
                if block := file.read(FINGERPRINT_BLOCK):
                    sums += zlib.crc32(block).to_bytes(4, "little")
        return sums

    def check_unchanged(self) -> None:
        """Raise `DataError` if the file is not as it was when it was found."""
        if "://" in self.address or self.given:
            return
        try:
            now = Source.local(self.place, self.format)
        except OSError as error:
            raise DataError(f"{self.address} disappeared while it was read ({error}).") from error
        if (now.bytes, now.modified) != (self.bytes, self.modified):
            raise DataError(
                f"{self.address} changed while it was read, so nothing was written. Run the same "
                "command again when the file is complete."
            )


def open_address(address: str) -> Any:
    """Open a local file or an fsspec address for reading bytes."""
    if "://" in address:
        return fsspec_module().open(address, "rb").open()
    return Path(address).open("rb")


def fsspec_module() -> Any:
    """Return fsspec, or raise `MissingExtraError`."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "dask", "reading from a URL") from error
    return fsspec


@contextmanager
def named(place: str) -> Iterator[None]:
    """Add the place to every error in reading."""
    import pyarrow as pa

    try:
        yield
    except (DataError, FormatError, InputError):
        raise
    except (pa.ArrowException, *ARRAY_FILE_ERRORS) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise FormatError(
            f"{place}: cannot be read ({reason.rstrip('.')}). Repair or remove it; `compress` "
            "skips bad files and row groups with --skip-bad (skip_bad=True)."
        ) from error
