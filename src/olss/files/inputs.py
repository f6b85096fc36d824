"""The inputs of `compress`: what is to be read, what was read before, and a first look.

A file that was ingested before is skipped, by its address, size and time or by its contents. The
others are surveyed for a schema in which all rows can be read, and for the pieces to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import DataError, FormatError, InputError
from olss.memory.state import FileEntry
from olss.tables.databases import database_kind, open_query, redact
from olss.tables.readers import RowGroup, survey
from olss.tables.sources import Source, as_paths, find

SAMPLE_ROWS = 16_384
# Strings need more places than numbers to show their values.
SAMPLE_PIECES, SAMPLE_PIECES_TEXT = 4, 16


@dataclass(frozen=True)
class Inputs:
    """New files, their pieces and the schema in which all rows can be read.

    `known` counts the files that were ingested before, `skipped` has the reasons why others are not
    read. The pieces of ordered inputs are the same in each pass, so that positions in the stream
    are known after the first.
    """

    schema: Any
    sources: tuple[tuple[Source, str], ...]
    pieces: tuple[RowGroup, ...]
    known: int = 0
    ordered: bool = True
    skipped: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of all pieces."""
        return sum(piece.bytes for piece in self.pieces)


@contextmanager
def open_inputs(
    inputs: Any,
    query: str | None,
    since: str | None,
    *,
    known: Sequence[FileEntry],
    note: Callable[[str], None],
    once: bool,
) -> Iterator[list[str | Source]]:
    """Give paths and sources to read; `known` were ingested before, `note` takes remarks."""
    if query is None:
        if since is not None:
            raise InputError("since= is for a database; use it with query=.")
        for item in inputs if isinstance(inputs, list | tuple) else [inputs]:
            if database_kind(item) is not None:
                raise InputError(
                    f"{redact(os.fspath(item))} is a database; say what to read of it with --query "
                    "(query=)."
                )
        with as_paths(inputs, once=once) as paths:
            yield paths
        return

    def find_last(address: str) -> Any:
        entries = [entry for entry in known if entry["address"] == address]
        values = [entry["since"] for entry in entries if "since" in entry]
        if entries and since is None:
            note("this query was ingested before, and its rows count as new; see --since")
        return next((e["value"] for e in reversed(values) if e["column"] == since), None)

    with open_query(inputs, query, since, find_last) as source:
        yield [source]


def scan_inputs(
    inputs: Sequence[str | Source],
    *,
    known: Sequence[FileEntry],
    own: Path,
    schema: Any,
    new_columns: str,
    skip_bad: bool,
    note: Callable[[str], None],
) -> Inputs:
    """Return the files that have not been ingested before, and their common schema.

    Parameters
    ----------
    inputs : sequence of paths and sources
    known : sequence of FileEntry
        Those ingested before.
    own : path
        The file to be written, which is no input.
    schema : pyarrow.Schema or None
        Schema of the rows held.
    new_columns : {"error", "keep", "ignore"}
        What to do about columns that it does not have.
    skip_bad : bool
        Whether to skip what cannot be read.
    note : function
        Takes remarks for the user.
    """
    fingerprints = {entry["fingerprint"] for entry in known}
    addresses = {entry["address"]: entry for entry in known}
    sources: list[tuple[Source, str]] = []
    pieces: list[RowGroup] = []
    skipped: list[str] = []
    repeated, tables = 0, _count_tables(addresses)

    def attempt(action: Callable[[], Any]) -> Any:
        if not skip_bad:
            return action()
        try:
            return action()
        except (DataError, FormatError, OSError) as error:
            skipped.append(str(error))
            return None

    inode = own.stat().st_ino if own.exists() else 0
    for source in find(inputs):
        # A look at every file takes its time when there are thousands.
        if source.stream is None and source.inode == inode and _is_same_file(source.place, own):
            continue
        if source.stream is not None and known and not source.stream.has_rows():
            continue
        if source.given:
            tables += 1
            source = replace(source, address=f"table-{tables}")
        before = None if source.stream is not None else addresses.get(source.address)
        if before is not None and _looks_unchanged(before, source):
            repeated += 1
            continue
        number = len(known) + len(sources)
        fingerprint = attempt(source.fingerprint) if source.stream is None else f"stream {number}"
        if fingerprint is None:
            continue
        if fingerprint in fingerprints:
            repeated += 1
            continue
        if before is not None:
            note(f"{source.address} has changed since it was ingested; its rows count as new")
        source = replace(source, number=number)
        found = attempt(partial(survey, source, len(pieces), schema, new_columns=new_columns))
        if found is None:
            continue
        wider, its = found
        if skip_bad:
            its = [
                piece
                for piece in its
                if piece.source.stream is not None or attempt(partial(_is_readable, piece, wider))
            ]
            its = [replace(piece, number=len(pieces) + i) for i, piece in enumerate(its)]
            if not its:
                continue
        schema = wider
        fingerprints.add(fingerprint)
        sources.append((source, fingerprint))
        pieces += its
    if schema is None:
        raise DataError("inputs: no file can be read, so there is nothing to compress.")
    return Inputs(schema, tuple(sources), tuple(pieces), repeated, skipped=skipped)


def read_sample(found: Inputs, columns: list[Any] | None) -> Any:
    """Return sample rows: the first of a few pieces, spread evenly over the input."""
    import pyarrow as pa
    import pyarrow.types as kinds

    pieces, schema = found.pieces, found.schema
    has_text = any(not kinds.is_primitive(entry.type) for entry in schema)
    count = min(len(pieces), SAMPLE_PIECES_TEXT if has_text else SAMPLE_PIECES)
    share = SAMPLE_ROWS // count
    batches = []
    for at in np.linspace(0, len(pieces) - 1, count).astype(int):
        batches += pieces[at].peek(schema, columns, share)
    if not batches:
        raise DataError("inputs hold no rows.")
    return pa.Table.from_batches(batches, schema=batches[0].schema)


def _count_tables(addresses: Iterable[str]) -> int:
    """Return the highest number of a table ingested before; those to come continue from it."""
    numbers = [re.fullmatch(r"table-(\d+)", address) for address in addresses]
    return max((int(found[1]) for found in numbers if found), default=0)


def _looks_unchanged(entry: FileEntry, source: Source) -> bool:
    """Return whether a file looks from outside as it did when it was ingested."""
    known = (entry["bytes"], entry["modified"], entry["inode"])
    return bool(source.modified) and known == (source.bytes, source.modified, source.inode)


def _is_same_file(address: str, path: Path) -> bool:
    return "://" not in address and path.exists() and Path(address).samefile(path)


def _is_readable(piece: RowGroup, schema: Any) -> bool:
    for _ in piece.read(schema):
        pass
    return True
