"""The rows of .npy and .npz files as Arrow columns, read one after the other."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from olss.errors import DataError
from olss.files.source import Source

__all__ = ["ArrayFile", "batch_of", "open_arrays"]

ARRAY_COLUMN = "X"


class ArrayFile:
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
        """Read the next rows."""
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


def open_arrays(source: Source, file: Any) -> dict[str, ArrayFile]:
    """Return the arrays of a .npy or .npz file; those of .npz must have as many rows each."""
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
            f"{source.address}: its arrays must have one row per example each, found "
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
