"""The Gram matrix of a stream whose rows are gone, with as many digits as scores need.

Scores need G = sum w x x' of all rows seen, but rows seen before cannot be read again. So each
step makes sure, while its rows are there, that nothing is lost:

- `GramSum` adds products up in float64. Products of float32 rows are formed in float32 if a
  measurement on these very rows finds the error harmless, else in float64. An error matrix E
  with |x'Ex| <= e x'Gx keeps that bound whatever is added later, so errors are accounted for by
  one number, the sum of what the steps measured.
- `RowSum` takes over where squares lose too many digits (one row 10^7 times the others, columns
  equal but for a trace in one row, values whose squares overflow): it holds rows B with
  B'B = G, brought up to date by a QR factorisation in float64.

Both are values: what changes them returns a new one. The checks are those of the ladder in
`olss.core.leverage`, with what was seen before in the place of its rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks
from olss.core.gram import Factor, RidgeRule, factor_gram, gram_of
from olss.core.leverage import TOLERANCE, annihilates, in_range, product_defect
from olss.core.qr import factor_rows, stacked_qr
from olss.errors import DataError, OlssWarning
from olss.util import checks

__all__ = ["GramSum", "RowSum"]

Floats = NDArray[np.float64]

_SINGLE: np.dtype[Any] = np.dtype(np.float32)
_DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# Rounding of a float64 product and sum, in parts of the columns' norms.
_ROUNDING = 16 * float(np.finfo(np.float64).eps) / 2


@dataclass(frozen=True, eq=False)
class GramSum:
    """G in float64.

    Attributes
    ----------
    matrix : (d, d) array
    single : bool
        Whether products were formed in float32 at any time: directions of less than 1e-5 of a
        column's square are then rounding, else those of less than 1e-10.
    coarse : bool
        Whether any rows were float32 (or what it holds): their rounding makes no new direction.
    defect : float
        What scores may be off by, relatively.
    """

    matrix: Floats
    single: bool = False
    coarse: bool = False
    defect: float = 0.0

    @property
    def columns(self) -> int:
        """Columns of the rows seen."""
        return len(self.matrix)

    @property
    def norms(self) -> Floats:
        """(d,) norms of the columns of all rows seen."""
        return np.sqrt(self.matrix.diagonal())

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix and of its factor."""
        return 2 * self.matrix.nbytes

    def state(self) -> tuple[dict[str, Any], Floats]:
        """Return all there is to know, as a few numbers and one array, the lower triangle."""
        numbers = {"single": self.single, "coarse": self.coarse, "defect": self.defect}
        return numbers, self.matrix[np.tril_indices(self.columns)][None]

    @classmethod
    def from_state(cls, numbers: dict[str, Any], triangle: Floats) -> GramSum:
        """Return the sum that `state` describes."""
        columns = int(np.sqrt(2 * triangle.size))
        if triangle.size != columns * (columns + 1) // 2:
            raise ValueError(f"{triangle.size} numbers are not the triangle of a matrix")
        matrix = np.zeros((columns, columns))
        matrix[np.tril_indices(columns)] = triangle.ravel()
        matrix += np.tril(matrix, -1).T
        with np.errstate(invalid="ignore"):
            norms = np.sqrt(matrix.diagonal())  # NaN, and refused, where negative
        if not (abs(matrix) <= (1 + 1e-6) * norms[:, None] * norms).all():
            raise ValueError("a matrix that is no Gram matrix")
        defect = checks.number("defect", numbers["defect"], minimum=0)
        return cls(matrix, bool(numbers["single"]), bool(numbers["coarse"]), defect)

    @cached_property
    def exact(self) -> Factor:
        """The factor of G without a ridge."""
        return factor_gram(self.matrix, 0.0, self._dependent)

    def as_rows(self) -> Floats:
        """(rank, d) rows whose Gram matrix is G, without the rounding in dependent columns."""
        W = self.exact.W[:, self.exact.kept]
        rows: Floats = W.T @ self.matrix
        return rows

    def eigenvalues(self) -> Floats:
        """(d,) of G."""
        return np.asarray(np.linalg.eigvalsh(self.matrix), dtype=np.float64)

    def factor(self, rule: RidgeRule, T: Floats | None = None) -> Factor:
        """Factor G, or T G T' for rows T z, with a ridge by this rule."""
        if T is not None:
            seen = replace(self, matrix=T @ self.matrix @ T.T)
            return seen.factor(rule).through(T, self.norms)
        ridge = rule.of_gram(self.matrix)
        return factor_gram(self.matrix, ridge, self._dependent) if ridge else self.exact

    @property
    def _dependent(self) -> float:
        return 1e-5 if self.single else 1e-10

    def plus(self, blocks: Blocks) -> GramSum | RowSum:
        """Return the sum with these rows in it."""
        # Few rows are multiplied in float64 for less than the check of float32 would cost.
        fast = blocks.dtype == _SINGLE and blocks.rows >= blocks.columns
        for dtype in (_SINGLE, _DOUBLE) if fast else (_DOUBLE,):
            product = gram_of([blocks], dtype)
            if in_range(product, [blocks], dtype):
                new = self._with(blocks, product, single=dtype == _SINGLE)
                if new is not None:
                    return new
        return RowSum.of(self).plus(blocks)

    def merged(self, other: GramSum | RowSum) -> GramSum | RowSum:
        """Return the sum of both."""
        blocks = _pretended(other)
        if isinstance(other, GramSum) and blocks is not None:
            new = self._with(blocks, other.matrix, single=other.single, merged=other)
            return RowSum.of(self).merged(other) if new is None else new
        return RowSum.of(self).merged(other)

    def _with(
        self, blocks: Blocks, product: Floats, *, single: bool, merged: GramSum | None = None
    ) -> GramSum | None:
        """Return the sum with a product in it, None if that would lose digits scores need."""
        coarse = self.coarse or blocks.dtype == _SINGLE
        sum_ = GramSum(self.matrix + product, self.single or single, coarse)
        factor = sum_.exact
        # Rounding of float32 products would later look like rows in directions never seen.
        if factor.null is not None and (
            single or not annihilates([blocks], factor, sum_.norms, before=self.matrix)
        ):
            return None
        defect = self.defect + _ROUNDING * factor.growth**2
        if merged is not None:
            defect = max(self.defect, merged.defect) + _ROUNDING * factor.growth**2
        elif single:
            defect += product_defect(blocks, factor, product)
        if not defect <= TOLERANCE:
            return None
        checked = replace(sum_, defect=defect)
        vars(checked)["exact"] = factor  # is worked out already
        return checked

    def minus(self, blocks: Blocks) -> GramSum | RowSum:
        """Return the sum without rows that are in it; see `Spectrum.minus`."""
        before = self.matrix
        norms = np.where(self.norms > 0, self.norms, 1.0)
        after = (before - gram_of([blocks], _DOUBLE)) / norms[:, None] / norms
        # What is left of a square is not known beyond the rounding of what it was.
        noise = 1e-6 if self.single else 1e-12
        gone = after.diagonal() <= noise
        after[gone], after[:, gone] = 0.0, 0.0
        s, U = np.linalg.eigh(after)
        root = U * np.sqrt(np.where(s > noise, s, 0.0)) * norms[:, None]
        root[gone] = 0.0
        left = replace(self, matrix=root @ root.T)
        W = left.exact.W
        worst = float(np.linalg.eigvalsh(W.T @ before @ W)[-1])
        rounding = _ROUNDING * float(np.linalg.norm(norms[:, None] * W)) ** 2
        defect = self.defect * max(worst, 1.0) + rounding
        if defect > 1e-3:
            warnings.warn(
                "the rows removed were nearly all there was in some direction; what is left in "
                f"it is known to about {defect:.1g} of itself only.",
                OlssWarning,
                stacklevel=5,
            )
        return replace(left, defect=min(defect, TOLERANCE))

    def scaled(self, factor: float) -> GramSum:
        """Return the sum with all weights multiplied."""
        return replace(self, matrix=self.matrix * factor)

    def mapped(self, A: Floats) -> GramSum:
        """Return the sum of rows A z, z being the rows seen."""
        return replace(self, matrix=A @ self.matrix @ A.T)


