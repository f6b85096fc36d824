"""A sketch as one Parquet file: a table for everybody, with the state to go on with.

The table has a line a row: `X` (a list of fixed length, the row's numbers in C order), `y`, `task`,
`weight`, `index`, and the columns that ride along under their own names. The state (settings,
counts, state of the generator) is JSON under the key ``olss`` of the file's metadata. Nothing in
the file is ever executed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.common.whole_file import whole_file
from olss.core.row_blocks import to_numpy
from olss.errors import FormatError
from olss.memory.intake import EXTRA
from olss.memory.store import Array, Rows

__all__ = ["FORMAT", "generator", "read", "write"]

FORMAT = 1
KEY = b"olss"
GROUP_BYTES = 16_000_000


def write(path: str | os.PathLike[str], rows: Rows, state: dict[str, Any]) -> None:
    """Write the file whole or not at all: beside its place, then moved there in one step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: rows[name] for name in rows}
    if "order" in columns and np.isnan(columns["order"]).all():
        del columns["order"]
    kinds = {name: _kind(column) for name, column in columns.items()}
    table = pa.table({name.removeprefix(EXTRA): _to_arrow(c) for name, c in columns.items()})
    state = {"format": FORMAT, "columns": kinds, **state}
    table = table.replace_schema_metadata(
        {KEY: json.dumps(state, default=lambda value: value.tolist())}
    )
    with whole_file(Path(path)) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=[name for name in ("y", "task") if name in columns],
            row_group_size=max(1, GROUP_BYTES * len(rows) // max(1, table.nbytes)),
            write_page_checksum=True,
        )


def read(path: str | os.PathLike[str], device: Any = None) -> tuple[Rows, dict[str, Any]]:
    """Return the rows and the state of a sketch file; tensors are put on `device`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no sketch file {path}.")
    try:
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise FormatError(
            f"{path} is not a whole Parquet file ({error}); it is damaged, truncated or of another "
            "kind. Take a copy of it, or make the sketch anew."
        ) from error
    state = _state(path, table.schema.metadata)
    rows = Rows()
    if not state.get("columns"):  # saved before the first update
        return rows, state
    try:
        columns = {
            name: _from_arrow(table[name.removeprefix(EXTRA)], kind, device)
            for name, kind in state["columns"].items()
        }
        columns.setdefault("order", np.full(len(columns["index"]), np.nan))
    except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise FormatError(
            f"{path} does not hold the columns it says it does ({error!r}); it has been changed "
            "by another program. Take a copy of the original."
        ) from error
    rows.replace(np.arange(0), columns, np.arange(len(columns["index"])))
    return rows, state


def generator(state: dict[str, Any]) -> np.random.Generator:
    """Return a NumPy generator in this state."""
    kind = getattr(np.random, str(state["bit_generator"]))
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"{state['bit_generator']!r} is no bit generator")
    bits = kind()
    bits.state = state
    return np.random.Generator(bits)


def _state(path: Path, metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    if not metadata or KEY not in metadata:
        raise FormatError(
            f"{path} is a Parquet file, but not one of a sketch: its metadata has no entry "
            f"'{KEY.decode()}'. To sketch the table itself, read it and call update."
        )
    try:
        state: dict[str, Any] = json.loads(metadata[KEY])
        version = int(state["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} has damaged sketch metadata ({error!r}).") from error
    if version > FORMAT:
        raise FormatError(
            f"{path} is of format {version}, this olss reads up to {FORMAT}; "
            "install a newer olss: pip install --upgrade olss"
        )
    return state


def _kind(column: Array) -> dict[str, Any]:
    return {
        "library": "torch" if is_torch_array(column) else "numpy",
        "dtype": str(column.dtype).removeprefix("torch."),
        "shape": list(column.shape[1:]),
    }


def _to_arrow(column: Array) -> Any:
    import pyarrow as pa

    values = to_numpy(column)
    if values.dtype == np.float16:  # not known to all readers; float32 holds it exactly
        values = values.astype(np.float32)
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(values).reshape(-1)), int(np.prod(values.shape[1:]))
    )


def _from_arrow(column: Any, kind: dict[str, Any], device: Any) -> Array:
    import pyarrow as pa

    flat = column.combine_chunks()
    if pa.types.is_fixed_size_list(flat.type):
        flat = flat.flatten()
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    values = values.reshape(len(column), *kind["shape"])
    if kind["library"] == "numpy":
        if np.dtype(kind["dtype"]).kind not in "biufUMm":
            raise ValueError(f"a column of dtype {kind['dtype']}")
        return values.astype(kind["dtype"], copy=False)
    import torch

    dtype = getattr(torch, kind["dtype"])
    return torch.tensor(values).to(dtype=dtype, device=device)
