"""What an argument may be, said once: each check returns the value or raises `InputError`."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from olss.common.near_names import nearest
from olss.errors import InputError

__all__ = ["generator", "known_name", "number", "seed", "share", "whole"]


def whole(name: str, value: Any, least: int = 1, more: str = "") -> int:
    """Return a whole number of `least` or more; `more` says what else the argument may be.

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
    if found < least:
        kind = {0: "a whole number, not negative", 1: "a positive whole number"}.get(
            least, f"a whole number of {least} or more"
        )
        raise InputError(f"{name} must be {kind}{more}, found {value!r}.")
    return found


def number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None
) -> float:
    """Return a finite number, if asked one above a bound or not below it.

    Examples
    --------
    >>> number("ridge", -1, least=0)
    Traceback (most recent call last):
    olss.errors.InputError: ridge must be a number of 0 or more, found -1.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    found = float(value) if is_number else math.nan
    low = above if least is None else least
    if not math.isfinite(found) or (low is not None and found < low) or found == above:
        kind = "a finite number" if low is None else f"a number above {low:g}"
        kind = kind if least is None else f"a number of {least:g} or more"
        raise InputError(f"{name} must be {kind}, found {value!r}.")
    return found


def share(name: str, value: Any) -> float:
    """Return a number from 0 to 1.

    Examples
    --------
    >>> share("test_share", 2)
    Traceback (most recent call last):
    olss.errors.InputError: test_share must be a number from 0 to 1, found 2.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) <= 1:
        raise InputError(f"{name} must be a number from 0 to 1, found {value!r}.")
    return float(value)


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
        raise InputError(f"{name}: there is no {value!r}. {nearest(str(value), names)}")
    return value
