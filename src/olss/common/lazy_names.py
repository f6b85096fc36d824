"""Names of a package that are loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that finds its names in the modules they live in.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping
        The module of each name.

    Examples
    --------
    >>> find = lazy_names("here", {"sqrt": "math"})
    >>> find("sqrt")(9.0)
    3.0
    >>> find("root")
    Traceback (most recent call last):
    AttributeError: module 'here' has no attribute 'root'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
