"""Read tables from files of any format, a block of rows at a time.

A file is one or more `RowGroup` that can be read independently: the row groups of Parquet, or the
whole file in other formats. Each format has a survey, which returns the schema and, for each piece,
(row group, first row, rows, bytes), and a reader, which yields record batches with at least the
columns asked for and at most so many rows.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from olss.errors import DataError, FormatError
from olss.tables.schema import (
    check_names,
    conform,
    is_number,
    plain_table,
    plain_type,
    unify_schemas,
    value_type,
)
from olss.tables.sources import Source, name_errors

Survey = tuple[Any, list[tuple[int | None, int, int | None, int]]]
Batches = Iterator[Any]
Names = Sequence[str]

BLOCK_BYTES = 16_000_000
BLOCK_ROWS = 65_536
# Column chunks are read through buffers of this size, so memory does not grow with row groups.
BUFFER_BYTES = 1 << 18
TEXT_BLOCK_BYTES = 8 << 20
ARRAY_COLUMN = "X"  # the name of the rows of a .npy file


@dataclass(frozen=True)
class RowGroup:
    """A part of a file that can be read independently.

    Attributes
    ----------
    source : Source
    number : int
        Index among all pieces of a run.
    group : int or None
        The row group, in Parquet.
    start, rows : int, int or None
        First row in the file and number of rows; None if unknown before reading.
    bytes : int
        Its share of the file.
    names : tuple of str
        Columns of the file.
    """

    source: Source
    number: int
    group: int | None
    start: int
    rows: int | None
    bytes: int
    names: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """File and row group, for messages."""
        return self.source.address + ("" if self.group is None else f", row group {self.group}")

    def read(
        self, schema: Any, columns: Sequence[str] | None = None, most: int = BLOCK_ROWS
    ) -> Iterator[tuple[int, Any]]:
        """Yield (first row in the file, record batch of at most `most` rows).

        Batches have the types of `schema`, and all its columns or only `columns`.
        """
        import pyarrow as pa

        names = list(schema.names if columns is None else columns)
        fields = dict(zip(schema.names, schema, strict=True))
        wanted = pa.schema([fields[name] for name in names])
        start = self.start
        with name_errors(self.place):
            read = READERS[self.source.format]
            present = set(self.names or names)
            there = [name for name in names if name in present]
            for batch in read(self.source, self.group, schema, there or self.names[:1], most):
                if batch.num_rows:
                    yield start, conform_batch(batch, wanted, self.place)
                    start += batch.num_rows

    def peek(self, schema: Any, columns: Sequence[str] | None, rows: int) -> Iterator[Any]:
        """Yield record batches of the first rows; what is read once is not used up."""
        import pyarrow as pa

        stream, got = self.source.stream, 0
        if stream is None:
            batches = (batch for _, batch in self.read(schema, columns, rows))
        else:
            wanted = pa.schema([schema.field(name) for name in columns or schema.names])
            batches = (conform_batch(batch, wanted, self.place) for batch in stream.peek(rows))
        for batch in batches:
            yield batch.slice(0, rows - got)
            got += batch.num_rows
            if got >= rows:
                return


def conform_batch(batch: Any, schema: Any, place: str) -> Any:
    """Return a batch with the columns and types of a schema, unchanged if it has them."""
    if batch.schema.equals(schema):
        return batch
    there = set(batch.schema.names)
    chosen = batch.select([name for name in schema.names if name in there])
    if chosen.schema.equals(schema):
        return chosen
    return conform(plain_table(chosen), schema, place=place)


def survey(
    source: Source, number: int, known: Any = None, *, new_columns: str = "error"
) -> tuple[Any, list[RowGroup]]:
    """Return the schema and the pieces of a file, without reading all of it.

    Parameters
    ----------
    source : Source
    number : int
        Number of its first piece.
    known : pyarrow.Schema, optional
        Schema of earlier files. The file must have the same columns, in any order, of compatible
        types.
    new_columns : {"error", "keep", "ignore"}
        What to do with columns that are not known.

    Returns
    -------
    schema : pyarrow.Schema
        For rows of this file and earlier ones, see `olss.tables.schema`.
    pieces : list of RowGroup
    """
    import pyarrow as pa

    with name_errors(source.address):
        if not source.bytes and source.stream is None:
            raise DataError(f"{source.address} is empty (0 bytes). Remove it.")
        schema, parts = SURVEYS[source.format](source, known)
        schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
    check_names(schema.names, source.address)
    if sum(1 if rows is None else rows for _, _, rows, _ in parts) == 0:
        raise DataError(f"{source.address} has no rows. Take it out, or skip bad files.")
    names = tuple(schema.names)
    pieces = [RowGroup(source, number + i, *part, names) for i, part in enumerate(parts)]
    if known is not None:
        if new_columns == "ignore":
            before = set(known.names)
            schema = pa.schema([field for field in schema if field.name in before])
        schema = unify_schemas(known, schema, place=source.address, allow_new=new_columns == "keep")
    return schema, pieces


def _block_rows(total_bytes: int, rows: int, most: int) -> int:
    return min(most, max(64, BLOCK_BYTES * rows // max(1, total_bytes)))


def _survey_parquet(source: Source, known: Any) -> Survey:
    import pyarrow.parquet as pq

    with source.open() as file:
        parquet = pq.ParquetFile(file)
        meta = parquet.metadata
        groups: list[tuple[int | None, int, int | None, int]] = []
        start = 0
        for g in range(meta.num_row_groups):
            rows = meta.row_group(g).num_rows
            groups.append((g, start, rows, source.bytes * rows // max(1, meta.num_rows)))
            start += rows
        return parquet.schema_arrow, groups


def _read_parquet(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Arrow reads a local file faster by its name than through a Python object.
    local = "://" not in source.place
    with pa.OSFile(os.fsencode(source.place)) if local else source.open() as handle:
        file = pq.ParquetFile(
            handle,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        rows = file.metadata.row_group(group)
        yield from file.iter_batches(
            batch_size=_block_rows(rows.total_byte_size, rows.num_rows, most),
            row_groups=[group],
            columns=list(columns),
            use_threads=False,
        )
        file.close()


def _decompress(file: Any, source: Source) -> Any:
    import pyarrow as pa

    packed = source.address.lower().endswith(".gz")
    return pa.CompressedInputStream(file, "gzip") if packed else file


def _value_types(schema: Any) -> dict[str, Any]:
    """Return the types to parse text as: those of the values for categories."""
    import pyarrow as pa

    return {f.name: value_type(f.type) for f in schema or () if f.type != pa.null()}


def _open_csv(file: Any, source: Source, schema: Any) -> Any:
    import pyarrow.csv as csv

    return csv.open_csv(
        _decompress(file, source),
        read_options=csv.ReadOptions(block_size=TEXT_BLOCK_BYTES, use_threads=False),
        # Otherwise blocks end at any line break, also inside quotes.
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=_value_types(schema)),
    )


def _survey_csv(source: Source, known: Any) -> Survey:
    import pyarrow as pa
    import pyarrow.types as kinds

    try:
        with source.open() as file:
            reader = _open_csv(file, source, known)
            schema = reader.schema
            is_text = not any(kinds.is_binary(field.type) for field in schema) and schema.names
            rows = next((None for batch in reader if batch.num_rows), 0)
    except pa.ArrowInvalid:
        if known is None:
            raise
        # Its numbers have another type than before; if that is not it, other columns may.
        rest = [field for field in known if not is_number(value_type(field.type))]
        return _survey_csv(source, pa.schema(rest) if 0 < len(rest) < len(known) else None)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        raise FormatError(
            f"{source.address}: not UTF-8 text. If it is Latin-1, convert it: iconv -f latin1 -t "
            "utf8 OLD.csv > NEW.csv"
        )
    for place in _find_leading_zeros(source, schema, known):
        schema = schema.set(place, schema.field(place).with_type(pa.string()))
    return schema, [(None, 0, rows, source.bytes)]


def _find_leading_zeros(source: Source, schema: Any, known: Any) -> list[int]:
    """Return the indices of new integer columns with leading zeros in the first block.

    00017 is an identifier: it is kept as a string.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    before = () if known is None else known.names
    whole = [
        place
        for place, field in enumerate(schema)
        if pa.types.is_integer(field.type) and field.name not in before
    ]
    if not whole:
        return []
    text = pa.schema([schema.field(place).with_type(pa.string()) for place in whole])
    with source.open() as file:
        block: Any = next(iter(_open_csv(file, source, text)), None)
    return [
        place
        for place in (whole if block is not None else ())
        if pc.any(pc.match_substring_regex(block.column(place), r"^\s*[-+]?0\d")).as_py()
    ]


