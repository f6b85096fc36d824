"""A sketch as one Parquet file: a table any tool can read, with the state to continue from.

The table has the columns that came in, the target, the extra columns, and the sketch's own,
`olss_weight`, `olss_task`, `olss_index` and others. Rows of an array are one column `X`, a list of
fixed length (the row's numbers in C order); sparse rows are two, of places and of values. The
state (settings, counts, random number generator, moments) is JSON under the key ``olss`` of the
file's metadata. Rows that wait for a draw, which other tools need not see, are there, too. A
checksum covers the whole file (`olss.util.files`): a flipped bit anywhere is an error, and
never other rows. Nothing in the file is executed.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import is_arrow, is_sparse, to_numpy
from olss.errors import DataError, FormatError, InputError, OlssError
from olss.memory.config import Config
from olss.memory.engine import replicate_weights
from olss.memory.holdout import is_held_out
from olss.memory.policies import POLICIES, Policy
from olss.memory.rows import EXTRA, FILE_NAMES, HOLDOUT, REPLICATE, Array, RowStore
from olss.memory.state import State, restore_generator
from olss.tables.schema import arrow_array, as_type, dictionary_codes, numpy_array
from olss.util import sparse as sp
from olss.util.files import (
    CHECKSUM_BLANK,
    CHECKSUM_KEY,
    ChecksumWriter,
    file_lock,
    has_checksum,
    is_address,
    is_file,
    local_copy,
    lock_holder,
    open_atomic,
    put,
    resolve_output,
    verify_file,
)
from olss.util.serialize import DECODE_ERRORS, damage_error, from_json, to_json

FORMAT = 5
KEY = b"olss"
GROUP_BYTES = 16_000_000
WRITE_BYTES = 2**20  # at a time: columns of few rows come in many small pieces

# What a column of an array may be; a file with anything else was not written by a sketch.
INTEGERS = tuple(f"{unsigned}int{bits}" for unsigned in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS = ("bool", *INTEGERS, "float16", "float32", "float64")
TIMES = re.compile(r"(datetime64|timedelta64)\[(Y|M|W|D|h|m|s|ms|us|ns)\]")
TENSORS = ("uint8", "bfloat16", *(name for name in NUMBERS if not name.startswith("u")))

CHANGED = ("weight", "initial_weight", "priority")  # what a draw changes


@dataclass(frozen=True)
class ColumnKind:
    """What a column of rows is: the library, dtype and row shape of an array, or Arrow's schema."""

    library: Literal["numpy", "torch", "sparse", "table"]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    schema: Any = field(default=None, metadata={"arrow": "schema"})


@dataclass(frozen=True)
class Waiting:
    """What leads from the rows in the file's table back to those before `flush`.

    Attributes
    ----------
    held, candidates : int
    batches : tuple of int
        Rows of each pending batch.
    dropped : pyarrow.Table
        The rows that the flush dropped, and in `columns` their kinds.
    numbers : pyarrow.Table
        What the flush changed: weights and priorities, by index.
    """

    held: int
    candidates: int
    batches: tuple[int, ...]
    dropped: Any = field(metadata={"arrow": "table"})
    columns: dict[str, ColumnKind]
    numbers: Any = field(metadata={"arrow": "table"})


@dataclass(frozen=True)
class FileContent:
    """The metadata of a sketch file."""

    format: int
    config: dict[str, Any]
    columns: dict[str, ColumnKind]
    state: State
    waiting: Waiting | None


def write(path: str | os.PathLike[str], config: Config, view: State, state: State) -> None:
    """Write a sketch to a file, whole or not at all.

    Parameters
    ----------
    path : path
        A local file.
    config : Config
    view : State
        The state as users see it, in which no rows wait: the table in the file.
    state : State
        The state to continue from; the same if no rows wait.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, table = view.rows, _add_derived(to_table(view), config, view)
    content = FileContent(
        FORMAT,
        _config_to_json(config),
        _kinds_of(rows),
        state,
        _describe_waiting(view, state) if state.waiting else None,
    )
    table = table.replace_schema_metadata({KEY: json.dumps(to_json(content))})
    repetitive = {"y", FILE_NAMES["task"], FILE_NAMES["source"]}
    if view.table:  # floats seldom repeat: a dictionary of them takes more room, and time
        floating = pa.types.is_floating
        repetitive |= {field.name for field in table.schema if not floating(field.type)}
    try:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            if pa.types.is_fixed_size_list(kind) and not kind.list_size:  # written, but not read
                raise pa.ArrowNotImplementedError(f"column {name!r}: {kind}")
        with open_atomic(Path(path)) as file:
            checksummed = ChecksumWriter(file)
            with (
                pa.output_stream(checksummed, buffer_size=WRITE_BYTES) as stream,
                pq.ParquetWriter(
                    stream,
                    table.schema,
                    compression="zstd",
                    use_dictionary=[name for name in table.schema.names if name in repetitive],
                    write_page_checksum=True,
                    use_compliant_nested_type=False,  # names inside lists come back as they were
                ) as writer,
            ):
                group = max(1, GROUP_BYTES * len(rows) // max(1, table.nbytes))
                writer.write_table(table, row_group_size=group)
                writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_BLANK})
            checksummed.finish()
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"{path} cannot be written: Parquet does not support a column's type "
            f"({_first_line(error)}). Drop the column, or convert it to strings."
        ) from error


def to_table(state: State) -> Any:
    """Return all that is kept as one Arrow table, as it stands in the file."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name, column in _informative(state.rows).items():
        arrays |= _to_arrow(name, column, state)
    return pa.table({name: arrays[name] for name in _in_order(arrays, state)})


