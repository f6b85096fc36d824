"""Utilities that every part of the package may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any


class LazyModule:
    """A module that is loaded when something of it is used.

    Examples
    --------
    >>> math = LazyModule("math")
    >>> math.sqrt(9.0)
    3.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


# NumPy is not needed to show help. SciPy takes longer to load than NumPy, and commands that need
# no scores never use it.
if TYPE_CHECKING:
    import numpy as numpy
    from scipy import linalg as linalg
    from scipy import optimize as optimize
    from scipy import sparse as sparse
    from scipy import special as special
    from scipy.linalg import blas as blas
    from scipy.linalg import lapack as lapack
else:
    numpy = LazyModule("numpy")
    sparse = LazyModule("scipy.sparse")
    linalg = LazyModule("scipy.linalg")
    lapack = LazyModule("scipy.linalg.lapack")
    blas = LazyModule("scipy.linalg.blas")
    optimize = LazyModule("scipy.optimize")
    special = LazyModule("scipy.special")


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
