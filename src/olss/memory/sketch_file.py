"""A sketch as one Parquet file: a table for everybody, with the state to go on with.

The table has a line a row: the columns that came in, the target, what rides along, and the
sketch's own, `olss_weight`, `olss_task`, `olss_index` and others. Rows of an array are one column
`X`, a list of fixed length (the row's numbers in C order); sparse rows are two, of places and of
values. The state (settings, counts, random bits, spectrum) is JSON under the key ``olss`` of the
file's metadata. A checksum of the whole file is in it (`olss.util.checksums`): a flipped bit
anywhere is an error, and never other rows. Nothing in the file is executed.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.errors import DataError, FormatError
from olss.memory.own_columns import EXTRA, OWN
from olss.memory.pool import Policy
from olss.memory.state import Settings, State
from olss.memory.state_json import (
    settings_from_json,
    settings_to_json,
    state_from_json,
    state_to_json,
)
from olss.memory.store import Array, RowStore, is_arrow
from olss.tables.arrow_types import arrow_array, as_type
from olss.util.checksums import (
    CHECKSUM_BLANK,
    CHECKSUM_KEY,
    ChecksumWriter,
    Metadata,
    has_checksum,
    verify_file,
)
from olss.util.files import is_file, open_atomic

__all__ = ["FORMAT", "KEY", "read", "table_of", "write"]

FORMAT = 2
KEY = b"olss"
GROUP_BYTES = 16_000_000

# What a column of an array may be; a file that says otherwise was not written by a sketch.
WHOLE = tuple(f"{unsigned}int{bits}" for unsigned in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS = ("bool", *WHOLE, "float16", "float32", "float64")
TIMES = re.compile(r"(datetime64|timedelta64)\[(Y|M|W|D|h|m|s|ms|us|ns)\]")
TENSORS = ("uint8", "bfloat16", *(name for name in NUMBERS if not name.startswith("u")))


def write(path: str | os.PathLike[str], state: State, settings: Settings) -> None:
    """Write the file whole or not at all: beside its place, then moved there in one step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, table = state.rows, table_of(state)
    content = {
        "format": FORMAT,
        "settings": settings_to_json(settings),
        "columns": {name: _kind(column) for name, column in _said(rows).items()},
        "state": state_to_json(state),
    }
    table = table.replace_schema_metadata({KEY: json.dumps(content, default=_plain)})
    few = ["y", OWN["task"], OWN["source"]]  # values come again and again
    try:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            if pa.types.is_fixed_size_list(kind) and not kind.list_size:  # written, but not read
                raise pa.ArrowNotImplementedError(f"column {name!r}: {kind}")
        with open_atomic(Path(path)) as file:
            checksummed = ChecksumWriter(file)
            with pq.ParquetWriter(
                pa.PythonFile(checksummed, mode="w"),
                table.schema,
                compression="zstd",
                use_dictionary=[name for name in table.schema.names if name in few or state.table],
                write_page_checksum=True,
                use_compliant_nested_type=False,  # names inside lists come back as they were
            ) as writer:
                group = max(1, GROUP_BYTES * len(rows) // max(1, table.nbytes))
                writer.write_table(table, row_group_size=group)
                writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_BLANK})
            checksummed.finish()
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"{path} cannot be written: Parquet does not hold columns of every type "
            f"({_line(error)}). Leave the column out, or make it text."
        ) from error


