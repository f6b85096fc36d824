"""A product with a triangular matrix that lets other threads run.

SciPy's own wrappers of BLAS hold Python's lock while they multiply, and NumPy has no triangular
product. So the function is called where SciPy keeps it for compiled code, through `ctypes`, which
lets go of the lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["multiply_by_triangle"]


def multiply_by_triangle(X: NDArray[Any], U: NDArray[Any]) -> None:
    """Put X U in the place of X.

    Parameters
    ----------
    X : (n, d) array, C-ordered, float32 or float64
    U : (d, d) array, C-ordered, of the same dtype, upper triangular
    """
    n, d = X.shape
    for name, array, shape in (("X", X, (n, d)), ("U", U, (d, d))):
        if not array.flags.c_contiguous or array.dtype != X.dtype or array.shape != shape:
            raise ValueError(f"{name}: {array.dtype} of shape {array.shape} is not to be had")
    number = ctypes.c_float if X.dtype == np.float32 else ctypes.c_double
    rows, columns, one = ctypes.c_int(n), ctypes.c_int(d), number(1.0)
    # BLAS counts by columns, so that it sees X' and U', which is lower triangular: X' <- U' X'.
    _trmm(X.dtype.char)(
        *(b"L", b"L", b"N", b"N", ctypes.byref(columns), ctypes.byref(rows)),
        *(ctypes.byref(one), U.ctypes.data, ctypes.byref(columns)),
        *(X.ctypes.data, ctypes.byref(columns)),
    )


@cache
def _trmm(kind: str) -> Callable[..., None]:
    """Return BLAS's strmm for "f" and dtrmm for "d", all of whose arguments are pointers."""
    from scipy.linalg import cython_blas

    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    capsule = cython_blas.__pyx_capi__[{"f": "strmm", "d": "dtrmm"}[kind]]
    texts, pointers = [ctypes.c_char_p] * 4, [ctypes.c_void_p] * 7
    return ctypes.CFUNCTYPE(None, *texts, *pointers)(address_of(capsule, name_of(capsule)))