def _add_derived(table: Any, config: Config, state: State) -> Any:
    """Return the table with columns for other programs: the side of each row, replicate weights.

    They are there if the settings ask for them, are computed anew each time, and `read` looks past
    them.
    """
    if config.holdout is not None:
        table = table.append_column(HOLDOUT, [is_held_out(config, state.rows)])
    if not config.replicates or not len(state.rows):
        return table
    columns = replicate_weights(config, state, config.replicates, seed=0)
    for number, column in enumerate(columns.T, start=1):
        table = table.append_column(
            f"{REPLICATE}{number:03}", arrow_array(np.ascontiguousarray(column))
        )
    return table


def write_object(address: str, config: Config, view: State, state: State, tag: str | None) -> str:
    """Write a sketch to object storage and return the object's tag; see `write`, and `put`."""
    with tempfile.TemporaryDirectory(prefix="olss-") as folder:
        local = Path(folder) / "sketch.parquet"
        write(local, config, view, state)
        return put(address, local, tag)


def read(
    path: str | os.PathLike[str],
    policy: Policy | None = None,
    features: Callable[[Array], Array] | None = None,
    device: Any = None,
) -> tuple[Config, State]:
    """Return the settings and the state of a sketch file, local or in object storage.

    A custom policy or feature map must be given; tensors are put on `device`.
    """
    if is_address(path):
        with local_copy(os.fspath(path), changes=False) as local:
            return read(local, policy, features, device)
    table, content = _read_table(Path(path))
    config = _restore_config(str(path), content.config, policy, features)
    rows = _read_rows(path, table, content.columns, device)
    if config.holdout is not None and len(rows) and "key" not in rows:
        raise damage_error(path, "rows have no key, and so no side of the hold-out")
    encoder = replace(content.state.encoder, features=config.features)
    state = content.state.replace(rows=rows, encoder=encoder)
    try:
        restore_generator(state.generator)
    except DECODE_ERRORS as error:
        raise damage_error(path, f"generator ({error})") from error
    if content.waiting is not None:
        state = _restore_waiting(path, content.waiting, state, device)
    if state.seen < len(state.rows) + sum(map(len, state.waiting)):
        raise damage_error(path, "more rows are held than were seen")
    if "source" in rows and not (rows["source"] < len(state.files)).all():
        raise damage_error(path, "rows come from files that are not listed")
    return config, state


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock on a sketch file inside the block, or raise `OlssError` naming its holder."""
    place = resolve_output(path)  # a link and its file are one
    name = place.with_name(f".{place.name}.lock")
    with file_lock(name, remove=True) as got:
        if not got:
            raise OlssError(
                f"{path} is being written by {lock_holder(name)}. Wait for it and try again."
            )
        yield


def _read_rows(
    path: str | os.PathLike[str], table: Any, columns: dict[str, ColumnKind], device: Any
) -> RowStore:
    """Return the rows of a table of the file, as the columns that were saved."""
    found: dict[str, Array] = {}
    for name, kind in columns.items():
        try:
            found[name] = _from_arrow(table, name, kind, device)
        except DECODE_ERRORS as error:
            raise FormatError(
                f"{path}: column {name!r} is not what its metadata says ({error!r}); another "
                "program has changed the file. Restore a copy of the original."
            ) from error
    return RowStore(_complete(str(path), found, table.num_rows))


def _describe_waiting(view: State, state: State) -> Waiting:
    import pyarrow as pa

    stores = [store for store in (state.rows, *state.waiting) if len(store)]
    before = RowStore.concat(stores)
    dropped = before.take(np.flatnonzero(~np.isin(before["index"], view.rows["index"])))
    numbers = pa.table({name: before[name] for name in (*CHANGED, "index")})
    return Waiting(
        len(state.rows),
        sum(map(len, state.candidates)),
        tuple(len(part) for part in state.pending),
        to_table(state.replace(rows=dropped, table=view.table)),
        _kinds_of(dropped),
        numbers,
    )


def _restore_waiting(
    path: str | os.PathLike[str], content: Waiting, state: State, device: Any
) -> State:
    """Return the state as it was before the draw for the file's table."""
    rows, dropped, numbers = state.rows, content.dropped, content.numbers
    if dropped.num_rows:
        more = _read_rows(path, dropped, content.columns, device)
        rows = RowStore.concat([rows, more]) if len(rows) else more
    order = np.argsort(rows["index"], kind="stable")
    rows = rows.take(order)
    if numbers.num_rows != len(rows) or not np.array_equal(numbers["index"], rows["index"]):
        raise damage_error(path, "waiting rows do not match the rows of the table")
    rows = rows.with_columns({name: numpy_array(numbers[name]) for name in CHANGED})
    held, drawn = content.held, content.held + content.candidates
    ends = drawn + np.cumsum([0, *content.batches], dtype=np.int64)
    if min(held, content.candidates, *content.batches) < 0 or ends[-1] != len(rows):
        raise damage_error(path, "batches do not add up to the rows pending")
    return state.replace(
        rows=rows.take(np.arange(held)) if held else RowStore(),
        candidates=(rows.take(np.arange(held, drawn)),) if drawn > held else (),
        pending=tuple(rows.take(np.arange(start, end)) for start, end in pairwise(ends.tolist())),
    )


