"""Rotation of many images at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError

__all__ = ["rotate"]

# A fraction of a pixel is held in this many bits. Two of them and eight bits of grey fit
# into 32, so the sum is exact in integers: the same bytes on every machine and thread count.
BITS = 11
# Images transposed at a time: 128 x 784 numbers of four bytes stay in the processor's cache.
BLOCK_NUMBERS = 100_000


def rotate(images: NDArray[Any], degrees: float, resample: str = "bilinear") -> NDArray[Any]:
    """Rotate images counter-clockwise around their centre, as PIL's ``Image.rotate`` does.

    Where a pixel comes from is the same for all images, so a rotation is one sparse matrix
    (pixels x pixels, at most four entries a row) applied to all of them. For ``uint8`` images
    the grey levels differ from PIL's by at most 1 (bilinear), as fractions of a pixel are
    rounded to 1/2048; multiples of 90 degrees of square images are exact.

    Parameters
    ----------
    images : array (..., height, width)
        ``uint8`` or floating point.
    degrees : float
        Angle, counter-clockwise.
    resample : {"bilinear", "nearest"}
        How to read between pixels.

    Returns
    -------
    array of the same shape and type
        Pixels from outside the image are 0.

    Examples
    --------
    >>> image = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=np.uint8)
    >>> rotate(image, 90)
    array([[3, 6, 9],
           [2, 5, 8],
           [1, 4, 7]], dtype=uint8)
    """
    if images.ndim < 2:
        raise DataError(f"images must have a height and a width, found shape {images.shape}.")
    whole = images.dtype == np.uint8
    if not whole and not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"images must be uint8 or floating point, found {images.dtype}.")
    height, width = images.shape[-2:]
    pixels = images.reshape(-1, height * width)
    matrix = _rotation(degrees, height, width, resample)
    if not whole:
        matrix = matrix.astype(images.dtype) / np.asarray(1 << 2 * BITS, images.dtype)
    turned = np.empty_like(pixels)
    block = max(1, BLOCK_NUMBERS // (height * width))
    for start in range(0, len(pixels), block):
        part = np.ascontiguousarray(pixels[start : start + block].T, dtype=matrix.dtype)
        product = matrix @ part
        # PIL cuts fractions of a grey level off, it does not round.
        turned[start : start + block] = (product >> 2 * BITS if whole else product).T
    return turned.reshape(images.shape)


def _rotation(degrees: float, height: int, width: int, resample: str) -> Any:
    """Return the sparse matrix (to, from) with entries in units of 2**-(2 * BITS)."""
    from scipy import sparse  # takes longer to import than all of this package

    radians = -math.radians(degrees % 360)
    # Rounded as in PIL, so that 90 and 180 degrees are exact.
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)
    down, across = np.mgrid[:height, :width] + 0.5
    down, across = down - height / 2, across - width / 2
    x = cosine * across + sine * down + width / 2
    y = cosine * down - sine * across + height / 2
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    if resample == "bilinear":
        x, y = x - 0.5, y - 0.5
    left, top = np.floor(x), np.floor(y)
    one = 1 << BITS
    right_share = np.rint((x - left) * one) if resample == "bilinear" else np.zeros_like(x)
    lower_share = np.rint((y - top) * one) if resample == "bilinear" else np.zeros_like(y)
    columns, entries = [], []
    for row, vertical in ((top, one - lower_share), (top + 1, lower_share)):
        for column, horizontal in ((left, one - right_share), (left + 1, right_share)):
            source = np.clip(row, 0, height - 1) * width + np.clip(column, 0, width - 1)
            columns.append(source.ravel())
            entries.append((vertical * horizontal * inside).ravel())
    targets = np.tile(np.arange(height * width), 4)
    shape = (height * width, height * width)
    places = (targets, np.concatenate(columns).astype(np.int64))
    matrix = sparse.csr_array((np.concatenate(entries).astype(np.int32), places), shape=shape)
    matrix.eliminate_zeros()
    return matrix
