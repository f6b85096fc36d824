"""Gaps in CSV files."""

from __future__ import annotations

from typing import Any

__all__ = ["without_empty_text"]


def without_empty_text(batch: Any) -> Any:
    """Return a batch of a CSV file in which an empty text is missing, as an empty number is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.if_else(pc.binary_length(column).cast(pa.bool_()), column, pa.nulls(1, column.type)[0])
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
