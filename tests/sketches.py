"""Small streams and comparisons for the tests of sketches."""

from __future__ import annotations

from typing import Any

import numpy as np

from olss.sketch import Sketch


def stream(tasks: int = 5, rows: int = 60, seed: int = 3) -> list[dict[str, Any]]:
    """Tasks of unequal size with three classes, uint8 rows of shape (3, 2) and an extra column."""
    rng = np.random.default_rng(seed)
    updates = []
    for task in range(tasks):
        n = rows + 7 * task
        updates.append(
            {
                "rows": rng.integers(0, 256, (n, 3, 2)).astype(np.uint8),
                "y": rng.integers(0, 3, n),
                "task": task,
                "extra": {"id": rng.integers(0, 10**9, n)},
            }
        )
    return updates


def as_torch(update: dict[str, Any]) -> dict[str, Any]:
    import torch

    return update | {"rows": torch.tensor(update["rows"]), "y": torch.tensor(update["y"])}


def fed(sketch: Sketch, updates: list[dict[str, Any]]) -> Sketch:
    for update in updates:
        sketch.update(**update)
    return sketch


def fingerprint(sketch: Sketch) -> dict[str, Any]:
    """Everything an update may change, as bytes and plain values."""
    state = sketch._state
    return {
        "columns": {name: as_bytes(state.rows[name]) for name in state.rows},
        "seen": state.seen,
        "task": state.task,
        "generator": state.generator,
    }


def as_bytes(column: Any) -> Any:
    if hasattr(column, "to_pydict"):
        return column.schema.to_string(), repr(column.to_pydict())
    array = np.asarray(column)
    return array.dtype.str, array.shape, array.tobytes()