def _read_table(path: Path) -> tuple[Any, FileContent]:
    """Return the rows of a sketch file as a table, and its metadata, both verified."""
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
                f"{path} is a Parquet file, but not a sketch: its metadata has no key "
                f"'{KEY.decode()}'. To sketch the table itself, pass it to update or compress; to "
                "replace it by a sketch, use --fresh (fresh=True)."
            )
        if has_checksum(path):
            verify_file(path)
        with path.open("rb") as file:
            # `pq.read_table` would load pandas.
            table = pq.ParquetFile(file, page_checksum_verification=True).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"{path} is not a complete Parquet file ({_first_line(error)}): it is damaged, "
            "truncated or of another format. Restore a copy, or create the sketch again."
        ) from error
    if not has_checksum(path):
        raise FormatError(
            f"{path} was a sketch and has been rewritten by another program, without its "
            "checksum. Restore a copy of the original."
        )
    try:
        content = json.loads(table.schema.metadata[KEY])
        version = int(content["format"])
    except DECODE_ERRORS as error:
        raise damage_error(path, error) from error
    if version > FORMAT:
        raise FormatError(
            f"{path} has format {version}, and this olss reads format {FORMAT}; upgrade with: pip "
            "install --upgrade olss"
        )
    if version < FORMAT:
        raise FormatError(
            f"{path} has format {version}, which no release wrote; create the sketch again."
        )
    found: FileContent = from_json(FileContent, content, str(path))
    return table.replace_schema_metadata(None), found


def _config_to_json(config: Config) -> dict[str, Any]:
    """Return the settings; of a custom policy or feature map, that there was one."""
    content = {entry.name: getattr(config, entry.name) for entry in fields(config)}
    known = type(config.policy) in set(map(type, POLICIES.values()))
    return content | {
        "policy": config.policy if known else None,
        "features": config.features is not None,
    }


def _restore_config(
    path: str, content: dict[str, Any], policy: Policy | None, features: Any
) -> Config:
    """Return the settings, with a custom policy and feature map in their places."""
    if policy is None and content.get("policy") is not None:
        policy = from_json(Policy, content["policy"], path)
    if features is None and content.get("features"):
        features = _custom("features")
    own = {"policy": policy or _custom("policy"), "features": features}
    try:
        return Config.create(**content | own)
    except InputError as error:
        raise damage_error(path, error) from error


def _custom(name: str) -> Callable[..., Any]:
    """Stand in for what a file cannot hold."""

    def missing(*_: Any) -> Any:
        raise InputError(
            f"{name}: this sketch was saved with a custom one, which a file does not hold; use "
            f"load(path, {name}=...)."
        )

    return missing


def _file_name(name: str) -> str:
    return FILE_NAMES.get(name, name.removeprefix(EXTRA))


def _in_order(names: Iterable[str], state: State) -> list[str]:
    """Return the columns of a table in the order they came in, the others after them."""
    first = [] if state.table is None else state.table.rows.schema.names
    place = {name: i for i, name in enumerate(first)}
    return sorted(names, key=lambda name: place.get(name, len(place)))


