"""Write what a sketch file holds as one HTML page that needs no other file and no network.

The page is `template/page.html`; here is what it shows. Everything is escaped, control characters
included: names of columns and files come from anywhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import olss
from olss.core.blocks import is_sparse, to_numpy
from olss.diagnostics.describe import along_stream, find_largest, short_names
from olss.errors import InputError
from olss.files.inspect import (
    Inspection,
    describe_baseline,
    explain_leverage,
    locate_row,
    weight_bins,
    why_unknown,
)
from olss.sketch import Sketch, config_of, state_of
from olss.util.files import write_atomic
from olss.util.text import format_bytes, format_duration, html_environment

LINES = 30  # of a table of tasks, classes or files
COLUMNS = 200  # of the table of columns
MOVED = 10  # columns shown that moved most
ESTIMATES = 40  # numeric columns of which something is estimated
WEIGHS = "The weight of a row is the number of rows seen that it stands for."
WEIGHS_NOT = "This policy does not record how many rows a row stands for."


def write_page(found: Inspection, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all."""
    if os.path.splitext(path)[1].lower() not in (".html", ".htm"):
        raise InputError(f"the page must end in .html, found {os.fspath(path)!r}.")
    write_atomic(Path(path), render_page(found).encode())


def render_page(found: Inspection) -> str:
    """Return the page as text."""
    from markupsafe import Markup

    css = (files("olss.files") / "template" / "page.css").read_text(encoding="utf-8")
    kept = np.zeros(0, dtype=np.int64)
    if found.files:
        source = np.maximum(state_of(found.sketch).rows["source"], -1) + 1
        kept = np.bincount(source, minlength=len(found.files) + 1)[1:]
    lines = [
        (line["run"] + 1, line["address"], f"{line['rows']:,}", f"{n:,}")
        for line, n in zip(found.files, kept, strict=True)
    ]
    return (
        html_environment("olss.files")
        .get_template("page.html")
        .render(
            path=found.path,
            css=Markup(css),
            settings=_settings(found.sketch),
            tiles=_tiles(found),
            quality=_quality(found),
            typical=found.typical,
            drift=_drift(found),
            stream=_stream(found),
            **_shares(found),
            estimates=_estimates(found.sketch),
            unusual=_unusual(found),
            columns=found.columns[:COLUMNS],
            more_columns=f"{len(found.columns):,}" if len(found.columns) > COLUMNS else "",
            scored=found.description.scored,
            files=lines[-LINES:],
            more_files=f"{len(lines):,}" if len(lines) > LINES else "",
            version=olss.__version__,
        )
    )


def _settings(sketch: Sketch) -> str:
    config, kind = config_of(sketch), state_of(sketch).table
    words = [f"policy {sketch.policy.name}", f"size {sketch.size}"]
    if kind is not None and kind.target:
        words.append(f"target {kind.target}")
    if config.half_life is not None:
        dates = f"in {config.time} (of dates: {format_duration(config.half_life)})"
        unit = "rows" if config.time is None else dates
        words.append(f"half-life {config.half_life:,.6g} {unit}")
    return ", ".join(words)


def _tiles(found: Inspection) -> list[tuple[str, str]]:
    d, error = found.description, found.error
    tiles = [
        (f"{d.rows:,}", "rows kept"),
        (f"{d.seen:,}", "rows seen"),
        (f"{d.effective_rows:,.0f}", "effective rows"),
        (format_bytes({"mean": d.row_bytes + d.moments_bytes}), "of memory"),
    ]
    if error is not None:
        worst = _error(error.relative)
        tile = (worst, "relative error at worst")
        if not error.guaranteed:
            tile = ("no guarantee", f"relative error {worst} at worst")
        tiles.insert(2, tile)
    return tiles


def _error(value: float) -> str:
    if math.isinf(value):
        return "infinite"
    return f"{value:.2g}" if value < 0.99 or value >= 1 else f"{value:.6g}"


def _format_interval(interval: tuple[float, float]) -> str:
    low, high = (_error(max(end, 1e-6)) for end in interval)
    if interval[1] <= 1e-6:
        return "below 1e-06"
    return high if low == high else f"{low} to {high}"