@dataclass(frozen=True, eq=False)
class RowSum:
    """Rows B, as many as the rank, with B'B = G.

    Attributes
    ----------
    basis : (rank, d) array
    coarse : bool
        As in `GramSum`.
    """

    basis: Floats
    coarse: bool = False

    @classmethod
    def of(cls, sum_: GramSum) -> RowSum:
        """Return the rows of a Gram matrix."""
        return cls(sum_.as_rows(), sum_.coarse)

    @property
    def columns(self) -> int:
        """Columns of the rows seen."""
        return int(self.basis.shape[1])

    @property
    def norms(self) -> Floats:
        """(d,) norms of the columns of all rows seen."""
        top = np.maximum(abs(self.basis).max(axis=0, initial=0.0), 1e-300)
        norms: Floats = np.linalg.norm(self.basis / top, axis=0) * top
        return norms

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of their factor."""
        return 8 * self.columns * (len(self.basis) + self.columns)

    def state(self) -> tuple[dict[str, Any], Floats]:
        """Return all there is to know, as a few numbers and one array."""
        return {"coarse": self.coarse}, self.basis

    @classmethod
    def from_state(cls, numbers: dict[str, Any], basis: Floats) -> RowSum:
        """Return the sum that `state` describes."""
        if len(basis) > basis.shape[1]:
            raise ValueError(f"{len(basis)} rows of {basis.shape[1]} columns")
        return cls(basis, bool(numbers["coarse"]))

    @property
    def matrix(self) -> Floats:
        """(d, d) G, as far as float64 holds it."""
        G: Floats = self.basis.T @ self.basis
        return G

    @cached_property
    def exact(self) -> Factor:
        """The factor of G without a ridge."""
        return factor_rows(self.basis, 0.0)

    def as_rows(self) -> Floats:
        """(rank, d) rows whose Gram matrix is G."""
        return self.basis

    def eigenvalues(self) -> Floats:
        """(d,) of G."""
        s = np.zeros(self.columns)
        values = np.linalg.svd(self.basis, compute_uv=False)
        with np.errstate(over="ignore"):
            s[: len(values)] = values**2
        if not np.isfinite(s).all():
            raise DataError("X holds values too large to square, as a ridge needs; rescale them.")
        return s

    def factor(self, rule: RidgeRule, T: Floats | None = None) -> Factor:
        """Factor G, or T G T' for rows T z, with a ridge by this rule."""
        if T is not None:
            return RowSum(self.basis @ T.T).factor(rule).through(T, self.norms)
        ridge = rule.of_spectrum(self.eigenvalues()) if rule.asks else 0.0
        return factor_rows(self.basis, ridge) if ridge else self.exact

    def plus(self, blocks: Blocks) -> RowSum:
        """Return the sum with these rows in it."""
        blocks.check_finite()
        return self._with(blocks)

    def merged(self, other: GramSum | RowSum) -> RowSum:
        """Return the sum of both."""
        blocks = _pretended(other)
        return self if blocks is None else self._with(blocks)

    def _with(self, blocks: Blocks) -> RowSum:
        before = _pretended(self)
        coarse = self.coarse or blocks.dtype == _SINGLE
        return RowSum(stacked_qr([blocks] if before is None else [before, blocks]), coarse)

    def minus(self, blocks: Blocks) -> RowSum:
        """Return the sum without rows that are in it; see `Spectrum.minus`."""
        left = GramSum(self.matrix, coarse=self.coarse).minus(blocks)
        return RowSum(left.as_rows(), self.coarse)

    def scaled(self, factor: float) -> RowSum:
        """Return the sum with all weights multiplied."""
        return replace(self, basis=self.basis * np.sqrt(factor))

    def mapped(self, A: Floats) -> RowSum:
        """Return the sum of rows A z, z being the rows seen."""
        return replace(self, basis=stacked_qr([Blocks(self.basis @ A.T)]))


def _pretended(sum_: GramSum | RowSum) -> Blocks | None:
    """Return rows that stand for those seen before; what those were rounded to goes with them."""
    rows: NDArray[Any] = sum_.as_rows()
    if not len(rows):
        return None
    blocks = Blocks(rows)
    if sum_.coarse:
        blocks.dtype = _SINGLE
    return blocks
