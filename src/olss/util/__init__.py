"""Utilities that every part of the package may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_getattr", "package_version"]


def lazy_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that finds its names in the modules they live in.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping
        The module of each name.

    Examples
    --------
    >>> find = lazy_getattr("here", {"sqrt": "math"})
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


def package_version(package: str) -> str:
    """Return the version of a package, or of ``"python"``; nothing if it is not installed.

    That of olss is its own word, which holds also for a folder on Python's path.

    Examples
    --------
    >>> package_version("no-such-package")
    ''
    """
    import platform  # slow to load, and seldom needed
    from importlib.metadata import PackageNotFoundError, version

    if package == "python":
        return platform.python_version()
    if package == "olss":
        import olss

        return olss.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