def _quality(found: Inspection) -> dict[str, Any]:
    error = found.error
    if error is None:
        return {"unknown": why_unknown(found.sketch)}
    fine = error.guaranteed and (
        error.relative <= 1.25 * error.expected_error or error.rows >= error.seen
    )
    numbers = [
        ("relative error", _format_interval(error.relative_interval)),
        ("spectral error", _format_interval(error.spectral_interval)),
        ("expected at this size", f"{error.expected_error:.2g}"),
        ("directions seen", f"{error.directions:,.0f}"),
    ]
    if error.scale != 1:
        numbers.append(("at the best scale", f"{error.scale:.4g}"))
    wanted = (0.5, 0.2, 0.1) if error.rows < error.seen else ()
    return {
        "promises": [
            error.promise,
            error.target_promise,
            describe_baseline(found.baseline) if found.baseline else "",
        ],
        "verdict": error.verdict,
        "kind": "fine" if fine else "poor",
        "numbers": numbers,
        "needed": [(f"{one:g}", f"{error.rows_for(one):,}") for one in wanted],
    }


def _drift(found: Inspection) -> dict[str, Any] | None:
    drift = found.drift
    if drift is None:
        return None
    moved = zip(
        drift.names, drift.shift, drift.shift_interval, drift.usual, drift.spread, drift.column_p,
        strict=True,
    )  # fmt: skip
    note = (
        "The columns that moved most. Shift: how far the mean moved, in standard deviations of the "
        "rows seen; usual: how far it moved from batch to batch. Spread: the same for how far out "
        "rows are. p: how often any column would move as much by chance."
    )
    if drift.left_out:
        text = ", ".join(f"{name} ({why})" for name, why in list(drift.left_out.items())[:10])
        note += f" Not compared: {text}."
    return {
        "kind": "poor" if drift else "fine",
        "verdict": drift.verdict,
        "answers": drift.answers,
        "monitor": found.monitor,
        "note": note,
        "columns": [
            (
                name, f"{shift:+.2f}", f"{low:+.2f} to {high:+.2f}",
                "" if math.isnan(usual) else f"{usual:.2f}", f"{spread:+.2f}", f"{p:.2g}",
            )
            for name, shift, (low, high), usual, spread, p in moved
        ][:MOVED],
    }  # fmt: skip


