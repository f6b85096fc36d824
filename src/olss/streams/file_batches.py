"""Files of tables, read batch by batch; only the columns asked for stay. Loads no pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import DataError, FormatError, InputError
from olss.util.text import empty_strings_to_null

__all__ = ["ENDINGS", "batches", "column_names"]

# What a file gives: the names of its columns, and its batches with some of them. pyarrow.dataset
# would do all of this, but loads pandas where there is one.
Opened = tuple[list[str], Callable[[Sequence[str]], Iterator[Any]]]


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    with _opened(path) as (names, _):
        return names


def batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the record batches of a file, with these columns."""
    with _opened(path) as (names, read):
        if missing := [name for name in columns if name not in names]:
            raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(names)}.")
        yield from read(columns)


@contextmanager
def _opened(path: Path) -> Iterator[Opened]:
    import pyarrow

    kind = next((kind for ending, kind in ENDINGS.items() if _ends(path, ending)), None)
    if kind is None:
        raise InputError(
            f"files are known by their ending ({', '.join([*ENDINGS, '.npz'])}), found {path.name}."
        )
    try:
        yield KINDS[kind](path)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


def _ends(path: Path, ending: str) -> bool:
    return path.name.lower().endswith(ending)


def _parquet(path: Path) -> Opened:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, page_checksum_verification=True)
    return file.schema_arrow.names, lambda columns: file.iter_batches(columns=list(columns))


def _csv(path: Path) -> Opened:
    import pyarrow.csv as csv

    # Without, blocks are cut at the next line break, inside a quoted text, too.
    reader = csv.open_csv(str(path), parse_options=csv.ParseOptions(newlines_in_values=True))
    return reader.schema.names, lambda columns: (
        empty_strings_to_null(batch.select(columns)) for batch in reader
    )


def _arrow(path: Path) -> Opened:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))

    def read(columns: Sequence[str]) -> Iterator[Any]:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number).select(columns)
            batch.validate(full=True)  # offsets of a damaged file point outside of it
            yield batch

    return reader.schema.names, read


def _json(path: Path) -> Opened:
    import pyarrow.json as json

    table = json.read_json(path)
    return table.schema.names, lambda columns: iter(table.select(columns).to_batches())


def _orc(path: Path) -> Opened:
    import pyarrow.orc as orc

    file = orc.ORCFile(path)
    return file.schema.names, lambda columns: (
        file.read_stripe(number, columns=list(columns)) for number in range(file.nstripes)
    )


def _npy(path: Path) -> Opened:
    import pyarrow as pa

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path} is not an npy file of plain arrays: {error}.") from error
    names = array.dtype.names
    if names is None or array.ndim != 1:
        raise DataError(
            f"{path}: holds an array without named columns, so none is the target; save X and y "
            "together with numpy.savez."
        )
    return list(names), lambda columns: iter(
        [pa.record_batch({name: np.ascontiguousarray(array[name]) for name in columns})]
    )


ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".npy": "npy",
}
KINDS: dict[str, Callable[[Path], Opened]] = {
    "parquet": _parquet,
    "csv": _csv,
    "arrow": _arrow,
    "json": _json,
    "orc": _orc,
    "npy": _npy,
}
