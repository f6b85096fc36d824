"""Input files: find them by path, folder, glob or URL, open them, and fingerprint them.

Tables from Python, and standard input, are written to temporary files and read from these: an
iterator or a pipe can then be read twice, in constant memory. Where one pass is enough, they are
read as they come (`BatchStream`).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import glob, has_magic
from itertools import chain, islice
from pathlib import Path
from typing import Any

from olss.errors import DataError, FormatError, InputError
from olss.tables.frames import is_table, to_arrow
from olss.tables.schema import conform, unify_schemas
from olss.util.files import ARRAY_FILE_ERRORS, file_system

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
        for source in [item] if isinstance(item, Source) else _find_files(os.fspath(item)):
            found.setdefault(source.place, source)
    return list(found.values())


def _find_files(item: str) -> Iterator[Source]:
    return _remote(item) if "://" in item else _local(item)


def _local(item: str) -> Iterator[Source]:
    path = Path(item)
    if os.path.isdir(item):
        names = sorted(str(p) for p in path.rglob("*") if _is_data_file(p.relative_to(path)))
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
    with name_errors(item):
        fs, path = file_system(item)
        if has_magic(path):
            paths = sorted(fs.glob(path))
        elif fs.isdir(path):
            paths = [
                p for p in sorted(fs.find(path)) if _is_data_file(Path(p[len(path) :].lstrip("/")))
            ]
        else:
            paths = [path]
        if not paths:
            raise InputError(f"{item}: no file found. {_kinds()}")
        for found in paths:
            yield Source(fs.unstrip_protocol(found), _format(found), int(fs.info(found)["size"]))


def _is_data_file(path: Path) -> bool:
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


class BatchStream:
    """Record batches as they come, the first of which can be looked at before.

    Parameters
    ----------
    start : callable
        Returns an iterator of record batches.
    repeatable : bool
        Whether it can be called again, for a second pass.
    remembers : callable, optional
        Returns what the result should remember of the stream once it has been read.
    """

    def __init__(
        self,
        start: Callable[[], Iterable[Any]],
        *,
        repeatable: bool = False,
        remembers: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._start, self._repeatable, self.remembers = start, repeatable, remembers
        self._rest: Iterator[Any] | None = None
        self._head: list[Any] = []
        self._read = False

    def peek(self, rows: int) -> list[Any]:
        """Return the first batches, of so many rows or all there are."""
        if self._rest is None:
            self._rest = iter(self._start())
        while sum(batch.num_rows for batch in self._head) < rows:
            batch = next(self._rest, None)
            if batch is None:
                break
            self._head.append(batch)
        return self._head

    def has_rows(self) -> bool:
        """Return whether there is anything to read."""
        return any(batch.num_rows for batch in self.peek(1))

    def __iter__(self) -> Iterator[Any]:
        if self._read:
            if not self._repeatable:
                raise DataError("a stream of tables cannot be read a second time; use passes=1.")
            self._rest = None
        self._read = True
        self.peek(1)
        assert self._rest is not None
        while self._head:
            yield self._head.pop(0)
        yield from self._rest


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
    stream : BatchStream, optional
        What it is read from instead of a file.
    """

    address: str
    format: str
    bytes: int
    modified: int = 0
    inode: int = 0
    number: int = 0
    path: str = ""
    given: bool = False
    stream: BatchStream | None = field(default=None, compare=False, repr=False)

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
        if "://" not in self.place:
            return Path(self.place).open("rb")
        fs, path = file_system(self.place)
        return fs.open(path, "rb")

    def fingerprint(self) -> str:
        """Return a digest of all bytes; for a remote file, of its server's metadata."""
        if "://" in self.address:
            fs, path = file_system(self.address)
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
        if "://" in self.address or self.given or self.stream is not None:
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


@contextmanager
def name_errors(place: str) -> Iterator[None]:
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


HUGGING_FACE_ROWS = 10_000

# First bytes of files. An Arrow stream begins with a message, whose length follows this marker.
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"ORC": "orc",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"\xff\xff\xff\xff": "stream",
}
GZIP = b"\x1f\x8b"


@contextmanager
def as_paths(inputs: Any, *, once: bool = False) -> Iterator[list[str | Source]]:
    """Give the inputs as paths, and tables among them as sources, read inside the context only.

    Tables are called ``table-1``, ``table-2`` and so on, by their places among the inputs. So is
    standard input, ``"-"``. What is read `once` is not written to temporary files, but for
    standard input in a format other than an Arrow stream; and all tables of an iterator are one.
    """
    alone = isinstance(inputs, str | os.PathLike) or is_table(inputs) or _is_data_set(inputs)
    many = isinstance(inputs, Iterable) and not hasattr(inputs, "__array__")
    items = [inputs] if alone or not many else inputs
    if once and isinstance(items, Iterator):  # of tables: they are one stream
        first = list(islice(items, 1))
        items = chain(first, items)
        items = [items] if first and is_table(first[0]) else items
    with tempfile.TemporaryDirectory(prefix="olss-tables-") as folder:
        yield [_source(item, number, Path(folder), once) for number, item in enumerate(items, 1)]