def _read_csv(source: Source, group: int | None, schema: Any, columns: Names, most: int) -> Batches:
    with source.open() as file:
        for batch in _open_csv(file, source, schema):
            yield from _slice(_empty_strings_to_null(batch), most)


def _json_blocks(source: Source, schema: Any) -> Batches:
    """Yield tables of parsed lines; keys that a line lacks are null."""
    import pyarrow as pa
    import pyarrow.json as json

    options = json.ParseOptions(
        explicit_schema=None if schema is None else pa.schema(_value_types(schema))
    )
    with source.open() as file:
        for lines in _read_lines(_decompress(file, source)):
            if lines.strip():
                blocks = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
                yield json.read_json(pa.BufferReader(lines), blocks, options)


def _read_lines(file: Any) -> Iterator[bytes]:
    """Yield blocks of a file that end with a line."""
    rest = b""
    while data := file.read(TEXT_BLOCK_BYTES):
        data = rest + data
        end = data.rfind(b"\n") + 1
        yield data[:end]
        rest = data[end:]
    yield rest


def _survey_json(source: Source, known: Any) -> Survey:
    import pyarrow as pa

    try:
        table = next(_json_blocks(source, known), None)
    except pa.ArrowInvalid:
        if known is None:
            raise
        table = next(_json_blocks(source, None))  # numbers of another type than before
    if table is None:
        return pa.schema([]), []
    there = set(table.schema.names)
    lacking = [] if known is None else [name for name in known.names if name not in there]
    fields = [*table.schema, *(pa.field(name, pa.null()) for name in lacking)]
    return pa.schema(fields), [(None, 0, None, source.bytes)]


