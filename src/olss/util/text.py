"""Numbers, tables and HTML as text for people."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "MISSING",
    "PLUS_MINUS",
    "aligned",
    "amount",
    "bar",
    "duration",
    "escaped",
    "figures",
    "printable",
    "ratio",
    "rough_time",
    "score",
    "spread",
    "storage",
    "table",
    "without_empty_text",
]

MISSING = "—"
MINUS = "−"
PLUS_MINUS = "± is half a 95% interval over seeds"  # to be said once wherever there is a ±

Value = Mapping[str, Any]


def spread(value: Value, digits: int, factor: float = 1, *, signed: bool = False) -> str:
    """Return a number with half its 95% interval.

    Examples
    --------
    >>> spread({"mean": -1.26, "low": -2.0, "high": -0.52}, digits=1)
    '−1.3 ± 0.7'
    >>> spread({"mean": 1.26}, digits=1, signed=True)
    '+1.3'
    """
    if value["mean"] is None:
        return MISSING
    text = f"{factor * value['mean']:{'+' if signed else ''},.{digits}f}".replace("-", MINUS)
    if value.get("low") is None:
        return text
    return f"{text} ± {factor * (value['high'] - value['low']) / 2:,.{digits}f}"


def score(value: Value, metric: str = "accuracy") -> str:
    """Return an accuracy in per cent, or R squared, with half its interval.

    Examples
    --------
    >>> score({"mean": 0.8731, "low": 0.8669, "high": 0.8793})
    '87.3 ± 0.6'
    >>> score({"mean": -0.05}, "r2")
    '−0.050'
    """
    return spread(value, 1, 100) if metric == "accuracy" else spread(value, 3)


def duration(value: Value) -> str:
    """Return seconds, with half their interval.

    Examples
    --------
    >>> duration({"mean": 12.34, "low": 11.9, "high": 12.78})
    '12.3 ± 0.4'
    """
    return MISSING if value["mean"] is None else spread(value, _digits(value["mean"]))


def ratio(value: Value) -> str:
    """Return a ratio with its interval, which is not the same to both sides.

    Examples
    --------
    >>> ratio({"mean": 3.142, "low": 3.0, "high": 3.3})
    '3.14 (3.00–3.30)'
    """
    if value["mean"] is None:
        return MISSING
    low, high, digits = value.get("low"), value.get("high"), _digits(value["mean"])
    text = f"{value['mean']:,.{digits}f}"
    # A method against itself has no spread to speak of.
    if low is None or low == high:
        return text
    return f"{text} ({low:,.{digits}f}–{high:,.{digits}f})"


def figures(value: float) -> str:
    """Return a number with three figures, or all before the point.

    Examples
    --------
    >>> figures(3.14159), figures(12_345.6)
    ('3.14', '12,346')
    """
    return f"{value:,.{_digits(value)}f}".replace("-", MINUS)


def amount(value: Value) -> str:
    """Return a count, rounded to whole numbers.

    Examples
    --------
    >>> amount({"mean": 2000.0})
    '2,000'
    """
    return MISSING if value["mean"] is None else f"{value['mean']:,.0f}"


def storage(value: Value) -> str:
    """Return bytes in the unit that suits them.

    Examples
    --------
    >>> storage({"mean": 124960.0})
    '125 kB'
    """
    mean = value["mean"]
    if mean is None:
        return MISSING
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if mean >= 1000**power:
            return f"{figures(mean / 1000**power)} {unit}"
    return f"{mean:.0f} B"


def rough_time(seconds: float) -> str:
    """Return a time as people say it.

    Examples
    --------
    >>> rough_time(42.4), rough_time(780), rough_time(7_300)
    ('42 s', '13 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _digits(value: float) -> int:
    """Return the decimals that make three figures in all."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(3, max(0, 2 - math.floor(math.log10(abs(value)))))


def aligned(table: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    r"""Return a table as lines: its first `left` columns to the left, the others to the right.

    Examples
    --------
    >>> print(*aligned([["city", "rows"], ["Ulm", "4"]], left=1), sep="\n")
    city  rows
    Ulm      4
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = [str.ljust if place < left else str.rjust for place in range(len(widths))]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        for line in table
    ]


UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")  # Unicode's categories of what shows nothing by itself


def printable(text: str) -> str:
    r"""Return a text that a terminal only shows: what would steer it is written out.

    Names of columns, learners and files come from anywhere; an escape code in one of them could
    clear the screen, change its colours or the title of the window.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> printable("two\nlines, Zürich ✓")
    'two\nlines, Zürich ✓'
    """
    return "".join(
        one
        if one in "\n\t" or unicodedata.category(one) not in UNSEEN
        else one.encode("unicode_escape").decode()
        for one in text
    )


def escaped(text: object) -> str:
    """Return a text as HTML shows it; what would steer a terminal, or turn letters, written out.

    Examples
    --------
    >>> escaped("<b>&")
    '&lt;b&gt;&amp;'
    """
    return html.escape(printable(str(text)))


def bar(share: float, colour: str = "#0072B2") -> str:
    """Return a bar as long as this share of its place."""
    return (
        f'<span style="display:block;height:.75em;border-radius:2px;min-width:2px;'
        f'background:{escaped(colour)};width:{100 * min(max(share, 0.0), 1.0):.1f}%"></span>'
    )


def table(
    head: Sequence[object], rows: Sequence[Sequence[str]], *, left: int = 1, style: str = ""
) -> str:
    """Return a table; the head is text, cells are HTML. The first `left` columns are to the left.

    Nothing but the alignment is styled: colours are those of the page around it.
    """

    def cell(tag: str, content: str, place: int) -> str:
        side = "left" if place < left else "right"
        scope = ' scope="col"' if tag == "th" else ""
        return f'<{tag}{scope} style="text-align:{side};{style}">{content}</{tag}>'

    top = "".join(cell("th", escaped(name), place) for place, name in enumerate(head))
    lines = [
        "<tr>" + "".join(cell("td", content, place) for place, content in enumerate(row)) + "</tr>"
        for row in rows
    ]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


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
