"""Numbers for people: as many digits as mean something, ± with one meaning everywhere.

A value is a mapping with "mean" and, where it is known, "low" and "high", the ends of its 95%
interval; None stands for what is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "MISSING", "PLUS_MINUS", "amount", "duration", "figures", "ratio", "rough_time", "score",
    "spread", "storage",
]  # fmt: skip

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
