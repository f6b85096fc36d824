"""The nearest of the names there are, for whoever mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]

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
