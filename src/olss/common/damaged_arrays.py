"""What NumPy and zipfile raise on damaged .npy and .npz files, whatever was damaged in them."""

from __future__ import annotations

import tokenize
import zipfile
import zlib

__all__ = ["DAMAGED_ARRAYS"]

DAMAGED_ARRAYS: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,  # a way of compression that does not exist
    RuntimeError,  # a password that was never set
    SyntaxError,  # a header that is no dictionary
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
