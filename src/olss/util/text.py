"""Format numbers, tables and HTML for people to read.

A value is a mapping with "mean" and, where known, "low" and "high", the ends of its 95% interval;
None stands for an unknown mean.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

MISSING = "—"
MINUS = "−"
FEW = 4  # an interval from fewer seeds is so wide that their range says more
MOST_DIFFERENCES = 3  # listed in an error
INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn")  # Unicode categories of characters without a glyph

Value = Mapping[str, Any]


def format_interval(value: Value, digits: int, factor: float = 1, *, signed: bool = False) -> str:
    """Format a mean with half its 95% interval or, from few seeds, with their range.

    Parameters
    ----------
    value : mapping
        "mean" and, where known, "low" and "high" (95% interval), "count" (number of seeds),
        "least" and "most" (their range). None stands for unknown.
    digits : int
        Decimals.
    factor : float
        What to multiply by.
    signed : bool
        Whether to write a plus sign.

    Examples
    --------
    >>> format_interval({"mean": -1.26, "low": -2.0, "high": -0.52}, digits=1)
    '−1.3 ± 0.7'
    >>> format_interval({"mean": 1.26}, digits=1, signed=True)
    '+1.3'
    >>> few = {"mean": 0.8, "low": 0.2, "high": 1.4, "count": 2, "least": 0.75, "most": 0.85}
    >>> format_interval(few, digits=1, factor=100)
    '80.0 (75.0–85.0)'
    """

    def write(number: float) -> str:
        return f"{factor * number:{'+' if signed else ''},.{digits}f}".replace("-", MINUS)

    if value["mean"] is None:
        return MISSING
    text = write(value["mean"])
    if value.get("low") is None:
        return text
    if value.get("count", FEW) >= FEW:
        return f"{text} ± {factor * (value['high'] - value['low']) / 2:,.{digits}f}"
    return f"{text}{_range(value, write)}"


def _range(value: Value, write: Callable[[float], str]) -> str:
    """Return the range of few seeds in brackets; nothing where they are all alike."""
    least, most = value.get("least"), value.get("most")
    if least is None or most is None or write(least) == write(most):
        return ""
    dash = "–" if write(least)[0].isdigit() else " to "  # a dash before a sign is hard to read
    return f" ({write(least)}{dash}{write(most)})"


def explain_spread(text: str) -> str:
    """Return what the ± and the ranges in a text mean; nothing if it has neither.

    Examples
    --------
    >>> explain_spread("87.3 ± 0.6")
    '± is half a 95% interval over seeds'
    >>> explain_spread("80.0 (75.0–85.0)")
    'brackets hold the lowest and the highest seed'
    """
    meanings = {
        " ± ": "± is half a 95% interval over seeds",
        r"\d \([+−\d.,]+(–| to )[+−\d.,]+\)": "brackets hold the lowest and the highest seed",
    }
    return "; ".join(words for sign, words in meanings.items() if re.search(sign, text))


def format_score(value: Value, metric: str = "accuracy") -> str:
    """Format an accuracy in per cent, or R squared, plus or minus half its interval.

    Examples
    --------
    >>> format_score({"mean": 0.8731, "low": 0.8669, "high": 0.8793})
    '87.3 ± 0.6'
    >>> format_score({"mean": -0.05}, "r2")
    '−0.050'
    """
    return format_interval(value, 1, 100) if metric == "accuracy" else format_interval(value, 3)


def format_seconds(value: Value) -> str:
    """Format seconds, plus or minus half their interval.

    Examples
    --------
    >>> format_seconds({"mean": 12.34, "low": 11.9, "high": 12.78})
    '12.3 ± 0.4'
    """
    return MISSING if value["mean"] is None else format_interval(value, _digits(value["mean"]))


def format_ratio(value: Value) -> str:
    """Format a ratio with its asymmetric interval or, from few seeds, with their range.

    Examples
    --------
    >>> format_ratio({"mean": 3.142, "low": 3.0, "high": 3.3})
    '3.14 [3.00–3.30]'
    """
    if value["mean"] is None:
        return MISSING
    digits, low, high = _digits(value["mean"]), value.get("low"), value.get("high")

    def write(number: float) -> str:
        return f"{number:,.{digits}f}"

    text = write(value["mean"])
    if value.get("count", FEW) < FEW:
        return f"{text}{_range(value, write)}"
    # The ratio of a method to itself has no spread.
    if low is None or high is None or low == high:
        return text
    return f"{text} [{write(low)}–{write(high)}]"


def format_number(value: float) -> str:
    """Format a number with three significant digits, or all digits before the point.

    Examples
    --------
    >>> format_number(3.14159), format_number(12_345.6)
    ('3.14', '12,346')
    """
    return f"{value:,.{_digits(value)}f}".replace("-", MINUS)


def format_count(value: Value) -> str:
    """Format a count, rounded to an integer.

    Examples
    --------
    >>> format_count({"mean": 2000.0})
    '2,000'
    """
    return MISSING if value["mean"] is None else f"{value['mean']:,.0f}"


def format_bytes(value: Value) -> str:
    """Format a number of bytes in a suitable unit.

    Examples
    --------
    >>> format_bytes({"mean": 124960.0})
    '125 kB'
    """
    mean = value["mean"]
    if mean is None:
        return MISSING
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if mean >= 1000**power:
            return f"{format_number(mean / 1000**power)} {unit}"
    return f"{mean:.0f} B"


def format_duration(seconds: float) -> str:
    """Return a length of time as people say it.

    Examples
    --------
    >>> format_duration(42.4), format_duration(780), format_duration(7_300), format_duration(7.9e7)
    ('42 s', '13 min', '2.0 h', '914 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    days = seconds / 86_400
    if days < 2:
        return f"{seconds / 3600:.1f} h"
    return f"{days:,.1f} days" if days < 10 else f"{days:,.0f} days"


def _digits(value: float) -> int:
    """Return the number of decimals that makes three significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(3, max(0, 2 - math.floor(math.log10(abs(value)))))


def align_columns(table: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    r"""Format a table as lines, the first `left` columns left-aligned, the others right-aligned.

    Examples
    --------
    >>> print(*align_columns([["city", "rows"], ["Ulm", "4"]], left=1), sep="\n")
    city  rows
    Ulm      4
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = [str.ljust if i < left else str.rjust for i in range(len(widths))]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        for line in table
    ]