def _read_json(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    known = set(schema.names)
    for table in _json_blocks(source, schema):
        new = next((name for name in table.schema.names if name not in known), None)
        if new is not None:
            raise DataError(
                f"{source.address}: some lines have the key {new!r}, the first ones do not. Put a "
                "line with every key first."
            )
        for batch in table.combine_chunks().to_batches():
            yield from _slice(batch, most)


def _survey_orc(source: Source, known: Any) -> Survey:
    import pyarrow.orc as orc

    with source.open() as file:
        reader = orc.ORCFile(file)
        return reader.schema, [(None, 0, reader.nrows, source.bytes)]


def _read_orc(source: Source, group: int | None, schema: Any, columns: Names, most: int) -> Batches:
    import pyarrow.orc as orc

    with source.open() as file:
        reader = orc.ORCFile(file)
        for stripe in range(reader.nstripes):
            yield from _slice(reader.read_stripe(stripe, columns=list(columns)), most)


@contextmanager
def _arrow_file(source: Source) -> Iterator[Any]:
    """Open an Arrow file; a local one is memory-mapped."""
    import pyarrow as pa

    local = "://" not in source.place
    with pa.memory_map(os.fsencode(source.place)) if local else source.open() as file:
        # As a buffer, the map has an end beyond which damaged offsets cannot reach.
        yield pa.ipc.open_file(pa.BufferReader(file.read_buffer()) if local else file)


def _survey_arrow(source: Source, known: Any) -> Survey:
    with _arrow_file(source) as reader:
        batches = (_read_batch(reader, i) for i in range(reader.num_record_batches))
        rows = next((None for batch in batches if batch.num_rows), 0)
        return reader.schema, [(None, 0, rows, source.bytes)]


def _read_arrow(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    with _arrow_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield from _slice(_read_batch(reader, i), most)


def _read_batch(reader: Any, number: int) -> Any:
    """Return a batch whose buffers are long enough for its columns."""
    batch = reader.get_batch(number)
    batch.validate()
    return batch


def _empty_strings_to_null(batch: Any) -> Any:
    """Replace empty strings in a batch of a CSV file by nulls, as empty numbers are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.if_else(pc.binary_length(column).cast(pa.bool_()), column, pa.nulls(1, column.type)[0])
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _slice(batch: Any, most: int) -> Batches:
    step = _block_rows(batch.nbytes, batch.num_rows, most)
    for start in range(0, batch.num_rows, step):
        block = batch.slice(start, step)
        block.validate(full=True)  # also offsets and codes, before anything follows them
        yield block


def _survey_arrays(source: Source, known: Any) -> Survey:
    with source.open() as file:
        arrays = open_arrays(source, file)
        rows = next((array.shape[0] for array in arrays.values()), 0)
        return batch_of(arrays, min(rows, 1)).schema, [(None, 0, rows, source.bytes)]


def _read_arrays(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    with source.open() as file:
        arrays = open_arrays(source, file)
        rows = next(iter(arrays.values())).shape[0]
        step = _block_rows(sum(array.row_bytes for array in arrays.values()), 1, most)
        for start in range(0, rows, step):
            yield batch_of(arrays, min(step, rows - start))


def _survey_stream(source: Source, known: Any) -> Survey:
    assert source.stream is not None
    if not source.stream.has_rows():
        raise DataError(f"{source.address} has no rows.")
    return source.stream.peek(1)[0].schema, [(None, 0, None, 0)]


def _read_stream(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    assert source.stream is not None
    for batch in source.stream:
        yield from _slice(batch, most)


SURVEYS: dict[str, Callable[[Source, Any], Survey]] = {
    "parquet": _survey_parquet,
    "csv": _survey_csv,
    "json": _survey_json,
    "orc": _survey_orc,
    "arrow": _survey_arrow,
    "npy": _survey_arrays,
    "npz": _survey_arrays,
    "stream": _survey_stream,
}
READERS: dict[str, Callable[[Source, int | None, Any, Names, int], Batches]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
    "orc": _read_orc,
    "arrow": _read_arrow,
    "npy": _read_arrays,
    "npz": _read_arrays,
    "stream": _read_stream,
}


class ArrayFile:
    """Rows of a .npy stream, read one after the other."""

    def __init__(self, file: Any, name: str) -> None:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if reader is None:
            raise DataError(f"{name}: .npy format {version} is not read. Use ASCII field names.")
        self.shape, fortran, self.dtype = reader(file)
        self.file, self.name = file, name
        if not self.shape:
            raise DataError(f"{name} must have one row per example, found a single number.")
        if fortran and len(self.shape) > 1:
            raise DataError(
                f"{name} is stored by columns (Fortran order). Save np.ascontiguousarray(X)."
            )
        if self.dtype.kind not in "biufUSM" and self.dtype.names is None:
            raise DataError(f"{name} must hold numbers, strings or dates, found {self.dtype}.")
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))

    def read(self, rows: int) -> Any:
        """Read the next rows."""
        data = self.file.read(rows * self.row_bytes)
        if len(data) < rows * self.row_bytes:
            raise EOFError(f"{self.name} is truncated")
        return np.frombuffer(data, self.dtype).reshape(rows, *self.shape[1:])

    def columns(self, key: str, rows: int) -> dict[str, Any]:
        """Read rows as Arrow columns: one named `key`, or one per field of a structured array."""
        block = self.read(rows)
        if self.dtype.names is None:
            return {key: _to_arrow(block)}
        return {name: _to_arrow(block[name]) for name in self.dtype.names}


def _to_arrow(block: Any) -> Any:
    import pyarrow as pa

    if not block.dtype.isnative:
        block = block.astype(block.dtype.newbyteorder("="))
    if block.dtype.kind in "US":
        return pa.array(block.astype(str).tolist())
    if block.ndim == 1:
        return pa.array(np.ascontiguousarray(block))
    flat = np.ascontiguousarray(block).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), int(np.prod(block.shape[1:])))


def open_arrays(source: Source, file: Any) -> dict[str, ArrayFile]:
    """Return the arrays of a .npy or .npz file, all with the same number of rows."""
    if source.format == "npy":
        return {ARRAY_COLUMN: ArrayFile(file, source.address)}
    archive = zipfile.ZipFile(file)
    arrays = {
        name.removesuffix(".npy"): ArrayFile(archive.open(name), f"{source.address}, array {name}")
        for name in archive.namelist()
    }
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{source.address}: all arrays must have the same number of rows, found "
            f"{', '.join(f'{n} of {name}' for name, n in lengths.items())}."
        )
    return arrays


def batch_of(arrays: dict[str, ArrayFile], rows: int) -> Any:
    """Read the next rows of all arrays as a record batch."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for key, array in arrays.items():
        columns |= array.columns(key, rows)
    return pa.record_batch(columns)
