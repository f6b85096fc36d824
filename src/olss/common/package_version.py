"""Versions of Python, olss and other packages."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["package_version"]


def package_version(package: str) -> str:
    """Return the version of a package, or of ``"python"``; nothing if it is not installed.

    That of olss is its own word, which holds also for a folder on Python's path.

    Examples
    --------
    >>> package_version("no-such-package")
    ''
    """
    if package == "python":
        return platform.python_version()
    if package == "olss":
        import olss

        return olss.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