def _source(item: Any, number: int, folder: Path, once: bool) -> str | Source:
    name = f"table-{number}"
    tables: Iterable[Any]
    if isinstance(item, str) and item == "-":
        arrow = _open_arrow_stdin() if once else None
        if arrow is None:
            return _spool_stdin(name, folder)
        tables = _read_stdin(arrow)
    elif isinstance(item, str | os.PathLike):
        return os.fspath(item)
    elif _is_data_set(item):
        tables = item.with_format("arrow").iter(HUGGING_FACE_ROWS)
    elif is_table(item):
        tables = item if hasattr(item, "read_next_batch") else [item]
    elif isinstance(item, Iterable) and not hasattr(item, "__array__"):
        tables = item
    else:
        raise InputError(
            f"inputs must be paths, tables, or iterators of tables, found {type(item).__name__}."
        )
    if once:
        batches = (batch for table in _in_one_schema(tables) for batch in table.to_batches())
        return Source(name, "stream", 0, given=True, stream=BatchStream(lambda: batches))
    path = folder / f"{name}.arrow"
    _write(path, tables)
    return Source(name, "arrow", path.stat().st_size, path=str(path), given=True)


def _open_arrow_stdin() -> Any:
    """Return standard input as a reader of record batches, or None if it is no Arrow stream."""
    import pyarrow as pa

    _check_stdin()
    marker = next(magic for magic, kind in MAGIC.items() if kind == "stream")
    file = sys.stdin.buffer
    head = file.peek(len(marker)) if isinstance(file, io.BufferedReader) else b""
    if not head.startswith(marker):
        return None
    with _explain_stdin():
        return pa.ipc.open_stream(file)


def _read_stdin(reader: Any) -> Iterator[Any]:
    with _explain_stdin():
        yield from reader


@contextmanager
def _explain_stdin() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"standard input: damaged Arrow stream ({error}).") from error


def _check_stdin() -> None:
    if sys.stdin.isatty():
        raise InputError("inputs: '-' is standard input, and that is a terminal; pipe a table in.")


def _spool_stdin(name: str, folder: Path) -> Source:
    """Copy standard input to a file, and return it with the format that its first bytes tell."""
    _check_stdin()
    path = folder / name
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    if packed:
        unpacked = folder / f"{name}-unpacked"
        try:
            with gzip.open(path) as file, unpacked.open("wb") as out:
                shutil.copyfileobj(file, out)
        except (EOFError, OSError) as error:
            raise FormatError(f"standard input: damaged gzip data ({error}).") from error
        path = unpacked.replace(path)
    kind = _detect_format(path)
    if kind == "stream":
        path, kind = _write_arrow_file(path), "arrow"
    return Source(name, kind, path.stat().st_size, path=str(path), given=True)


def _detect_format(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if not head:
        raise DataError("inputs: standard input ('-') is empty.")
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    if b"\0" in head:
        raise FormatError(
            "standard input: unknown format. Pipe in Parquet, Arrow, ORC, npy, CSV or JSON lines."
        )
    return "json" if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" else "csv"


def _write_arrow_file(path: Path) -> Path:
    """Return an Arrow file of a stream; only a file can be read in pieces."""
    import pyarrow as pa

    written = path.with_suffix(".arrow")
    with _explain_stdin(), pa.ipc.open_stream(str(path)) as reader:
        _write(written, reader)
    return written


def _is_data_set(item: Any) -> bool:
    """Whether an item is a data set of Hugging Face."""
    return hasattr(item, "with_format") and hasattr(item, "iter")


def _in_one_schema(tables: Iterable[Any]) -> Iterator[Any]:
    """Yield Arrow tables, all in the schema of the first, as far as it goes."""
    schema = None
    for given in tables:
        if not is_table(given):
            raise InputError(f"inputs must be tables, found {type(given).__name__} in one.")
        table, _ = to_arrow(given, place="inputs")
        if schema is None:
            schema = table.schema
        elif not table.schema.equals(schema):
            wider = unify_schemas(schema, table.schema, place="inputs")
            if not wider.equals(schema):
                raise InputError(
                    "the tables of an iterator must have one schema; give tables of different "
                    "types one by one, in a list of lists."
                )
            table = conform(table, schema, place="inputs")
        yield table
    if schema is None:
        raise InputError("inputs hold no table.")


def _write(path: Path, tables: Iterable[Any]) -> None:
    """Write tables into one Arrow file."""
    import pyarrow as pa

    writer = None
    try:
        for table in _in_one_schema(tables):
            if writer is None:
                writer = pa.ipc.new_file(str(path), table.schema)
            try:
                writer.write_table(table.unify_dictionaries())
            except pa.ArrowInvalid as error:  # an Arrow file has one list of categories a column
                raise InputError(
                    "the tables of an iterator must have the same categories, in one order. Make "
                    f"such columns text, or give tables one by one, in a list ({error})."
                ) from error
    finally:
        if writer is not None:
            writer.close()
