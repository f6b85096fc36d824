"""Tables wherever they are: found by name, opened, read a block of rows at a time.

An input is a file, a folder, a glob or an fsspec address. A file is one or more `Piece`, the
parts that can be read on their own: the row groups of Parquet, or the whole of another format.
Whatever goes wrong is said with the file and, in Parquet, the row group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from olss.errors import DataError, InputError
from olss.files.readers import BLOCK_ROWS, READERS, SURVEYS
from olss.files.source import Source, fsspec_module, named
from olss.tables.arrow_types import plain_table, plain_type
from olss.tables.schemas import check_names, conform, unified

__all__ = ["Piece", "find", "survey"]

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


@dataclass(frozen=True)
class Piece:
    """A part of a file that can be read on its own.

    Attributes
    ----------
    source : Source
    number : int
        Its place among all pieces of a run.
    group : int or None
        The row group, in Parquet.
    start, rows : int, int or None
        First row in the file, and how many; None where only reading will tell.
    bytes : int
        Share of the file.
    """

    source: Source
    number: int
    group: int | None
    start: int
    rows: int | None
    bytes: int

    @property
    def place(self) -> str:
        """The file and row group, for messages."""
        return self.source.address + ("" if self.group is None else f", row group {self.group}")

    def read(
        self, schema: Any, columns: Sequence[str] | None = None, most: int = BLOCK_ROWS
    ) -> Iterator[tuple[int, Any]]:
        """Yield (first row in the file, record batch) with the columns of `schema`, or some.

        A batch has at most `most` rows.
        """
        import pyarrow as pa

        names = list(schema.names if columns is None else columns)
        fields = dict(zip(schema.names, schema, strict=True))
        wanted = pa.schema([fields[name] for name in names])
        start = self.start
        with named(self.place):
            read = READERS[self.source.format]
            for batch in read(self.source, self.group, schema, names, most):
                if batch.num_rows:
                    yield start, _in_schema(batch, wanted, self.place)
                    start += batch.num_rows


def _in_schema(batch: Any, schema: Any, place: str) -> Any:
    """Return a batch with the columns and types of a schema; what is so already as it is."""
    if batch.schema.equals(schema):
        return batch
    there = set(batch.schema.names)
    chosen = batch.select([name for name in schema.names if name in there])
    if chosen.schema.equals(schema):
        return chosen
    return conform(plain_table(chosen), schema, place=place)


def survey(source: Source, number: int, known: Any = None) -> tuple[Any, list[Piece]]:
    """Return the schema and the pieces of a file.

    Parameters
    ----------
    source : Source
    number : int
        Number of its first piece.
    known : pyarrow.Schema, optional
        That of the files before. The file must have the same columns, in any order, of types that
        go together.

    Returns
    -------
    schema : pyarrow.Schema
        In which rows of this file and of those before can be read, see `olss.tables.schemas`.
    pieces : list of Piece
    """
    import pyarrow as pa

    with named(source.address):
        if not source.bytes:
            raise DataError(f"{source.address} is empty (0 bytes). Take it out, or skip bad files.")
        schema, parts = SURVEYS[source.format](source, known)
        schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
    check_names(schema.names, source.address)
    if sum(1 if rows is None else rows for _, _, rows, _ in parts) == 0:
        raise DataError(f"{source.address} has no rows. Take it out, or skip bad files.")
    pieces = [Piece(source, number + i, *part) for i, part in enumerate(parts)]
    if known is not None:
        schema = unified(known, schema, place=source.address)
    return schema, pieces


def find(inputs: Sequence[str | os.PathLike[str] | Source]) -> list[Source]:
    """Return the files that files, folders, globs and addresses stand for, each once.

    What is known as a source already, a table that was handed over, stays what it is.
    """
    if not inputs:
        raise InputError("no input: give one or more files, folders, globs or addresses.")
    found: dict[str, Source] = {}
    for item in inputs:
        for source in [item] if isinstance(item, Source) else _found(os.fspath(item)):
            found.setdefault(source.address, source)
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
            f"{item}: no {'readable ' if os.path.isdir(item) else ''}file there. {_kinds()}"
        )
    for name in files:
        if not os.path.isfile(name):
            raise InputError(f"{name}: there is no such file.")
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
            raise InputError(f"{item}: no file there. {_kinds()}")
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
    """Whether a file found in a folder is data: of a known kind, not hidden, no marker."""
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and _suffix(path.name) in FORMATS


def _suffix(name: str) -> str:
    low = name.lower()
    stem, last = os.path.splitext(low)
    return os.path.splitext(stem)[1] + last if last == ".gz" else last


def _format(name: str) -> str:
    kind = FORMATS.get(_suffix(name))
    if kind is None:
        raise InputError(f"{name}: files of this kind are not read. {_kinds()}")
    return kind


def _kinds() -> str:
    return f"Files are known by their ending: {', '.join(FORMATS)}."
