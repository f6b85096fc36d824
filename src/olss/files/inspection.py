"""What a compressed table holds and how good it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.memory.description import Description

__all__ = ["Inspection", "inspect"]


@dataclass(frozen=True)
class Inspection:
    """What a compressed table holds; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    description : Description
        Rows per task and class, and weights.
    settings : dict
        What it was made with.
    columns : list of (name, use, reason)
        What each column was used for; empty if none was scored.
    history : list of dict
        A line a file taken in.
    spectral_error : float or None
        The largest relative error of the weighted Gram matrix in any direction; None if no Gram
        matrix was recorded.
    weight : (n,) float array
    """

    path: Path
    description: Description
    settings: dict[str, Any]
    columns: list[tuple[str, str, str]]
    history: list[dict[str, Any]]
    spectral_error: float | None
    weight: NDArray[np.float64]

    def __str__(self) -> str:
        from olss.files.inspection_text import text

        return text(self)


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Say what a file made by `compress`, or by `olss.Sketch.save`, holds and how good it is.

    The relative spectral error is the largest |x' (H - G) x| / x' G x over all x, with G the Gram
    matrix of everything seen, as recorded, and H that of the rows held, weighted. Policies without
    weights ("paper", "recent") are given equal ones.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from olss.files import compress
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/x.npy", np.random.default_rng(0).standard_normal((5_000, 3)))
    >>> summary = compress(f"{folder}/x.npy", into=f"{folder}/out.parquet", size=500, seed=0)
    >>> result = inspect(f"{folder}/out.parquet")
    >>> result.description.rows, bool(result.spectral_error < 0.2)
    (500, True)
    """
    from olss.files.table_file import TASK, WEIGHT, is_sketch, read

    path = Path(path)
    if path.is_file() and is_sketch(path):
        return _inspect_sketch(path)
    table, state = read(path)
    weight = table.column(WEIGHT).to_numpy().astype(np.float64)
    target = state.settings["target"]
    classes = _labels(table.column(target)) if state.classes else None
    description = Description.of(state.seen, _labels(table.column(TASK)), classes, weight)
    return Inspection(
        path,
        description,
        state.settings,
        state.uses(),
        state.history,
        _spectral_error(table, state, weight),
        weight,
    )


def _inspect_sketch(path: Path) -> Inspection:
    from olss.memory.policies import name_of
    from olss.memory.sketch import Sketch

    sketch = Sketch.load(path)
    settings = {"policy": name_of(sketch.policy), "size": sketch.size, "target": None}
    return Inspection(path, sketch.describe(), settings, [], [], None, sketch.weight)


def _labels(column: Any) -> NDArray[Any]:
    """Return a column as an array that sorts: numbers, or text."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_integer(column.type) and not column.null_count:
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    return np.asarray(column.cast(pa.string()).fill_null("(missing)").to_pylist())


def _spectral_error(table: Any, state: Any, weight: NDArray[np.float64]) -> float | None:
    from olss.tables.plan import Plan
    from olss.tables.scoring import make_scorer, one_batch, weighted_gram

    if state.gram is None or state.plan is None:
        return None
    if state.settings["policy"] == "paper":
        weight = np.full(len(weight), state.seen / len(weight))
    plan = Plan.from_json(state.plan)
    intercept = state.settings["intercept"]
    scorer = make_scorer(plan, state.gram, intercept=intercept, scores="exact", size=1)
    M = scorer.M[:, np.any(scorer.M, axis=0)]
    held = weighted_gram(plan, one_batch(table), weight).matrix
    eigenvalues = np.linalg.eigvalsh(M.T @ held @ M)
    return float(np.abs(eigenvalues - 1).max())
