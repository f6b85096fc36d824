"""Checks of arguments: each returns the value, converted, or raises `InputError`."""

from __future__ import annotations

import datetime
import math
import numbers
import operator
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np

from olss.errors import InputError

__all__ = [
    "column",
    "flag",
    "generator",
    "known_name",
    "nearest",
    "number",
    "perhaps_a_column",
    "seconds_or_number",
    "seed",
    "share",
    "whole",
]


def whole(name: str, value: Any, least: int = 1, more: str = "", *, most: int | None = None) -> int:
    """Return a whole number from `least` to `most`; `more` says what else the argument may be.

    Examples
    --------
    >>> whole("size", np.int64(5))
    5
    >>> whole("size", 0, more=" or 'task'")
    Traceback (most recent call last):
    olss.errors.InputError: size must be a positive whole number or 'task', found 0.
    """
    try:
        found = least - 1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        found = least - 1
    if found < least or (most is not None and found > most):
        kind = {0: "a whole number, not negative", 1: "a positive whole number"}.get(
            least, f"a whole number of {least} or more"
        )
        if most is not None:
            kind = f"a whole number from {least} to {most}"
        raise InputError(f"{name} must be {kind}{more}, found {_shown(value)}.")
    return found


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Return a finite number inside the bounds asked for.

    Examples
    --------
    >>> number("ridge", -1, least=0)
    Traceback (most recent call last):
    olss.errors.InputError: ridge must be a number of 0 or more, found -1.
    >>> number("share", 0, above=0, most=0.9)
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
        and (least is None or found >= least)
        and (below is None or found < below)
        and (most is None or found <= most)
    )
    if not inside:
        raise InputError(
            f"{name} must be {_kind(above, least, below, most)}, found {_shown(value)}."
        )
    return found


def _kind(above: float | None, least: float | None, below: float | None, most: float | None) -> str:
    """Return the words for a number inside bounds."""
    if least is not None and most is not None:
        return f"a number from {least:g} to {most:g}"
    words = {
        "above {:g}": above,
        "of {:g} or more": least,
        "below {:g}": below,
        "at most {:g}": most,
    }
    bounds = [text.format(bound) for text, bound in words.items() if bound is not None]
    return f"a number {' and '.join(bounds)}" if bounds else "a finite number"


def _shown(value: Any) -> str:
    """Return a value as it is written, cut short: it may be a whole array."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:96]} ..."


def share(name: str, value: Any) -> float:
    """Return a number from 0 to 1.

    Examples
    --------
    >>> share("test_share", 2)
    Traceback (most recent call last):
    olss.errors.InputError: test_share must be a number from 0 to 1, found 2.
    """
    return number(name, value, least=0, most=1)


def flag(name: str, value: Any) -> bool:
    """Return True or False, or raise `InputError`; other values are not taken for either."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, found {value!r}.")
    return value


def perhaps_a_column(option: str, value: Any) -> str | None:
    """Return the name of a column, or None, or raise `InputError`."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{option} must be the name of a column, found {value!r}.")
    return value


def seed(value: Any, name: str = "seed") -> int:
    """Return a seed: a whole number, not negative."""
    return whole(name, value, least=0)


def generator(value: Any, name: str = "seed") -> np.random.Generator:
    """Return a generator: that given, or a new one from a seed, or from none."""
    if isinstance(value, np.random.Generator):
        return value
    return np.random.default_rng(None if value is None else seed(value, name))


def known_name(name: str, value: Any, known: Iterable[str]) -> str:
    """Return one of the names there are, or raise with those near to it.

    Examples
    --------
    >>> known_name("policy", "wieghted", ["weighted", "paper"])
    Traceback (most recent call last):
    olss.errors.InputError: policy: there is no 'wieghted'. Did you mean 'weighted'?
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name}: there is no {_shown(value)}. {nearest(str(value), names)}")
    return value


def column(option: str, name: Any, columns: Iterable[str]) -> str:
    """Return the name of a column that there is; for one that there is not, those near it.

    Examples
    --------
    >>> column("by", "carier", ["carrier", "delay"])
    Traceback (most recent call last):
    olss.errors.InputError: by: there is no column 'carier'. Did you mean 'carrier'?
    """
    names = list(columns)
    if not isinstance(name, str) or name not in names:
        raise InputError(f"{option}: there is no column {name!r}. {nearest(str(name), names)}")
    return name


SHOWN = 40


def nearest(name: str, known: Iterable[str]) -> str:
    """Return words on which names are near, or which there are.

    Examples
    --------
    >>> nearest("ecw", ["sgd", "ewc", "si"])
    "Did you mean 'ewc'?"
    >>> nearest("completely", ["sgd", "ewc"])
    'There are: ewc, sgd.'
    """
    names = sorted(known)
    close = get_close_matches(name[:100], names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(repr(other) for other in close)}?"
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"There are: {', '.join(names[:SHOWN])}{more}."


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
        return number(name, float(match[1]) * UNITS[match[2]], above=0), True
    if isinstance(value, datetime.timedelta):
        return number(name, value.total_seconds(), above=0), True
    if isinstance(value, np.timedelta64):
        return number(name, float(value / np.timedelta64(1, "s")), above=0), True
    return number(name, value, above=0), False
