"""Lengths of time as people write them."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

from olss.common import checks
from olss.errors import InputError

__all__ = ["seconds_or_number"]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_or_number(name: str, value: Any) -> tuple[float, bool]:
    """Return a length of time in seconds and True, or a plain number and False.

    Examples
    --------
    >>> seconds_or_number("half_life", "30d"), seconds_or_number("half_life", 100_000)
    ((2592000.0, True), (100000.0, False))
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
        if not match:
            raise InputError(
                f"{name} must be a number, or a length of time such as '30d', '12h' or '90m', "
                f"found {value!r}."
            )
        return checks.number(name, float(match[1]) * UNITS[match[2]], above=0), True
    if isinstance(value, datetime.timedelta):
        return checks.number(name, value.total_seconds(), above=0), True
    if isinstance(value, np.timedelta64):
        return checks.number(name, float(value / np.timedelta64(1, "s")), above=0), True
    return checks.number(name, value, above=0), False
