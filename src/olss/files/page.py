"""Write what a sketch file holds as one HTML page that needs no other file and no network."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import scipy.sparse as sp

import olss
from olss.core.blocks import to_numpy
from olss.diagnostics.describe import Stretches, UnusualRow, along_stream, find_largest, short_names
from olss.errors import InputError
from olss.files.inspect import (
    Inspection,
    explain_leverage,
    locate_row,
    weight_bins,
    why_unknown,
)
from olss.sketch import Sketch, config_of, state_of
from olss.util.files import write_atomic
from olss.util.text import escape_html, format_bytes, format_duration, html_bar, html_table

__all__ = ["render_page", "write_page"]

LINES = 30  # of a table of tasks, classes or files
COLUMNS = 200  # of the table of columns
ESTIMATES = 40  # numeric columns of which something is estimated
WEIGHS = "Each row kept stands for as many of the rows seen as its weight says."
WEIGHS_NOT = "With this policy weights do not say how many of the rows seen a row stands for."
KEPT, STANDS = "var(--kept)", "var(--stands)"


def write_page(found: Inspection, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all."""
    if os.path.splitext(path)[1].lower() not in (".html", ".htm"):
        raise InputError(f"the page must end in .html, found {os.fspath(path)!r}.")
    write_atomic(path, render_page(found).encode())  # type: ignore[arg-type]


def render_page(found: Inspection) -> str:
    """Return the page as text."""
    css = (files("olss.files") / "template" / "page.css").read_text(encoding="utf-8")
    parts: list[Callable[[Inspection], str]] = [
        _quality, _drift, _stream, _tasks, _estimates, _unusual, _columns, _files
    ]  # fmt: skip
    title = escape_html(found.path.name)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{css}</style>