def table_of(state: State) -> Any:
    """Return all that is kept as one Arrow table, as it stands in the file."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name, column in _said(state.rows).items():
        arrays |= _to_arrow(name, column, state)
    return pa.table({name: arrays[name] for name in _in_order(arrays, state)})


def _said(rows: RowStore) -> dict[str, Array]:
    """Return the columns that say something."""
    return {name: rows[name] for name in rows if not _is_blank(name, rows[name])}


def read(
    path: str | os.PathLike[str],
    policy: Policy | None = None,
    features: Callable[[Array], Array] | None = None,
    device: Any = None,
) -> tuple[State, Settings]:
    """Return the state and the settings of a sketch file.

    A policy or feature map of one's own must be given; tensors are put on `device`.
    """
    table, content = read_table(Path(path))
    settings = settings_from_json(content.object("settings"), policy, features)
    columns = content.object("columns")
    read_columns: dict[str, Array] = {}
    for name in columns:
        try:
            read_columns[name] = _from_arrow(table, name, columns.object(name), device)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(
                f"{path} does not hold the column {name!r} it says it does ({error!r}); another "
                "program has changed it. Take a copy of the original."
            ) from error
    rows = RowStore(_completed(str(path), read_columns, table.num_rows))
    state = state_from_json(content.object("state"), rows, settings)
    if "source" in rows and not (rows["source"] < len(state.files)).all():
        raise content.error("rows come from files that are not listed")
    return state, settings


def read_table(path: Path) -> tuple[Any, Metadata]:
    """Return the rows of a sketch file as a table, and what its metadata say, both verified."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not is_file(path):
        raise FileNotFoundError(2, "there is no sketch file", str(path))
    try:
        # Of a foreign file, which may be large, no more than this is read.
        with path.open("rb") as file:  # Arrow opens no name that is not UTF-8
            metadata = pq.read_schema(file).metadata
        if KEY not in (metadata or {}):
            raise FormatError(
                f"{path} is a Parquet file, but not one of a sketch: its metadata has no entry "
                f"'{KEY.decode()}'. To sketch the table itself, give it to update or compress; to "
                "put a sketch into its place, start over with --fresh (fresh=True)."
            )
        if has_checksum(path):
            verify_file(path)
        with path.open("rb") as file:
            table = pq.read_table(file, partitioning=None, page_checksum_verification=True)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"{path} is not a whole Parquet file ({_line(error)}); it is damaged, truncated or of "
            "another kind. Take a copy of it, or make the sketch anew."
        ) from error
    return table.replace_schema_metadata(None), _content(path, table.schema.metadata[KEY])


def _content(path: Path, text: bytes) -> Metadata:
    if not has_checksum(path):
        raise FormatError(
            f"{path} was a sketch and has been written by another program, which cannot seal it; "
            "take a copy of the original."
        )
    content = Metadata.from_json(str(path), text)
    version = content.integer("format", minimum=1)
    if version > FORMAT:
        raise FormatError(
            f"{path} is of format {version}, this olss reads format {FORMAT}; "
            "install a newer olss: pip install --upgrade olss"
        )
    if version < FORMAT:
        raise FormatError(f"{path} is of format {version}, which no release wrote; make it anew.")
    return content


def _file_name(name: str) -> str:
    return OWN.get(name, name.removeprefix(EXTRA))


def _in_order(names: Iterable[str], state: State) -> list[str]:
    """Return the columns of a table in the order they came in, the others behind."""
    first = [] if state.table is None else state.table.rows.schema.names
    place = {name: i for i, name in enumerate(first)}
    return sorted(names, key=lambda name: place.get(name, len(place)))


def _is_blank(name: str, column: Array) -> bool:
    """Whether a column says nothing: no order remembered, every row counting for one."""
    if name == "order":
        return bool(np.isnan(column).all())
    return name == "base" and bool((column == 1).all())


def _completed(place: str, columns: dict[str, Array], rows: int) -> dict[str, Array]:
    """Return the columns with those that said nothing, or say what the sketch cannot do without."""
    if not columns:
        return columns
    blank = {"order": np.full(rows, np.nan), "base": np.ones(rows)}
    for name, dtype in {"weight": "f", "index": "i", "task": "iU", "base": "f"}.items():
        column = columns.get(name, blank.get(name))
        if column is None or column.ndim != 1 or column.dtype.kind not in dtype:
            raise FormatError(f"{place} has no usable column {OWN[name]}; take a copy of it.")
        if dtype == "f" and not (np.isfinite(column) & (column > 0)).all():
            raise FormatError(f"{place}: its column {OWN[name]} holds what is no weight.")
    return {name: column for name, column in blank.items() if name not in columns} | columns


def _kind(column: Array) -> dict[str, Any]:
    if is_arrow(column):
        return {"library": "table", "schema": _text(column.schema.serialize())}
    if sp.issparse(column):
        return {"library": "sparse", "dtype": str(column.dtype), "shape": list(column.shape[1:])}
    dtype = "text" if _is_text(column) else str(column.dtype).removeprefix("torch.")
    library = "torch" if is_torch_array(column) else "numpy"
    return {"library": library, "dtype": dtype, "shape": list(column.shape[1:])}


def _is_text(column: Array) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "U"


