"""Utilities that every part of the package may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_getattr", "package_version"]


def lazy_getattr(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports names when they are first used.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : mapping
        The module that defines each name.

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
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find


def package_version(package: str) -> str:
    """Return the version of a package or of ``"python"``; "" if it is not installed.

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
