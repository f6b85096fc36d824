"""How each file format is surveyed (schema, pieces) and read in blocks of bounded size.

A survey returns the schema and, for each piece, (row group, first row, rows, bytes). A reader gets
the columns it must yield, among others perhaps, and the most rows a block may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from olss.errors import DataError, FormatError
from olss.files.array_files import batch_of, open_arrays
from olss.files.source import Source
from olss.tables.arrow_types import is_number, value_type
from olss.util.text import without_empty_text

__all__ = ["BLOCK_ROWS", "READERS", "SURVEYS"]

Survey = tuple[Any, list[tuple[int | None, int, int | None, int]]]
Batches = Iterator[Any]
Names = Sequence[str]

BLOCK_BYTES = 16_000_000
BLOCK_ROWS = 65_536
# Column chunks are read through buffers of this size, so that memory does not grow with the row
# groups.
BUFFER_BYTES = 1 << 18
TEXT_BLOCK_BYTES = 8 << 20


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
    import pyarrow.parquet as pq

    with source.open() as handle:
        # Arrow reads a local file faster by its name than through a Python object.
        local = "://" not in source.address
        file = pq.ParquetFile(
            source.address if local else handle,
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


def _decompressed(file: Any, source: Source) -> Any:
    import pyarrow as pa

    packed = source.address.lower().endswith(".gz")
    return pa.CompressedInputStream(file, "gzip") if packed else file


def _value_types(schema: Any) -> dict[str, Any]:
    """Return the types by which text is parsed: of values where these are categories later."""
    import pyarrow as pa

    return {f.name: value_type(f.type) for f in schema or () if f.type != pa.null()}


def _open_csv(file: Any, source: Source, schema: Any) -> Any:
    import pyarrow.csv as csv

    return csv.open_csv(
        _decompressed(file, source),
        read_options=csv.ReadOptions(block_size=TEXT_BLOCK_BYTES, use_threads=False),
        # Without, blocks are cut at the next line break, inside a quoted text, too.
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
        # Its numbers are of another type than those before; or else all may be.
        rest = [field for field in known if not is_number(value_type(field.type))]
        return _survey_csv(source, pa.schema(rest) if 0 < len(rest) < len(known) else None)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        raise FormatError(
            f"{source.address}: cannot be read, it is not UTF-8 text. If it is Latin-1, convert "
            "it: iconv -f latin1 -t utf8 OLD.csv > NEW.csv"
        )
    for place in _with_leading_zeros(source, schema, known):
        schema = schema.set(place, schema.field(place).with_type(pa.string()))
    return schema, [(None, 0, rows, source.bytes)]


def _with_leading_zeros(source: Source, schema: Any, known: Any) -> list[int]:
    """Return the places of new columns that look like whole numbers and are not: 00017 is text.

    Looked for in the first block.
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
            yield from _sliced(without_empty_text(batch), most)


def _json_blocks(source: Source, schema: Any) -> Batches:
    """Yield blocks of lines, parsed; keys that a line lacks are null."""
    import pyarrow as pa
    import pyarrow.json as json

    options = json.ParseOptions(
        explicit_schema=None if schema is None else pa.schema(_value_types(schema))
    )
    with source.open() as file:
        for lines in _whole_lines(_decompressed(file, source)):
            if lines.strip():
                blocks = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
                yield json.read_json(pa.BufferReader(lines), blocks, options)


def _whole_lines(file: Any) -> Iterator[bytes]:
    """Yield stretches of a file that end where a line does."""
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
                f"{source.address}: some lines have {new!r}, which those at the start have not. "
                "Put a line that has every key first."
            )
        for batch in table.combine_chunks().to_batches():
            yield from _sliced(batch, most)


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
            yield from _sliced(reader.read_stripe(stripe, columns=list(columns)), most)


@contextmanager
def _arrow_file(source: Source) -> Iterator[Any]:
    """Open an Arrow file; one on this machine is mapped, so that a batch is read as it is used."""
    import pyarrow as pa

    local = "://" not in source.place
    with pa.memory_map(source.place) if local else source.open() as file:
        # Seen as a buffer, the map has an end that damaged offsets cannot reach beyond.
        yield pa.ipc.open_file(pa.BufferReader(file.read_buffer()) if local else file)


def _survey_arrow(source: Source, known: Any) -> Survey:
    with _arrow_file(source) as reader:
        batches = (_whole_batch(reader, i) for i in range(reader.num_record_batches))
        rows = next((None for batch in batches if batch.num_rows), 0)
        return reader.schema, [(None, 0, rows, source.bytes)]


def _read_arrow(
    source: Source, group: int | None, schema: Any, columns: Names, most: int
) -> Batches:
    with _arrow_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield from _sliced(_whole_batch(reader, i), most)


def _whole_batch(reader: Any, number: int) -> Any:
    """Return a batch whose buffers hold what its columns say they hold."""
    batch = reader.get_batch(number)
    batch.validate()
    return batch


def _sliced(batch: Any, most: int) -> Batches:
    step = _block_rows(batch.nbytes, batch.num_rows, most)
    for start in range(0, batch.num_rows, step):
        block = batch.slice(start, step)
        block.validate(full=True)  # offsets and codes, too, before anything follows them
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


SURVEYS: dict[str, Callable[[Source, Any], Survey]] = {
    "parquet": _survey_parquet,
    "csv": _survey_csv,
    "json": _survey_json,
    "orc": _survey_orc,
    "arrow": _survey_arrow,
    "npy": _survey_arrays,
    "npz": _survey_arrays,
}
READERS: dict[str, Callable[[Source, int | None, Any, Names, int], Batches]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
    "orc": _read_orc,
    "arrow": _read_arrow,
    "npy": _read_arrays,
    "npz": _read_arrays,
}