def _to_arrow(name: str, column: Array, state: State) -> dict[str, Any]:
    import pyarrow as pa

    if is_arrow(column):
        return dict(zip(column.schema.names, column.columns, strict=True))
    if name == "source":
        return {OWN[name]: _named_sources(column, state)}
    name = _file_name(name)
    if sp.issparse(column):
        at = arrow_array(column.indptr.astype(np.int64))
        return {
            f"{name}_places": pa.LargeListArray.from_arrays(at, arrow_array(column.indices)),
            f"{name}_values": pa.LargeListArray.from_arrays(at, arrow_array(column.data)),
        }
    values = to_numpy(column)
    if values.dtype == np.float16:  # not known to all readers; float32 holds it exactly
        values = values.astype(np.float32)
    if values.ndim == 1:
        return {name: arrow_array(values)}
    flat = arrow_array(np.ascontiguousarray(values).reshape(-1))
    return {name: pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))}


def _from_arrow(table: Any, name: str, kind: Metadata, device: Any) -> Array:
    library = kind.string("library", ["numpy", "torch", "sparse", "table"])
    if library == "table":
        return _columns_from_arrow(table, kind.string("schema"))
    name = _file_name(name)
    shape = tuple(kind.array("shape"))
    if not all(isinstance(k, int) and 0 < k < 2**31 for k in shape):
        raise ValueError(f"rows of shape {shape}")
    dtype = kind.string("dtype")
    if library == "sparse":
        return _sparse_from_arrow(table, name, _checked_dtype(dtype, NUMBERS), shape)
    column = table[name].combine_chunks()
    if name == OWN["source"]:
        return _numbered_sources(column)
    if column.null_count:
        raise ValueError("entries are missing")
    values = _flat_values(column, shape)
    if library == "numpy":
        if dtype == "text":
            return np.asarray(values.tolist(), dtype=np.str_).reshape(values.shape)
        if not TIMES.fullmatch(dtype):
            _checked_dtype(dtype, NUMBERS)
        return values.astype(dtype, copy=False)
    import torch

    _checked_dtype(dtype, TENSORS)
    return torch.tensor(values).to(dtype=getattr(torch, dtype), device=device)


def _checked_dtype(dtype: str, known: tuple[str, ...]) -> str:
    if dtype not in known:
        raise ValueError(f"a column of dtype {dtype[:40]}")
    return dtype


def _flat_values(column: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    import pyarrow as pa

    if not shape:
        plain: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return plain
    if not pa.types.is_fixed_size_list(column.type) or column.type.list_size != np.prod(shape):
        raise ValueError(f"rows of shape {shape} in {column.type}")
    flat = column.flatten()
    if flat.null_count:
        raise ValueError("entries are missing")
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(column), *shape)
    return values


def _sparse_from_arrow(table: Any, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    places, values = (table[f"{name}_{part}"].combine_chunks() for part in ("places", "values"))
    at = places.offsets.to_numpy()
    if not np.array_equal(at, values.offsets.to_numpy()) or places.null_count:
        raise ValueError("places and values of sparse rows that do not match")
    inside = slice(int(at[0]), int(at[-1]))
    columns = places.values.to_numpy(zero_copy_only=False)[inside]
    numbers = values.values.to_numpy(zero_copy_only=False)[inside].astype(dtype, copy=False)
    matrix = sp.csr_array((numbers, columns, at - at[0]), shape=(len(places), *shape))
    matrix.check_format(full_check=True)
    return matrix


def _columns_from_arrow(table: Any, text: str) -> Any:
    """Return the columns of a table as they were: Parquet has fewer types than Arrow."""
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text, validate=True)))
        columns = [as_type(table.column(field.name), field.type) for field in schema]
    except pa.ArrowException as error:
        raise ValueError(_line(error)) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _named_sources(source: NDArray[Any], state: State) -> Any:
    """Return the addresses of the files rows came from; none for rows that came otherwise."""
    import pyarrow as pa

    names = arrow_array(np.array([line["address"] for line in state.files], dtype=np.str_))
    known = pa.py_buffer(np.packbits(source >= 0, bitorder="little"))
    numbers = pa.py_buffer(source.astype(np.int32))
    codes = pa.Array.from_buffers(pa.int32(), len(source), [known, numbers])
    return pa.DictionaryArray.from_arrays(codes, names)


def _numbered_sources(column: Any) -> NDArray[Any]:
    if not hasattr(column, "indices"):
        raise ValueError(f"sources of type {column.type}")
    codes: NDArray[Any] = column.indices.fill_null(-1).to_numpy().astype(np.int64)
    return codes


def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _plain(value: Any) -> Any:
    return value.tolist()


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]
