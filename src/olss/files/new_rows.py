"""Rows of new files, a sample of bounded size, to be compared with a sketch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from olss.errors import DataError
from olss.memory.sketch import Sketch
from olss.memory.state import State
from olss.memory.state_holder import state_of
from olss.tables.readers import survey
from olss.tables.sources import Source, find

__all__ = ["sampled_rows"]

SAMPLE_ROWS = 20_000


def sampled_rows(
    sketch: Sketch, inputs: Sequence[str | os.PathLike[str] | Source], seed: int = 0
) -> Any:
    """Return a uniform sample of at most 20,000 rows of files, as `sketch.drift` takes them.

    Files are read once, in blocks, by the types the sketch knows.
    """
    import pyarrow as pa

    state = state_of(sketch)
    sample = Sketch(SAMPLE_ROWS, "reservoir", seed=seed)
    for source in find(inputs):
        schema, pieces = survey(source, 0)
        if state.table is not None:
            # A target may be missing in rows that are new; what else is, `drift` will say.
            known = [field for field in _fields(state) if field.name in schema.names]
            schema, pieces = survey(source, 0, pa.schema(known))
        for piece in pieces:
            for _, batch in piece.read(schema):
                sample.update(pa.Table.from_batches([batch]))
    return sample.X if state.table is not None else _as_array(state, sample.X)


def _fields(state: State) -> list[Any]:
    parts = [state.rows[name] for name in ("X", "y") if name in state.rows]
    return [field for part in parts for field in part.schema]


def _as_array(state: State, table: Any) -> Any:
    """Return the column X, a list a row, in the shape of the rows held."""
    shape = state.rows["X"].shape[1:]
    width = int(np.prod(shape))
    names = table.schema.names
    column = table.column("X").combine_chunks() if "X" in names else None
    if column is None or getattr(column.type, "list_size", None) != width:
        raise DataError(
            f"the sketch holds arrays, rows of shape {shape}: compare it with .npy files, or with "
            f"a column X, of {width:,} numbers a row; found {', '.join(names[:10])}."
        )
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), *shape)