def _informative(rows: RowStore) -> dict[str, Array]:
    """Return the columns without those that hold nothing but their defaults."""
    return {name: rows[name] for name in rows if not _is_blank(name, rows[name])}


def _is_blank(name: str, column: Array) -> bool:
    """Return whether no priority is remembered, or every row counts for one."""
    if name == "priority":
        return bool(np.isnan(column).all())
    return name == "initial_weight" and bool((column == 1).all())


def _complete(place: str, columns: dict[str, Array], rows: int) -> dict[str, Array]:
    """Return the columns with defaults for those left out, or raise if one is missing."""
    if not columns:
        return columns
    blank = {"priority": np.full(rows, np.nan), "initial_weight": np.ones(rows)}
    for name, dtype in {"weight": "f", "index": "i", "task": "iU", "initial_weight": "f"}.items():
        column = columns.get(name, blank.get(name))
        if column is None or column.ndim != 1 or column.dtype.kind not in dtype:
            raise FormatError(
                f"{place} has no usable column {FILE_NAMES[name]}; restore a copy of the original."
            )
        if dtype == "f" and not (np.isfinite(column) & (column > 0)).all():
            raise FormatError(f"{place}: column {FILE_NAMES[name]} must hold positive weights.")
    return {name: column for name, column in blank.items() if name not in columns} | columns


def _kinds_of(rows: RowStore) -> dict[str, ColumnKind]:
    return {name: _kind(column) for name, column in _informative(rows).items()}


def _kind(column: Array) -> ColumnKind:
    if is_arrow(column):
        return ColumnKind("table", schema=column.schema)
    if is_sparse(column):
        return ColumnKind("sparse", str(column.dtype), column.shape[1:])
    dtype = "text" if _is_text(column) else str(column.dtype).removeprefix("torch.")
    library: Any = "torch" if is_torch_array(column) else "numpy"
    return ColumnKind(library, dtype, tuple(column.shape[1:]))


def _is_text(column: Array) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "U"


def _to_arrow(name: str, column: Array, state: State) -> dict[str, Any]:
    import pyarrow as pa

    if is_arrow(column):
        return dict(zip(column.schema.names, column.columns, strict=True))
    if name == "source":
        return {FILE_NAMES[name]: _named_sources(column, state)}
    name = _file_name(name)
    if is_sparse(column):
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


def _from_arrow(table: Any, name: str, kind: ColumnKind, device: Any) -> Array:
    library, dtype, shape = kind.library, kind.dtype, kind.shape
    if library == "table":
        return _columns_from_arrow(table, kind.schema)
    name = _file_name(name)
    if not all(0 < k < 2**31 for k in shape):
        raise ValueError(f"rows of shape {shape}")
    if library == "sparse":
        return _sparse_from_arrow(table, name, _checked_dtype(dtype, NUMBERS), shape)
    column = table[name].combine_chunks()
    if name == FILE_NAMES["source"]:
        return _numbered_sources(column)
    if column.null_count:
        raise ValueError("entries are missing")
    flat = _flat_values(column, shape)
    if library == "numpy" and dtype == "text":
        return np.asarray(flat.to_pylist(), dtype=np.str_).reshape(len(column), *shape)
    values = numpy_array(flat).reshape(len(column), *shape)
    if library == "numpy":
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


def _flat_values(column: Any, shape: tuple[int, ...]) -> Any:
    """Return the entries of rows of this shape as one Arrow array."""
    import pyarrow as pa

    if not shape:
        return column
    if not pa.types.is_fixed_size_list(column.type) or column.type.list_size != np.prod(shape):
        raise ValueError(f"rows of shape {shape} in {column.type}")
    flat = column.flatten()
    if flat.null_count:
        raise ValueError("entries are missing")
    return flat


def _sparse_from_arrow(table: Any, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    places, values = (table[f"{name}_{part}"].combine_chunks() for part in ("places", "values"))
    at = numpy_array(places.offsets)
    if not np.array_equal(at, numpy_array(values.offsets)) or places.null_count:
        raise ValueError("places and values of sparse rows that do not match")
    inside = slice(int(at[0]), int(at[-1]))
    columns = numpy_array(places.values)[inside]
    numbers = numpy_array(values.values)[inside].astype(dtype, copy=False)
    matrix = sp.csr_array((numbers, columns, at - at[0]), shape=(len(places), *shape))
    matrix.check_format(full_check=True)
    return matrix


def _columns_from_arrow(table: Any, schema: Any) -> Any:
    """Return the columns of a table as they were: Parquet has fewer types than Arrow."""
    import pyarrow as pa

    columns = [as_type(table.column(entry.name), entry.type) for entry in schema]
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
    return dictionary_codes(column)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]
