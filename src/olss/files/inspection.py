"""What a sketch file holds and how good it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.diagnostics.certificate import Certificate
from olss.diagnostics.describe import Description, short_names
from olss.diagnostics.drift import Drift
from olss.errors import DataError
from olss.files.spool import as_paths
from olss.memory.state import State
from olss.sketch import Sketch, state_of
from olss.tables.readers import survey
from olss.tables.sources import Source, find
from olss.util.text import escape_controls

__all__ = ["Inspection", "inspect", "weight_bins", "why_unknown"]

BAR = 40
BINS = 8
LINES = 20
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Inspection:
    """What a sketch file holds; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    sketch : Sketch
    description : Description
        Rows per task and class, and weights.
    columns : list of (name, use, reason)
        What each column was used for; empty if none was scored.
    files : list of dict
        A line a file taken in.
    error : Certificate or None
        How far the sketch is from everything seen; None if it keeps no moments.
    drift : Drift or None
        Whether the rows of other files are unlike it, if that was asked.
    """

    path: Path
    sketch: Sketch
    description: Description
    columns: list[tuple[str, str, str]]
    files: list[dict[str, Any]]
    error: Certificate | None
    drift: Drift | None = None

    def __str__(self) -> str:
        return escape_controls("\n".join(_lines(self)))


def inspect(path: str | os.PathLike[str], *, against: Any = None) -> Inspection:
    """Return what a file made by `compress`, or by `olss.Sketch.save`, holds and how good it is.

    Parameters
    ----------
    path : path
    against : one or more paths or tables, optional
        What is new, as `compress` takes it: `drift` then says whether these rows are unlike those
        seen, by a uniform sample of at most 20,000 of them.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from olss.files import compress
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/x.npy", np.random.default_rng(0).standard_normal((5_000, 3)))
    >>> summary = compress(f"{folder}/x.npy", into=f"{folder}/out.parquet", size=500, seed=0)
    >>> result = inspect(f"{folder}/out.parquet")
    >>> result.description.rows, result.error.relative < 0.2
    (500, True)
    """
    sketch = Sketch.load(path)
    state = state_of(sketch)
    described = sketch.describe()
    error = None if state.moments is None else sketch.error()
    moved = None
    if against is not None:
        with as_paths(against) as given:
            moved = sketch.drift(sample_new_rows(sketch, given))
    return Inspection(
        Path(path), sketch, described, described.columns, list(state.files), error, moved
    )


def why_unknown(sketch: Sketch) -> str:
    """Return why the error of a sketch is not known, as text."""
    if sketch.policy.leverage_scope == "seen":
        return "it has a window, or was merged with a sketch that encoded columns differently"
    return "no moments are kept with this policy (ask for them with --moments)"


def _lines(found: Inspection) -> list[str]:
    """Return an inspection as lines to read in a terminal."""
    d, sketch = found.description, found.sketch
    low, mean, high = d.weight
    table = state_of(sketch).table
    target = f", target {table.target}" if table is not None and table.target else ""
    lines = [
        f"{found.path}: {d.rows:,} rows of {d.seen:,} seen",
        f"policy {sketch.policy.name}, size {sketch.size}{target}",
        f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
        f"worth {d.effective_rows:,.0f} rows of equal weight",
        d.memory,
        "",
        "how good it is",
    ]
    if found.error is None:
        lines.append(f"  not known: {why_unknown(sketch)}")
    else:
        lines += [f"  {line}" for line in str(found.error).splitlines()[1:]]
    if found.drift is not None:
        lines += ["", "the new files", *(f"  {line}" for line in str(found.drift).splitlines())]
    names = short_names([str(task) for task in d.tasks])
    rows = d.counts.sum(axis=1)
    lines += ["", "rows by task (standing for)"]
    lines += _bars(names, rows.tolist(), [f"{w:,.0f}" for w in d.task_weight])
    if d.classes is not None:
        lines += ["", "rows by class"]
        lines += _bars([str(c) for c in d.classes], d.counts.sum(axis=0).tolist())
    if bins := weight_bins(sketch.weight):
        lines += ["", "rows by weight"]
        lines += _bars([f"{a:.4g} - {b:.4g}" for a, b, _ in bins], [n for _, _, n in bins])
    if found.columns:
        width = max(len(name) for name, _, _ in found.columns)
        lines += ["", "columns"]
        lines += [
            f"  {name:{width}}  {use}{f' ({why})' if why else ''}"
            for name, use, why in found.columns
        ]
    if found.files:
        lines += ["", "history"]
        lines += [
            f"  run {line['run'] + 1}: {line['address']}, {line['rows']:,} rows"
            for line in found.files[-LINES:]
        ]
    if len(found.files) > LINES:
        lines.append(f"  ... and {len(found.files) - LINES} files before these")
    return lines


def _bars(names: list[str], values: list[int], notes: list[str] | None = None) -> list[str]:
    width, top = max(map(len, names)), max(values)
    lines = []
    for i, (name, value) in enumerate(list(zip(names, values, strict=True))[:LINES]):
        bar = "█" * max(1, round(BAR * value / top)) if value else ""
        note = f" ({notes[i]})" if notes else ""
        lines.append(f"  {name:>{width}}  {bar} {value:,}{note}")
    if len(names) > LINES:
        lines.append(f"  ... and {len(names) - LINES} more")
    return lines


def weight_bins(weight: NDArray[np.float64]) -> list[tuple[float, float, int]]:
    """Return how many rows have a weight from, to: bins of equal ratios, none if all are alike."""
    low, high = float(weight.min()), float(weight.max())
    if high <= low * (1 + 1e-9):
        return []
    # Rounding must not put an edge beyond its neighbour where weights are nearly alike.
    edges = np.maximum.accumulate(np.geomspace(low, high, BINS + 1))
    place = np.clip(np.searchsorted(edges, weight, side="right") - 1, 0, BINS - 1)
    counts = np.bincount(place, minlength=BINS).tolist()
    return [(float(a), float(b), n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]


def sample_new_rows(
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
