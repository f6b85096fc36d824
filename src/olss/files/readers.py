"""How each file format is surveyed (schema, pieces) and read in blocks of bounded size.

A survey returns the schema and, for each piece, (row group, first row, rows, bytes).
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from olss.errors import DataError
from olss.files.source import Source

__all__ = ["READERS", "SURVEYS"]

Survey = tuple[Any, list[tuple[int | None, int, int | None, int]]]
Batches = Iterator[Any]
Names = Sequence[str]

BLOCK_BYTES = 16_000_000
BLOCK_ROWS = 65_536
# Column chunks are read through buffers of this size, so that memory does not grow with the row
# groups.
BUFFER_BYTES = 1 << 18
CSV_BLOCK_BYTES = 8 << 20
ARRAY_COLUMN = "X"


def _block_rows(total_bytes: int, rows: int) -> int:
    return int(np.clip(BLOCK_BYTES * rows // max(1, total_bytes), 64, BLOCK_ROWS))


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
    source: Source, group: int | None, schema: Any, columns: Sequence[str]
) -> Batches:
    import pyarrow as pa
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
            batch_size=_block_rows(rows.total_byte_size, rows.num_rows),
            row_groups=[group],
            columns=list(columns),
            use_threads=False,
        )
        file.close()
    pa.default_memory_pool().release_unused()


def _open_csv(file: Any, source: Source, schema: Any) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv

    stream = pa.CompressedInputStream(file, "gzip") if source.address.endswith(".gz") else file
    types = None if schema is None else {field.name: field.type for field in schema}
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False),
        convert_options=csv.ConvertOptions(column_types=types),
    )


def _survey_csv(source: Source, known: Any) -> Survey:
    with source.open() as file:
        reader = _open_csv(file, source, known)
        schema = reader.schema
        rows = next((None for batch in reader if batch.num_rows), 0)
        return schema, [(None, 0, rows, source.bytes)]


def _read_csv(source: Source, group: int | None, schema: Any, columns: Names) -> Batches:
    with source.open() as file:
        for batch in _open_csv(file, source, schema):
            yield from _sliced(batch)


def _survey_arrow(source: Source, known: Any) -> Survey:
    import pyarrow.ipc as ipc

    with source.open() as file:
        reader = ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        rows = next((None for batch in batches if batch.num_rows), 0)
        return reader.schema, [(None, 0, rows, source.bytes)]


def _read_arrow(source: Source, group: int | None, schema: Any, columns: Names) -> Batches:
    import pyarrow.ipc as ipc

    with source.open() as file:
        reader = ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield from _sliced(reader.get_batch(i))


def _sliced(batch: Any) -> Batches:
    step = _block_rows(batch.nbytes, batch.num_rows)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


class _ArrayFile:
    """Rows of a .npy stream, read one after the other."""

    def __init__(self, file: Any, name: str) -> None:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if reader is None:
            raise DataError(f"{name}: is of .npy format {version}; save it with plain field names.")
        self.shape, fortran, self.dtype = reader(file)
        self.file, self.name = file, name
        if not self.shape:
            raise DataError(f"{name}: holds a single number; it must hold one row per example.")
        if fortran and len(self.shape) > 1:
            raise DataError(
                f"{name}: is stored by columns (Fortran order); save np.ascontiguousarray(X)."
            )
        if self.dtype.kind not in "biufUSM" and self.dtype.names is None:
            raise DataError(f"{name}: holds {self.dtype}; numbers, text and dates are read.")
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))

    def read(self, rows: int) -> Any:
        data = self.file.read(rows * self.row_bytes)
        if len(data) < rows * self.row_bytes:
            raise EOFError(f"{self.name} ends too early")
        return np.frombuffer(data, self.dtype).reshape(rows, *self.shape[1:])

    def columns(self, key: str, rows: int) -> dict[str, Any]:
        """Read rows as Arrow columns: one named `key`, or one a field of a structured array."""
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


def _open_arrays(source: Source, file: Any) -> dict[str, _ArrayFile]:
    """Return the arrays of a .npy or .npz file; those of .npz must have as many rows each."""
    if source.format == "npy":
        return {ARRAY_COLUMN: _ArrayFile(file, source.address)}
    archive = zipfile.ZipFile(file)
    arrays = {
        name.removesuffix(".npy"): _ArrayFile(archive.open(name), f"{source.address}, array {name}")
        for name in archive.namelist()
    }
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{source.address}: its arrays must have one row per example each, found "
            f"{', '.join(f'{n} of {name}' for name, n in lengths.items())}."
        )
    return arrays


def _batch(arrays: dict[str, _ArrayFile], rows: int) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for key, array in arrays.items():
        columns |= array.columns(key, rows)
    return pa.record_batch(columns)


def _survey_arrays(source: Source, known: Any) -> Survey:
    with source.open() as file:
        arrays = _open_arrays(source, file)
        rows = next((array.shape[0] for array in arrays.values()), 0)
        return _batch(arrays, min(rows, 1)).schema, [(None, 0, rows, source.bytes)]


def _read_arrays(source: Source, group: int | None, schema: Any, columns: Names) -> Batches:
    with source.open() as file:
        arrays = _open_arrays(source, file)
        rows = next(iter(arrays.values())).shape[0]
        step = _block_rows(sum(array.row_bytes for array in arrays.values()), 1)
        for start in range(0, rows, step):
            yield _batch(arrays, min(step, rows - start))


SURVEYS: dict[str, Callable[[Source, Any], Survey]] = {
    "parquet": _survey_parquet,
    "csv": _survey_csv,
    "arrow": _survey_arrow,
    "npy": _survey_arrays,
    "npz": _survey_arrays,
}
READERS: dict[str, Callable[[Source, int | None, Any, Names], Batches]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "arrow": _read_arrow,
    "npy": _read_arrays,
    "npz": _read_arrays,
}
