"""Numbers for people: as many digits as mean something."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["MISSING", "amount", "duration", "ratio", "score", "storage"]

MISSING = "—"
MINUS = "−"


def score(value: dict[str, Any], metric: str = "accuracy") -> str:
    """Say an accuracy in per cent, or R squared, with half its interval.

    Examples
    --------
    >>> score({"mean": 0.8731, "low": 0.8669, "high": 0.8793})
    '87.3 ± 0.6'
    >>> score({"mean": -0.05, "low": None, "high": None}, "r2")
    '−0.050'
    """
    factor, digits = (100, 1) if metric == "accuracy" else (1, 3)
    if value["mean"] is None:
        return MISSING
    text = f"{factor * value['mean']:.{digits}f}".replace("-", MINUS)
    if value["low"] is None:
        return text
    return f"{text} ± {factor * (value['high'] - value['low']) / 2:.{digits}f}"


def duration(value: dict[str, Any]) -> str:
    """Say seconds, with half their interval.

    Examples
    --------
    >>> duration({"mean": 12.34, "low": 11.9, "high": 12.78})
    '12.3 ± 0.4'
    """
    if value["mean"] is None:
        return MISSING
    digits = _digits(value["mean"])
    text = f"{value['mean']:,.{digits}f}"
    if value["low"] is None:
        return text
    return f"{text} ± {(value['high'] - value['low']) / 2:,.{digits}f}"


def ratio(value: dict[str, Any]) -> str:
    """Say a ratio.

    Examples
    --------
    >>> ratio({"mean": 3.142, "low": 3.0, "high": 3.3})
    '3.14 (3.00–3.30)'
    """
    if value["mean"] is None:
        return MISSING
    digits = _digits(value["mean"])
    text = f"{value['mean']:,.{digits}f}"
    # A method against itself has no spread to speak of.
    if value["low"] is None or value["low"] == value["high"]:
        return text
    return f"{text} ({value['low']:,.{digits}f}–{value['high']:,.{digits}f})"


def amount(value: dict[str, Any]) -> str:
    """Say a count, rounded to whole numbers.

    Examples
    --------
    >>> amount({"mean": 2000.0})
    '2,000'
    """
    return MISSING if value["mean"] is None else f"{value['mean']:,.0f}"


def storage(value: dict[str, Any]) -> str:
    """Say bytes.

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
            scaled = mean / 1000**power
            return f"{scaled:.{_digits(scaled)}f} {unit}"
    return f"{mean:.0f} B"


def _digits(value: float) -> int:
    """Return the decimals that make three figures in all."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(3, max(0, 2 - math.floor(math.log10(abs(value)))))