def _stream(found: Inspection) -> dict[str, Any]:
    """Return what is kept of stretches of the stream, and what it stands for, as SVG coordinates.

    The chart is stretched to the width of the page, so it holds no text.
    """
    shares = along_stream(state_of(found.sketch))
    starts = np.cumsum([0, *(line["rows"] for line in found.files)])[1:-1].tolist()
    kept, stands = shares.kept / shares.seen, shares.stands / shares.seen
    top = 1.1 * max(float(kept.max()), float(stands.max()), 1.0)
    begin, end = int(shares.edges[0]), int(shares.edges[-1])

    def x(position: float) -> str:
        return f"{1000 * (position - begin) / (end - begin):.1f}"

    def y(value: float) -> str:
        return f"{150 - 150 * value / top:.1f}"

    def steps(values: Any) -> str:
        places = zip(shares.edges[:-1].tolist(), shares.edges[1:].tolist(), values, strict=True)
        return " ".join(f"{x(a)},{y(value)} {x(b)},{y(value)}" for a, b, value in places)

    inside = [start for start in starts if begin < start < end]
    note = "From the first row seen to the last: rows kept, relative to the rows seen there."
    if begin:
        note = f"Rows kept, relative to the rows seen there. None of the first {begin:,} is kept."
    if inside:
        note += " Marks below are where a new file begins."
    return {
        "note": note,
        "kept": steps(kept),
        "stands": steps(stands),
        "seen": y(1),
        "marks": "".join(f"M{x(start)} 150v8" for start in inside[:: 1 + len(inside) // 400]),
        "ticks": [f"{begin + (end - begin) * k // 4:,}" for k in range(5)],
    }


def _shares(found: Inspection) -> dict[str, Any]:
    """Return rows by task, by class and by weight."""
    d, sketch = found.description, found.sketch
    names, rows = short_names([str(task) for task in d.tasks]), d.counts.sum(axis=1)
    newest, count_rows = d.newest_tasks(LINES), sketch.policy.mergeable
    head, columns = ["task", "rows kept", "", "stand for", ""], [rows, d.task_weight]
    if not count_rows:
        head, columns = head[:3], [rows]
    classes = None
    if d.classes is not None:
        counts = d.counts.sum(axis=0)
        labels, largest = [str(label) for label in d.classes], find_largest(counts, LINES)
        classes = _bar_table(["class", "rows kept", ""], labels, [counts], largest, "largest")
    bins = weight_bins(sketch.weight)
    low, mean, high = d.weight
    weights = {
        "meaning": WEIGHS if count_rows else WEIGHS_NOT,
        "count_rows": count_rows,
        "range": f"{low:.4g} to {high:.4g}, mean {mean:.4g}.",
        "bins": bins
        and _bar_table(
            ["weight", "rows kept", ""],
            [f"{a:.3g} to {b:.3g}" for a, b, _ in bins],
            [np.array([count for _, _, count in bins])],
            range(len(bins)),
        ),
    }
    tasks = _bar_table(head, names, columns, newest, "newest")
    return {"tasks": tasks, "classes": classes, "weights": weights}


def _bar_table(
    head: list[str],
    names: Sequence[str],
    columns: Sequence[Any],
    shown: Sequence[int],
    which: str = "",
) -> dict[str, Any]:
    """Return a table with a bar beside each number, of the lines shown."""
    tops = [max(float(np.max(values)), 1e-300) for values in columns]
    cut = f"The {which} {len(shown)} of {len(names):,}." if len(shown) < len(names) else ""
    rows = [
        (
            names[i],
            [(f"{v[i]:,.0f}", float(v[i]) / top) for v, top in zip(columns, tops, strict=True)],
        )
        for i in shown
    ]
    return {"head": head, "rows": rows, "cut": cut}


def _estimates(sketch: Sketch) -> dict[str, Any]:
    try:
        sketch.estimate()
    except InputError as error:
        return {"unknown": str(error)}
    rows, names = [], _numeric(sketch)
    for name, values in names[:ESTIMATES]:
        try:
            answers = {what: text for what, *text in sketch.estimate(values).texts()}  # type: ignore[union-attr]
        except InputError as error:
            rows.append((name, "", str(error), "", ""))
        else:
            rows.append((name, *answers["mean"], *answers["total"]))
    note = (
        "Means and totals of everything seen, estimated from the rows kept. In 95 of 100 sketches "
        "the interval contains the true value. Missing values are left out."
    )
    if len(names) > ESTIMATES:
        note += f" The first {ESTIMATES} of {len(names):,} columns."
    return {"rows": rows, "note": note}


def _numeric(sketch: Sketch) -> list[tuple[str, Any]]:
    """Return columns of numbers by name, as `Sketch.estimate` takes them."""
    state = state_of(sketch)
    if state.table is None:
        X, y = state.rows["X"], state.rows.get("y")
        few = X.ndim == 2 and not is_sparse(X) and X.shape[1] <= ESTIMATES
        names = [(f"column {j}", _column_function(j)) for j in range(X.shape[1] if few else 0)]
        is_number = y is not None and y.ndim == 1 and to_numpy(y[:1]).dtype.kind in "biuf"
        return [*names, ("y", "y")] if is_number else names
    import pyarrow.types as kinds

    return [
        (field.name, field.name)
        for part in ("X", "y")
        if part in state.rows
        for field in state.rows[part].schema
        if kinds.is_integer(field.type)
        or kinds.is_floating(field.type)
        or kinds.is_decimal(field.type)
        or kinds.is_boolean(field.type)
    ]


def _column_function(j: int) -> Callable[[Any], Any]:
    return lambda X: X[:, j]


def _unusual(found: Inspection) -> list[dict[str, Any]]:
    return [
        {
            "leverage": f"{one.leverage:.3g}",
            "columns": [
                (name, value, f"{share:.0%}") for name, value, share in explain_leverage(found, one)
            ],
            "where": locate_row(found, one),
            "times": f"{one.times:,.0f}" if one.times >= 100 else f"{one.times:.3g}",
            "weight": f"{found.sketch.weight[one.row]:.4g}",
        }
        for one in found.unusual
    ]