</head>
<body><main class="wide">
{_head(found)}
{"".join(part(found) for part in parts)}
<footer>Made by olss {escape_html(olss.__version__)} from {escape_html(found.path)}.</footer>
</main></body>
</html>
"""


def _section(title: str, body: str, note: str = "") -> str:
    told = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{escape_html(title)}</h2>{told}{body}</section>\n"


def _scroll(content: str, kind: str = "scroll wide-table") -> str:
    return f'<div class="{kind}" tabindex="0">{content}</div>'


def _head(found: Inspection) -> str:
    d, sketch = found.description, found.sketch
    config, kind = config_of(sketch), state_of(sketch).table
    words = [f"policy {sketch.policy.name}", f"size {sketch.size}"]
    if kind is not None and kind.target:
        words.append(f"target {kind.target}")
    if config.half_life is not None:
        dates = f"in {config.time} (of dates: {format_duration(config.half_life)})"
        unit = "rows" if config.time is None else dates
        words.append(f"half-life {config.half_life:,.6g} {unit}")
    tiles = [
        (f"{d.rows:,}", "rows kept"),
        (f"{d.seen:,}", "rows seen"),
        (f"{d.effective_rows:,.0f}", "rows of equal weight are worth as much"),
        (format_bytes({"mean": d.row_bytes + d.moments_bytes}), "of memory"),
    ]
    if found.error is not None:
        error = found.error
        worst = _error(error.relative)
        tile = (worst, "relative error at worst")
        if not error.guaranteed:
            tile = ("no guarantee", f"relative error {worst} at worst")
        tiles.insert(2, tile)
    shown = "".join(
        f'<div class="tile"><b>{escape_html(number)}</b><span>{escape_html(what)}</span></div>'
        for number, what in tiles
    )
    return (
        f'<header><h1>{escape_html(found.path.name)}</h1><p class="soft">'
        f"{escape_html(', '.join(words))}. {WEIGHS if _weighs(sketch) else WEIGHS_NOT}"
        f'</p></header>\n<div class="tiles">{shown}</div>\n'
    )


def _weighs(sketch: Sketch) -> bool:
    """Return whether weights say how many rows a row stands for."""
    return sketch.policy.mergeable


def _error(value: float) -> str:
    if math.isinf(value):
        return "infinite"
    return f"{value:.2g}" if value < 0.99 or value >= 1 else f"{value:.6g}"


def _quality(found: Inspection) -> str:
    error = found.error
    if error is None:
        return _section(
            "How good it is",
            f"<p>Not known: {escape_html(why_unknown(found.sketch))}.</p>",
        )
    fine = error.guaranteed and (error.relative <= 1.25 * error.law or error.rows >= error.seen)
    words = (
        f"<p>{escape_html(error.promise)}</p>"
        f'<p class="verdict {"fine" if fine else "poor"}">{escape_html(error.verdict)}</p>'
    )
    numbers = [
        ["relative error", _between(error.relative_interval)],
        ["spectral error", _between(error.spectral_interval)],
        ["by the law, at this size", f"{error.law:.2g}"],
        ["directions seen", f"{error.directions:,.0f}"],
    ]
    if error.scale != 1:
        numbers.append(["at the best scale", f"{error.scale:.4g}"])
    beside = html_table(["certificate", ""], [[escape_html(a), escape_html(b)] for a, b in numbers])
    if error.rows < error.seen:
        needed = [[f"{wanted:g}", f"{error.rows_for(wanted):,}"] for wanted in (0.5, 0.2, 0.1)]
        beside += "<h3>How large should it be?</h3>" + html_table(
            ["for a relative error of", "rows needed"], needed
        )
    return _section(
        "How good it is", f'<div class="two"><div>{words}</div><div>{beside}</div></div>'
    )


def _between(interval: tuple[float, float]) -> str:
    low, high = (_error(max(end, 1e-6)) for end in interval)
    if interval[1] <= 1e-6:
        return "below 1e-06"
    return high if low == high else f"{low} to {high}"


def _drift(found: Inspection) -> str:
    if found.drift is None:
        return ""
    first, *more = str(found.drift).splitlines()
    kind = "poor" if found.drift else "fine"
    text = f'<p class="verdict {kind}">{escape_html(first)}</p>'
    drift = found.drift
    moved = zip(drift.names, drift.shift, drift.spread, drift.column_p, strict=True)
    lines = [
        [escape_html(name), f"{shift:+.2f}", f"{spread:+.2f}", f"{p:.2g}"]
        for name, shift, spread, p in moved
        if name != "(constant)"
    ]
    shown = _scroll(html_table(["column", "shift", "spread", "p"], lines[:10]), "scroll")
    note = (
        "The columns that moved most. Shift, from -1 to 1: how much more often a new row is above "
        "one seen than below. Spread: the same for how far out it is. p: how often any column "
        "would move as much by chance."
    )
    text += f'<p>{escape_html(more[0])}</p><p class="note">{note}</p>'
    return _section("The new files", text + shown)


def _stream(found: Inspection) -> str:
    shares = along_stream(state_of(found.sketch))
    starts = np.cumsum([0, *(line["rows"] for line in found.files)])[1:-1].tolist()
    weighs = _weighs(found.sketch)
    stands = '<span><i class="s"></i>what they stand for, by their weights</span>' if weighs else ""
    key = (
        f'<div class="key"><span><i class="k"></i>rows kept</span>{stands}'
        '<span><i class="d"></i>rows seen</span></div>'
    )
    begin, end = int(shares.edges[0]), int(shares.edges[-1])
    note = "From the first row seen to the last: rows kept, in parts of what was seen there."
    if begin:
        note = f"Rows kept, in parts of what was seen there. None of the first {begin:,} is kept."
    if any(begin < start < end for start in starts):
        note += " Marks below are where a new file begins."
    ticks = "".join(f"<span>{begin + (end - begin) * k // 4:,}</span>" for k in range(5))
    chart = _stream_chart(shares, starts, weighs) + f'<div class="ticks">{ticks}</div>'
    return _section("Over time", key + chart, note)


def _stream_chart(found: Stretches, starts: Sequence[int], weighs: bool) -> str:
    """Return an SVG of what is kept of stretches of the stream, and of what that stands for.

    It is stretched to the width of the page, so it holds no text.
    """
    kept, stands = found.kept / found.seen, found.stands / found.seen
    top = 1.1 * max(float(kept.max()), float(stands.max()), 1.0)
    begin, end = float(found.edges[0]), float(found.edges[-1])

    def x(position: float) -> str:
        return f"{1000 * (position - begin) / (end - begin):.1f}"

    def y(value: float) -> str:
        return f"{150 - 150 * value / top:.1f}"

    places = list(zip(found.edges[:-1].tolist(), found.edges[1:].tolist(), strict=True))
    area = " ".join(f"{x(a)},{y(k)} {x(b)},{y(k)}" for (a, b), k in zip(places, kept, strict=True))
    line = " ".join(
        f"{x(a)},{y(s)} {x(b)},{y(s)}" for (a, b), s in zip(places, stands, strict=True)
    )
    inside = [start for start in starts if begin < start < end]
    marks = "".join(f"M{x(start)} 150v8" for start in inside[:: 1 + len(inside) // 400])
    stands_for = f'<polyline class="stands" points="{line}"/>' if weighs else ""
    return (
        '<svg class="chart" viewBox="0 0 1000 160" preserveAspectRatio="none" role="img" '
        'aria-label="What is kept of each part of the stream, and what it stands for">'
        f'<polygon class="kept" points="0,150 {area} 1000,150"/>'
        f'<path class="axis" d="M0 150H1000{marks}"/><path class="seen" d="M0 {y(1)}H1000"/>'
        f"{stands_for}</svg>"
    )


def _tasks(found: Inspection) -> str:
    d, sketch = found.description, found.sketch
    names, rows = short_names([str(task) for task in d.tasks]), d.counts.sum(axis=1)
    newest = d.newest_tasks(LINES)
    head, columns = ["task", "rows kept", "", "stand for", ""], [rows, d.task_weight]
    if not _weighs(sketch):
        head, columns = head[:3], [rows]
    left = "<section><h2>Rows by task</h2>" + _ranked(head, names, columns, newest, "newest")
    if d.classes is not None:
        counts = d.counts.sum(axis=0)
        left += "<h3>Rows by class</h3>" + _ranked(
            ["class", "rows kept", ""],
            [str(label) for label in d.classes],
            [counts],
            find_largest(counts, LINES),
            "largest",
        )
    low, mean, high = d.weight
    told = f"<p>{low:.4g} to {high:.4g}, mean {mean:.4g}.</p>"
    if bins := weight_bins(sketch.weight):
        told += _ranked(
            ["weight", "rows kept", ""],
            [f"{a:.3g} to {b:.3g}" for a, b, _ in bins],
            [np.array([count for _, _, count in bins])],
        )
    else:
        told += f'<p class="soft">{"All are alike." if _weighs(sketch) else WEIGHS_NOT}</p>'
    right = "<section><h2>Weights</h2>" + told
    return f'<div class="pair">{left}</section>\n{right}</section></div>\n'


def _ranked(
    head: list[str],
    names: Sequence[str],
    columns: Sequence[Any],
    shown: Sequence[int] | None = None,
    which: str = "",
) -> str:
    """Return a table with a bar beside each number, of the lines shown or of all."""
    places = range(len(names)) if shown is None else shown
    tops = [max(float(np.max(values)), 1e-300) for values in columns]
    lines = []
    for place in places:
        cells = [f'<span class="name">{escape_html(names[place])}</span>']
        for values, top, colour in zip(columns, tops, (KEPT, STANDS), strict=False):
            bar = html_bar(values[place] / top, colour)
            cells += [f"{values[place]:,.0f}", f'<div class="bar">{bar}</div>']
        lines.append(cells)
    cut = len(places) < len(names)
    note = f'<p class="note">The {which} {len(places)} of {len(names):,}.</p>' if cut else ""
    return note + _scroll(html_table(head, lines), "scroll")


def _estimates(found: Inspection) -> str:
    sketch = found.sketch
    try:
        sketch.estimate()
    except InputError as error:
        return _section(
            "What is known of everything seen", f"<p>Not known: {escape_html(error)}</p>"
        )
    lines, names = [], _numeric(sketch)
    for name, values in names[:ESTIMATES]:
        try:
            answers = {what: text for what, *text in sketch.estimate(values).texts()}  # type: ignore[union-attr]
        except InputError as error:
            lines.append(
                [f'<span class="name">{escape_html(name)}</span>', "", escape_html(error), "", ""]
            )
            continue
        cells = [
            f'<span class="number">{escape_html(t)}</span>'
            for w in ("mean", "total")
            for t in answers[w]
        ]
        lines.append([f'<span class="name">{escape_html(name)}</span>', *cells])
    if not lines:
        return _section(
            "What is known of everything seen",
            "<p>No column of numbers, or too many; <code>Sketch.estimate</code> takes one.</p>",
        )
    note = (
        "Means and totals of everything seen, estimated from the rows kept. In 95 of 100 sketches "
        "the interval holds the true number. Missing values are left out."
    )
    more = f" The first {ESTIMATES} of {len(names):,} columns." if len(names) > ESTIMATES else ""
    shown = _scroll(html_table(["column", "mean", "95%", "total", "95%"], lines))
    return _section("What is known of everything seen", shown, note + more)


def _numeric(sketch: Sketch) -> list[tuple[str, Any]]:
    """Return columns of numbers by name, as `Sketch.estimate` takes them."""
    state = state_of(sketch)
    if state.table is None:
        X, y = state.rows["X"], state.rows.get("y")
        few = X.ndim == 2 and not sp.issparse(X) and X.shape[1] <= ESTIMATES
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


def _unusual(found: Inspection) -> str:
    if not found.unusual:
        return _section(
            "The most unusual rows", "<p>Not known: this needs moments of everything seen.</p>"
        )
    lines = [_unusual_line(found, one) for one in found.unusual]
    note = (
        "Rows of highest leverage in everything seen, and the columns that make them so, with the "
        "share each has in it. At a leverage of 1, no other row has anything in its direction."
    )
    head = ["leverage", "columns", "where", "times the mean", "weight"]
    shown = html_table(head, lines, left=0).replace("text-align:right", "text-align:left")
    return _section("The most unusual rows", _scroll(shown), note)


def _unusual_line(found: Inspection, one: UnusualRow) -> list[str]:
    chips = "".join(
        f'<span class="chip"><b>{escape_html(name)}</b> {escape_html(value)} '
        f'<span class="soft">· {share:.0%}</span></span>'
        for name, value, share in explain_leverage(found, one)
    )
    return [
        f"{one.leverage:.3g}",
        chips or '<span class="soft">many together</span>',
        escape_html(locate_row(found, one)),
        f"{one.times:,.0f}" if one.times >= 100 else f"{one.times:.3g}",
        f"{found.sketch.weight[one.row]:.4g}",
    ]


def _columns(found: Inspection) -> str:
    if not found.columns:
        return _section(
            "Columns and their use", f"<p>Scored: {escape_html(found.description.scored)}.</p>"
        )
    lines = [
        [f'<span class="name">{escape_html(name)}</span>', escape_html(use), escape_html(why)]
        for name, use, why in found.columns[:COLUMNS]
    ]
    more = len(found.columns) - COLUMNS
    note = "Passthrough columns are kept, and not scored."
    if more > 0:
        note += f" The first {COLUMNS} of {len(found.columns):,}."
    return _section(
        "Columns and their use", _scroll(html_table(["column", "use", "why"], lines, left=3)), note
    )


def _files(found: Inspection) -> str:
    if not found.files:
        return ""
    kept = np.bincount(
        np.maximum(state_of(found.sketch).rows["source"], -1) + 1, minlength=len(found.files) + 1
    )[1:]
    lines = [
        [escape_html(line["run"] + 1), escape_html(line["address"]), f"{line['rows']:,}", f"{n:,}"]
        for line, n in list(zip(found.files, kept, strict=True))[-LINES:]
    ]
    note = f"The last {LINES} of {len(found.files):,}." if len(found.files) > LINES else ""
    return _section(
        "Files ingested",
        _scroll(html_table(["run", "file", "rows seen", "rows kept"], lines, left=2)),
        note,
    )
