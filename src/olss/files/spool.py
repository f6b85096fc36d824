"""Write tables from Python, and standard input, to temporary files and read these.

So one way of reading serves all: an iterator or a pipe can be read twice, in constant memory.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from olss.errors import DataError, FormatError, InputError
from olss.tables.frames import is_table, to_arrow
from olss.tables.schema import conform, unify_schemas
from olss.tables.sources import Source

__all__ = ["as_paths"]

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
def as_paths(inputs: Any) -> Iterator[list[str | Source]]:
    """Give the inputs as paths, and tables among them as sources, read inside the context only.

    Tables are called ``table-1``, ``table-2`` and so on, by their places among the inputs. So is
    standard input, ``"-"``.
    """
    alone = isinstance(inputs, str | os.PathLike) or is_table(inputs) or _is_data_set(inputs)
    many = isinstance(inputs, Iterable) and not hasattr(inputs, "__array__")
    items = [inputs] if alone or not many else inputs
    with tempfile.TemporaryDirectory(prefix="olss-tables-") as folder:
        yield [_source(item, number, Path(folder)) for number, item in enumerate(items, 1)]


def _source(item: Any, number: int, folder: Path) -> str | Source:
    name = f"table-{number}"
    if isinstance(item, str) and item == "-":
        return _spool_stdin(name, folder)
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    path = folder / f"{name}.arrow"
    if _is_data_set(item):
        _write(path, item.with_format("arrow").iter(HUGGING_FACE_ROWS))
    elif is_table(item):
        _write(path, item if hasattr(item, "read_next_batch") else [item])
    elif isinstance(item, Iterable) and not hasattr(item, "__array__"):
        _write(path, item)
    else:
        raise InputError(
            f"inputs must be paths, tables, or iterators of tables, found {type(item).__name__}."
        )
    return Source(name, "arrow", path.stat().st_size, path=str(path), given=True)


def _spool_stdin(name: str, folder: Path) -> Source:
    """Copy standard input to a file, and return it with the format that its first bytes tell."""
    if sys.stdin.isatty():
        raise InputError("inputs: '-' is standard input, and that is a terminal; pipe a table in.")
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
    try:
        with pa.ipc.open_stream(str(path)) as reader:
            _write(written, reader)
    except pa.ArrowException as error:
        raise FormatError(f"standard input: damaged Arrow stream ({error}).") from error
    return written


def _is_data_set(item: Any) -> bool:
    """Whether an item is a data set of Hugging Face."""
    return hasattr(item, "with_format") and hasattr(item, "iter")


def _write(path: Path, tables: Iterable[Any]) -> None:
    """Write tables into one Arrow file; all in the schema of the first, as far as it goes."""
    import pyarrow as pa

    schema, writer = None, None
    try:
        for given in tables:
            if not is_table(given):
                raise InputError(f"inputs must be tables, found {type(given).__name__} in one.")
            table, _ = to_arrow(given, place="inputs")
            if schema is None or writer is None:
                schema = table.schema
                writer = pa.ipc.new_file(str(path), schema)
            elif not table.schema.equals(schema):
                wider = unify_schemas(schema, table.schema, place="inputs")
                if not wider.equals(schema):
                    raise InputError(
                        "the tables of an iterator must have one schema; give tables of different "
                        "types one by one, in a list of lists."
                    )
                table = conform(table, schema, place="inputs")
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
    if writer is None:
        raise InputError("inputs hold no table.")