def list_differences(there: Any, now: Any) -> str:
    """Return where two nested tables differ, the first three places in full.

    Examples
    --------
    >>> list_differences({"learner": {"size": 100}, "seed": 0}, {"learner": {"size": 50}})
    'learner.size is 100 there and 50 now; seed is 0 there and not set now'
    """
    found = list(_find_differences(there, now, ""))
    more = f" and {len(found) - MOST_DIFFERENCES} more" if len(found) > MOST_DIFFERENCES else ""
    return f"{'; '.join(found[:MOST_DIFFERENCES])}{more}"


def _find_differences(there: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(now, dict):
        for key in sorted({*there, *now}):
            path = f"{name}.{key}" if name else key
            yield from _find_differences(there.get(key), now.get(key), path)
    elif there != now:
        before, after = ("not set" if v is None else json.dumps(v) for v in (there, now))
        yield f"{name} is {before} there and {after} now"


def escape_controls(text: str) -> str:
    r"""Escape control characters, so that a terminal shows the text and does nothing else.

    Names of columns, learners and files come from anywhere; an escape code in one of them could
    clear the screen or change the title of the window.

    Examples
    --------
    >>> print(escape_controls("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> escape_controls("two\nlines, Zürich ✓")
    'two\nlines, Zürich ✓'
    """
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in INVISIBLE
        else char.encode("unicode_escape").decode()
        for char in text
    )


def html_environment(package: str | None = None) -> Environment:
    """Return an environment of Jinja that escapes all values, control characters included.

    Parameters
    ----------
    package : str, optional
        The package whose folder ``template`` has the templates; without it they are strings.

    Examples
    --------
    >>> html_environment().from_string("<p>{{ text }}</p>").render(text="<b>&")
    '<p>&lt;b&gt;&amp;</p>'
    """
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    def show(value: Any) -> Any:
        return value if isinstance(value, Markup) else escape_controls(str(value))

    loader = None if package is None else PackageLoader(package, "template")
    return Environment(autoescape=True, trim_blocks=True, finalize=show, loader=loader)
