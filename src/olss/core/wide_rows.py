"""Very wide rows, projected to fewer columns before they are scored."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from olss.core.row_blocks import Blocks, to_numpy
from olss.errors import OlssWarning

__all__ = ["narrowed"]

WIDE_BYTES = 128_000_000  # of rows as they are, at a time


class _Narrow(Blocks):
    """Blocks of A S, S a (d, k) matrix with one +1 or -1 a row."""

    def __init__(self, blocks: Blocks, S: sp.csr_array) -> None:
        super().__init__(blocks.source, blocks.weights, name=blocks.name)
        self._wide = blocks
        self._S = S
        self.columns = S.shape[1]
        self.sparse = self.remote = False

    def _converts(self, dtype: np.dtype[Any]) -> bool:
        return False

    def pieces(self, dtype: np.dtype[Any], size: int | None = None) -> list[slice]:
        """Return all rows as parts that a thread may have, wide, in float64, of any `size`."""
        return self._cut(int(np.clip(WIDE_BYTES // (8 * self._wide.columns), 64, 1024)))

    def _block(self, part: slice, dtype: np.dtype[Any]) -> Any:
        block = self._wide._block(part, np.dtype(np.float64))
        product = (block if sp.issparse(block) else to_numpy(block)) @ self._S
        dense = product.toarray() if sp.issparse(product) else product
        if self.scale is not None:
            dense = dense * self.scale
        return np.ascontiguousarray(dense, dtype=dtype)


def narrowed(parts: list[Blocks], columns: int) -> list[Blocks]:
    """Return the parts with their columns hashed, with random signs, to `columns` many.

    The same projection for the same width, always: scores of different calls compare.
    """
    wide = parts[0].columns
    warnings.warn(
        f"rows of {wide:,} columns are scored on a random projection to {columns:,} columns, "
        "since a Gram matrix of that width would not fit; the rows themselves are not changed.",
        OlssWarning,
        stacklevel=5,
    )
    rng = np.random.default_rng(wide)
    bucket = rng.permutation(wide) % columns  # as many columns in each
    sign = rng.choice([-1.0, 1.0], size=wide)
    S = sp.csr_array((sign, (np.arange(wide), bucket)), shape=(wide, columns))
    return [_Narrow(p, S) for p in parts]
