"""What a sketch file holds and how good it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.diagnostics.certificate import Certificate
from olss.diagnostics.describe import Description, UnusualRow, find_largest, short_names
from olss.diagnostics.drift import Drift
from olss.diagnostics.estimates import TypicalError, typical_error
from olss.diagnostics.linear_models import LinearModel
from olss.diagnostics.monitor import Monitor
from olss.errors import DataError, InputError
from olss.memory.state import FileEntry, State
from olss.sketch import Sketch, config_of, state_of
from olss.tables.readers import survey
from olss.tables.sources import Source, as_paths, find
from olss.util.files import is_address
from olss.util.text import escape_controls

__all__ = [
    "Inspection",
    "describe_baseline",
    "explain_leverage",
    "inspect",
    "locate_row",
    "weight_bins",
    "why_unknown",
]

BAR = 40
BINS = 8
LINES = 20
UNUSUAL, UNUSUAL_LINES = 12, 5  # rows found, and of these in the text
SHARE = 0.08  # of a row's leverage from which a column is named
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Inspection:
    """What a sketch file holds; its `str` is a text to read.

    Attributes
    ----------
    path : Path, or str for an address
    description : Description
        Rows per task and class, and weights.
    columns : list of (name, use, reason)
        What each column was used for; empty if none was scored.
    files : list of dict
        One entry for each file ingested.
    error : Certificate or None
        How far the sketch is from everything seen; None if it keeps no moments.
    drift : Drift or None
        Whether the rows of other files are unlike it, if that was asked.
    unusual : list of UnusualRow
        The rows that stand out most; empty if the sketch keeps no moments.
    monitor : Monitor or None
        The sequential alarm after the new rows, if there is one.
    baseline : LinearModel or None
        The exact linear model of the target, ridge or ridge classifier; None without a target.
    typical : TypicalError or None
        How far totals and counts are off, that of `error` or without one.
    """

    path: Path | str
    sketch: Sketch
    description: Description
    columns: list[tuple[str, str, str]]
    files: list[FileEntry]
    error: Certificate | None
    drift: Drift | None
    unusual: list[UnusualRow]
    monitor: Monitor | None = None
    baseline: LinearModel | None = None
    typical: TypicalError | None = None

    @property
    def alarm(self) -> bool:
        """Whether new rows raise an alarm: by the monitor, where there is one."""
        return bool(self.drift) if self.monitor is None else self.monitor.alarm

    def __str__(self) -> str:
        return escape_controls("\n".join(_lines(self)))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists, dictionaries, strings and numbers, as ``--json`` prints."""
        d, error, drift = self.description, self.error, self.drift
        table, config = state_of(self.sketch).table, config_of(self.sketch)
        least, mean, most = d.weight
        certificate = None if error is None else asdict(error) | {
            "guaranteed": error.guaranteed, "expected_error": error.expected_error,
            "verdict": error.verdict,
        }  # fmt: skip
        moved = None if drift is None else drift.to_dict()
        rows = d.counts.sum(axis=1).tolist()
        tasks = zip(d.tasks, rows, d.task_weight.tolist(), strict=True)
        classes = zip(d.classes or [], d.counts.sum(axis=0).tolist(), strict=False)
        index, weight = self.sketch.index, self.sketch.weight
        return {
            "path": str(self.path), "rows": d.rows, "seen": d.seen, "size": self.sketch.size,
            "policy": self.sketch.policy.name, "target": None if table is None else table.target,
            "strata": list(config.strata or ()), "held_out": _held_out(self.sketch),
            "weight": {"least": least, "mean": mean, "most": most},
            "effective_rows": d.effective_rows,
            "bytes": {"rows": d.row_bytes, "moments": d.moments_bytes},
            "error": certificate, "drift": moved,
            "typical": None if self.typical is None else asdict(self.typical),
            "monitor": None if self.monitor is None else self.monitor.to_dict(),
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            "tasks": [{"task": task, "rows": n, "stands_for": w} for task, n, w in tasks],
            "classes": [{"class": label, "rows": n} for label, n in classes],
            "columns": [{"name": n, "use": use, "reason": why} for n, use, why in self.columns],
            "files": [
                {key: line[key] for key in ("run", "address", "rows")} for line in self.files
            ],
            "unusual": [
                {
                    "index": int(index[one.row]), "weight": float(weight[one.row]),
                    "leverage": one.leverage, "times_the_mean": one.times,
                    "where": locate_row(self, one),
                    "columns": [
                        {"name": name, "value": value, "share": share}
                        for name, value, share in explain_leverage(self, one)
                    ],
                }
                for one in self.unusual
            ],
        }  # fmt: skip


