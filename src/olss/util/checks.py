"""Check arguments: each function returns the value, converted, or raises `InputError`.

Messages name the argument, say what is allowed and show the value found.
"""

from __future__ import annotations

import datetime
import math
import numbers
import operator
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from olss.errors import InputError
from olss.util import numpy as np

SUGGESTIONS = 40
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def integer(
    name: str,
    value: Any,
    minimum: int = 1,
    alternative: str = "",
    *,
    maximum: int | None = None,
) -> int:
    """Return an integer within bounds; the message ends with `alternative`, if there is one.

    Examples
    --------
    >>> integer("size", np.int64(5))
    5
    >>> integer("size", 0, alternative=" or 'task'")
    Traceback (most recent call last):
    olss.errors.InputError: size must be a positive integer or 'task', found 0.
    """
    try:
        found = minimum - 1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        found = minimum - 1
    if found < minimum or (maximum is not None and found > maximum):
        if maximum is not None:
            allowed = f"an integer from {minimum} to {maximum}"
        else:
            allowed = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
        raise InputError(f"{name} must be {allowed}{alternative}, found {_shorten(value)}.")
    return found


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    minimum: float | None = None,
    below: float | None = None,
    maximum: float | None = None,
) -> float:
    """Return a finite number within bounds.

    Examples
    --------
    >>> number("ridge", -1, minimum=0)
    Traceback (most recent call last):
    olss.errors.InputError: ridge must be a number of at least 0, found -1.
    >>> number("share", 0, above=0, maximum=0.9)
    Traceback (most recent call last):
    olss.errors.InputError: share must be a number above 0 and at most 0.9, found 0.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        found = float(value) if is_number else math.nan
    except OverflowError:
        found = math.inf
    inside = (
        math.isfinite(found)
        and (above is None or found > above)
        and (minimum is None or found >= minimum)
        and (below is None or found < below)
        and (maximum is None or found <= maximum)
    )
    if not inside:
        bounds = {"above": above, "of at least": minimum, "below": below, "at most": maximum}
        allowed = " and ".join(f"{word} {x:g}" for word, x in bounds.items() if x is not None)
        if minimum is not None and maximum is not None:
            allowed = f"from {minimum:g} to {maximum:g}"
        kind = f"a number {allowed}" if allowed else "a finite number"
        raise InputError(f"{name} must be {kind}, found {_shorten(value)}.")
    return found


def fraction(name: str, value: Any) -> float:
    """Return a number from 0 to 1.

    Examples
    --------
    >>> fraction("test_share", 2)
    Traceback (most recent call last):
    olss.errors.InputError: test_share must be a number from 0 to 1, found 2.
    """
    return number(name, value, minimum=0, maximum=1)


def boolean(name: str, value: Any) -> bool:
    """Return True or False; other values are not converted to either."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, found {_shorten(value)}.")
    return value


def seed(value: Any, name: str = "seed") -> int:
    """Return a seed: an integer of at least 0."""
    return integer(name, value, minimum=0)


def generator(value: Any, name: str = "seed") -> np.random.Generator:
    """Return the generator given, or a new one from a seed (None: unpredictable)."""
    if isinstance(value, np.random.Generator):
        return value
    return np.random.default_rng(None if value is None else seed(value, name))


def duration(name: str, value: Any) -> tuple[float, bool]:
    """Return a length of time in seconds and True, or a plain number and False.

    Examples
    --------
    >>> duration("half_life", "30d"), duration("half_life", 100_000)
    ((2592000.0, True), (100000.0, False))
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
        if not match:
            raise InputError(
                f"{name} must be a number or a length of time such as '30d', '12h' or '90m', "
                f"found {_shorten(value)}."
            )
        return number(name, float(match[1]) * UNITS[match[2]], above=0), True
    if isinstance(value, datetime.timedelta):
        return number(name, value.total_seconds(), above=0), True
    if isinstance(value, np.timedelta64):
        return number(name, float(value / np.timedelta64(1, "s")), above=0), True
    return number(name, value, above=0), False


def choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return one of the choices; for another value the message suggests similar ones.

    Examples
    --------
    >>> choice("policy", "wieghted", ["weighted", "paper"])
    Traceback (most recent call last):
    olss.errors.InputError: policy: there is no 'wieghted'. Did you mean 'weighted'?
    """
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name}: there is no {_shorten(value)}. {suggest(str(value), names)}")
    return value


def column(name: str, value: Any, columns: Iterable[str]) -> str:
    """Return the name of one of the columns; for another name the message suggests similar ones.

    Examples
    --------
    >>> column("by", "carier", ["carrier", "delay"])
    Traceback (most recent call last):
    olss.errors.InputError: by: there is no column 'carier'. Did you mean 'carrier'?
    """
    names = list(columns)
    if not isinstance(value, str) or value not in names:
        found = f"there is no column {_shorten(value)}"
        raise InputError(f"{name}: {found}. {suggest(str(value), names)}")
    return value


def optional_column(name: str, value: Any) -> str | None:
    """Return the name of a column, or None; whether there is such a column is not checked."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{name} must be the name of a column, found {_shorten(value)}.")
    return value


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known names similar to a mistyped one, or with all of them.

    Examples
    --------
    >>> suggest("ecw", ["sgd", "ewc", "si"])
    "Did you mean 'ewc'?"
    >>> suggest("EWC", ["sgd", "ewc", "si"])
    "Did you mean 'ewc'?"
    >>> suggest("completely", ["sgd", "ewc"])
    'Choose one of: ewc, sgd.'
    """
    names = sorted(known)
    folded = {other.casefold(): other for other in names}
    close = get_close_matches(name[:100].casefold(), folded, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(folded[other]) for other in close)}?"
    more = f" and {len(names) - SUGGESTIONS:,} more" if len(names) > SUGGESTIONS else ""
    return f"Choose one of: {', '.join(names[:SUGGESTIONS])}{more}."


def _shorten(value: Any) -> str:
    """Return the repr of a value, cut short because it may be an array."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:96]} ..."