def inspect(
    path: str | os.PathLike[str],
    *,
    against: Any = None,
    monitor: str | os.PathLike[str] | None = None,
) -> Inspection:
    """Return what a file made by `compress`, or by `olss.Sketch.save`, holds and how good it is.

    Parameters
    ----------
    path : path, or address of an object
    against : one or more paths or tables, optional
        New rows, as `compress` takes them: `drift` then tells whether they are unlike those seen,
        from a uniform sample of at most 20,000 of them.
    monitor : path, optional
        A JSON file with an `olss.Monitor`, which gets the new rows as its next batch. If there is
        no such file, a monitor of this sketch is made and written there.

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
    try:
        unusual = sketch.unusual(UNUSUAL)
    except InputError:  # no moments
        unusual = []
    moved = watch = None
    if monitor is not None and against is None:
        raise InputError("monitor needs new rows: give them as against=.")
    if against is not None:
        with as_paths(against) as given:
            rows = sample_new_rows(sketch, given)
        moved = sketch.drift(rows)
        if monitor is not None:
            watch = Monitor.load(monitor) if Path(monitor).exists() else sketch.monitor()
            watch.update(rows).save(monitor)
    return Inspection(
        path if isinstance(path, str) and is_address(path) else Path(path),
        sketch,
        described,
        described.columns,
        list(state.files),
        error,
        moved,
        unusual,
        watch,
        _baseline(sketch),
        typical_error(config_of(sketch), state),
    )


def _baseline(sketch: Sketch) -> LinearModel | None:
    """Return the exact linear model of the target, if one can be had."""
    moments = state_of(sketch).moments
    if moments is None or moments.target is None or not moments.target.rows:
        return None
    is_class = moments.target.classes is not None
    return sketch.linear_model(kind="ridge-classifier" if is_class else "ridge")


def describe_baseline(model: LinearModel) -> str:
    """Return what the exact linear model of the target explains, as text."""
    if model.r2 is None:
        return f"The target {model.target!r} is constant in everything seen."
    return (
        f"The exact linear model of {model.target!r} on the scored columns explains "
        f"{model.r2:.2%} of its variance in everything seen (R2 {model.r2:.4f}): a baseline for "
        "any other model."
    )


def why_unknown(sketch: Sketch) -> str:
    """Return why the error of a sketch is not known, as text."""
    if sketch.policy.leverage_scope == "seen":
        return "it was merged with a sketch that encoded columns differently"
    return "no moments are kept with this policy (ask for them with --moments)"


def _held_out(sketch: Sketch) -> int:
    """Return how many rows are set aside, if any are."""
    return 0 if config_of(sketch).holdout is None else len(sketch.holdout)


def _lines(found: Inspection) -> list[str]:
    """Return an inspection as lines to read in a terminal."""
    d, sketch = found.description, found.sketch
    low, mean, high = d.weight
    table = state_of(sketch).table
    target = f", target {table.target}" if table is not None and table.target else ""
    columns = config_of(sketch).strata
    strata = f", strata {', '.join(columns)}" if columns else ""
    held = _held_out(sketch)
    held_out = f", {held:,} more held out" if held else ""
    lines = [
        f"{found.path}: {d.rows:,} rows of {d.seen:,} seen{held_out}",
        f"policy {sketch.policy.name}, size {sketch.size}{target}{strata}",
        f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
        f"worth {d.effective_rows:,.0f} rows of equal weight",
        d.memory,
        "",
        "how good it is",
    ]
    if found.error is None:
        lines.append(f"  not known: {why_unknown(sketch)}")
        lines += [f"  {found.typical}"] if found.typical is not None else []
    else:
        lines += [f"  {line}" for line in str(found.error).splitlines()[1:]]
    if found.baseline is not None:
        lines.append(f"  {describe_baseline(found.baseline)}")
    if found.drift is not None:
        lines += ["", "the new files", *(f"  {line}" for line in str(found.drift).splitlines())]
    if found.monitor is not None:
        lines.append(f"  monitor: {found.monitor}")
    names = short_names([str(task) for task in d.tasks])
    rows, newest = d.counts.sum(axis=1), d.newest_tasks(LINES)
    lines += ["", "rows by task (standing for)" + _cut("newest", newest, names)]
    lines += _bars(
        [names[i] for i in newest],
        [int(rows[i]) for i in newest],
        [f"{d.task_weight[i]:,.0f}" for i in newest],
    )
    if d.classes is not None:
        counts = d.counts.sum(axis=0)
        largest = find_largest(counts, LINES)
        lines += ["", "rows by class" + _cut("largest", largest, d.classes)]
        lines += _bars([str(d.classes[i]) for i in largest], [int(counts[i]) for i in largest])
    if bins := weight_bins(sketch.weight):
        lines += ["", "rows by weight"]
        lines += _bars([f"{a:.4g} - {b:.4g}" for a, b, _ in bins], [n for _, _, n in bins])
    if found.unusual:
        lines += ["", "the most unusual rows (leverage in everything seen)"]
    for one in found.unusual[:UNUSUAL_LINES]:
        why = [f"{name} {value}".strip() for name, value, _ in explain_leverage(found, one)]
        lines.append(f"  {one.leverage:.3g}  {locate_row(found, one)}: {', '.join(why) or 'many'}")
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


def _cut(which: str, shown: Sequence[int], all_of_them: Sequence[Any]) -> str:
    cut = len(shown) < len(all_of_them)
    return f": the {which} {len(shown)} of {len(all_of_them):,}" if cut else ""


def _bars(names: list[str], values: list[int], notes: list[str] | None = None) -> list[str]:
    width, top = max(map(len, names)), max(values)
    lines = []
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        bar = "█" * max(1, round(BAR * value / top)) if value else ""
        note = f" ({notes[i]})" if notes else ""
        lines.append(f"  {name:>{width}}  {bar} {value:,}{note}")
    return lines


def locate_row(found: Inspection, one: UnusualRow) -> str:
    """Return where a row comes from, as text."""
    rows = state_of(found.sketch).rows
    if "source" in rows and rows["source"][one.row] >= 0:
        address = found.files[int(rows["source"][one.row])]["address"]
        return f"{os.path.basename(address) or address}, row {rows['row'][one.row]:,}"
    return f"row {rows['index'][one.row]:,} of the stream"


def explain_leverage(found: Inspection, one: UnusualRow) -> list[tuple[str, str, float]]:
    """Return the columns that make a row unusual, its values there, and their shares."""
    # Terms may be negative; the others make a row unusual.
    most = sum(max(part, 0.0) for _, part in one.parts)
    return [
        (name, _value(found, name, one.row), part / most)
        for name, part in one.parts[:5]
        if part > 0 and part / most >= SHARE and name != "(constant)"
    ]


def _value(found: Inspection, name: str, row: int) -> str:
    """Return a value of a row as a short text; nothing for an array."""
    state = state_of(found.sketch)
    if state.table is None:
        return ""
    value = state.rows["X"].column(name)[row].as_py()
    if value is None:
        return "missing"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


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
