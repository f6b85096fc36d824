"""The Gram matrix of a stream whose rows are gone, accurate enough for leverage scores.

Scores need G = sum w x x' of all rows seen, but earlier rows cannot be read again. So each step
makes sure, while it has its rows, that no digits are lost:

- `DenseGram` adds products in float64. Products of float32 rows are formed in float32 if a
  measurement on these rows finds the error harmless, else in float64. An error matrix E with
  |x'Ex| <= e x'Gx keeps that bound whatever is added later, so one number accounts for all errors,
  the sum of what the steps measured.
- `FactoredGram` is used if squares lose too many digits (one row 10^7 times the others, columns
  that differ by a trace in one row, values whose squares overflow): it holds rows B with B'B = G,
  which a QR factorization in float64 updates.

Both are immutable: methods return new objects. The checks are those of `olss.core.leverage`, with
rows B instead of earlier rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, to_numpy
from olss.core.gram import (
    Factor,
    RidgeRule,
    factor_gram,
    squares_in_range,
    sum_products,
)
from olss.core.leverage import TOLERANCE, are_dependent, product_defect
from olss.core.qr import factor_rows, independent_rows, stacked_qr
from olss.errors import DataError, OlssWarning
from olss.util.threads import cached_property

Floats = NDArray[np.float64]

_SINGLE: np.dtype[Any] = np.dtype(np.float32)
_DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# Rounding of a float64 product and sum, relative to the norms of columns.
_ROUNDING = 16 * float(np.finfo(np.float64).eps) / 2
_SINGLE_ROUNDING = 16 * float(np.finfo(np.float32).eps) / 2


@dataclass(frozen=True, eq=False)
class DenseGram:
    """The Gram matrix G in float64.

    Attributes
    ----------
    matrix : (d, d) array
    single : bool
        Whether any products were formed in float32: directions of less than 1e-5 of a column's
        square are then rounding, else those of less than 1e-10.
    coarse : bool
        Whether any rows were float32 (or smaller): their rounding adds no direction.
    defect : float
        The largest relative error of scores.
    """

    matrix: Floats = field(metadata={"symmetric": True})
    single: bool = False
    coarse: bool = False
    defect: float = 0.0

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.matrix)

    @property
    def norms(self) -> Floats:
        """The norms (d,) of the columns of all rows seen."""
        return np.sqrt(self.matrix.diagonal())

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix and its factor."""
        return 2 * self.matrix.nbytes

    @cached_property
    def exact(self) -> Factor:
        """The factor of G without a ridge."""
        return factor_gram(self.matrix, 0.0, self._dependent)

    @property
    def lost(self) -> int:
        """Always 0, unlike for `FactoredGram`."""
        return 0

    @property
    def noise(self) -> float:
        """Rounding in `as_rows`, relative to the norms of its columns.

        G is known up to rounding relative to the squares of those norms, and R = R'^-1 G.
        """
        return (_SINGLE_ROUNDING if self.single else _ROUNDING) * max(self.exact.growth, 1.0)

    def as_rows(self) -> Floats:
        """Return (rank, d) rows with Gram matrix G, without the rounding in dependent columns."""
        W = self.exact.W[:, self.exact.kept]
        rows: Floats = W.T @ self.matrix
        return rows

    def eigenvalues(self) -> Floats:
        """Return the eigenvalues (d,) of G."""
        return np.asarray(np.linalg.eigvalsh(self.matrix), dtype=np.float64)

    def factor(self, rule: RidgeRule, T: Floats | None = None) -> Factor:
        """Factor G, or T G T' for rows T z, with a ridge by this rule."""
        if T is not None:
            return self.transform(T).factor(rule).through(T, self.norms)
        ridge = rule.of_gram(self.matrix)
        return factor_gram(self.matrix, ridge, self._dependent) if ridge else self.exact

    @property
    def _dependent(self) -> float:
        return 1e-5 if self.single else 1e-10

    def update(
        self, blocks: Blocks, beside: Any, *, single: bool = True
    ) -> tuple[DenseGram | FactoredGram, Floats]:
        """Return the sum with these rows added, and sum w x v' for numbers v beside them.

        Parameters
        ----------
        blocks : Blocks
        beside : (n, k) array, dense or sparse
        single : bool
            Whether products may be formed in float32, where that is harmless for scores.
        """
        # For few rows, float64 costs less than the check of float32 would.
        fast = single and blocks.single and blocks.rows >= blocks.columns
        for dtype in (_SINGLE, _DOUBLE) if fast else (_DOUBLE,):
            product, cross = sum_products(blocks, dtype, beside)
            if squares_in_range(product, [blocks], dtype):
                new = self._with(blocks, product, single=dtype == _SINGLE)
                if new is not None:
                    return new, cross
        return FactoredGram.of(self).update(blocks, beside)

    def merge(self, other: DenseGram | FactoredGram) -> DenseGram | FactoredGram:
        """Return the sum of both."""
        blocks = _as_blocks(other)
        if blocks is None:
            return self
        if isinstance(other, DenseGram):
            new = self._with(blocks, other.matrix, single=other.single, merged=other)
            return FactoredGram.of(self).merge(other) if new is None else new
        return FactoredGram.of(self).merge(other)

    def _with(
        self, blocks: Blocks, product: Floats, *, single: bool, merged: DenseGram | None = None
    ) -> DenseGram | None:
        """Return the sum with a product added, or None if that loses digits that scores need."""
        coarse = self.coarse or blocks.dtype == _SINGLE
        sum_ = DenseGram(self.matrix + product, self.single or single, coarse)
        factor = sum_.exact
        # Rounding of float32 products would later look like rows in new directions.
        dropped = int((sum_.norms > 0).sum() - factor.kept.sum())
        if dropped > blocks.dependent and (
            single or not are_dependent([blocks], factor, sum_.norms, self.matrix, self._vanishes)
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
        vars(checked)["exact"] = factor  # already computed
        return checked

    def subtract(self, blocks: Blocks) -> DenseGram | FactoredGram:
        """Return the sum without some of its rows; see `_downdate`."""
        left = _downdate(self, blocks, lambda size: _ROUNDING * size**2)
        if left.defect > TOLERANCE or left.lost:
            return left
        return replace(self, matrix=left.matrix, defect=left.defect)

    def _vanishes(self, v: Floats) -> bool:
        """Return whether x v is zero, up to rounding, in all rows x of the sum."""
        found = abs(self.exact.W.T @ (self.matrix @ v)).max(initial=0.0)
        noise = max(self.noise, _SINGLE_ROUNDING) if self.coarse else self.noise
        return bool(found <= noise * float(self.norms @ abs(v)))

    def scale(self, factor: float) -> DenseGram:
        """Return the sum with all weights multiplied by a factor."""
        return replace(self, matrix=self.matrix * factor)

    def transform(self, A: Floats) -> DenseGram | FactoredGram:
        """Return the sum of rows A z, with z the rows seen.

        If A adds large numbers to all rows, squares would lose the rest, so rows take over.
        """
        left = replace(self, matrix=A @ self.matrix @ A.T)
        most = _largest_ratio(abs(A) @ self.norms, left.norms)
        defect = self.defect + _ROUNDING * (left.exact.growth * most) ** 2
        if left.exact.null is None and defect <= TOLERANCE:
            return left
        return FactoredGram.of(self).transform(A)


@dataclass(frozen=True, eq=False)
class FactoredGram:
    """Rows B, as many as the rank, with B'B = G.

    Attributes
    ----------
    basis : (rank, d) array
    coarse : bool
        As in `DenseGram`.
    noise : float
        Rounding in the rows, relative to the norms of their columns; smaller directions are none.
    defect : float
        The largest relative error of squares after rows were removed.
    lost : int
        Directions of which it is unknown, after rows were removed, whether anything is left.
    """

    basis: Floats
    coarse: bool = False
    noise: float = _ROUNDING
    defect: float = 0.0
    lost: int = 0

    @classmethod
    def of(cls, sum_: DenseGram) -> FactoredGram:
        """Return the same sum as rows."""
        return cls(sum_.as_rows(), sum_.coarse, sum_.noise, sum_.defect)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.basis.shape[1])

    @property
    def norms(self) -> Floats:
        """The norms (d,) of the columns of all rows seen."""
        return _norms(self.basis)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and their factor."""
        return 8 * self.columns * (len(self.basis) + self.columns)

    @property
    def matrix(self) -> Floats:
        """G (d, d), as accurately as float64 holds it."""
        G: Floats = self.basis.T @ self.basis
        return G

    @cached_property
    def exact(self) -> Factor:
        """The factor of G without a ridge."""
        return factor_rows(self.basis, 0.0)

    def as_rows(self) -> Floats:
        """Return (rank, d) rows with Gram matrix G."""
        return self.basis

    def eigenvalues(self) -> Floats:
        """Return the eigenvalues (d,) of G."""
        s = np.zeros(self.columns)
        values = np.linalg.svd(self.basis, compute_uv=False)
        with np.errstate(over="ignore"):
            s[: len(values)] = values**2
        if not np.isfinite(s).all():
            raise DataError(
                "X holds values too large to square, as a ridge requires; rescale them."
            )
        return s

    def factor(self, rule: RidgeRule, T: Floats | None = None) -> Factor:
        """Factor G, or T G T' for rows T z, with a ridge by this rule."""
        if T is not None:
            return self.transform(T).factor(rule).through(T, self.norms)
        ridge = rule.of_spectrum(self.eigenvalues()) if rule.asks else 0.0
        return factor_rows(self.basis, ridge) if ridge else self.exact

    def update(
        self, blocks: Blocks, beside: Any, *, single: bool = True
    ) -> tuple[FactoredGram, Floats]:
        """Return the sum with these rows added, and sum w x v' for numbers v beside them."""
        blocks.check_finite()
        _, cross = sum_products(blocks, _DOUBLE, beside, squares=False)
        return self._with(blocks), cross

    def merge(self, other: DenseGram | FactoredGram) -> FactoredGram:
        """Return the sum of both."""
        blocks = _as_blocks(other)
        if blocks is None:
            return self
        left = replace(self, defect=max(self.defect, other.defect), lost=self.lost + other.lost)
        return left._with(blocks)

    def _with(self, blocks: Blocks) -> FactoredGram:
        before = _as_blocks(self)
        coarse = self.coarse or blocks.dtype == _SINGLE
        parts = [blocks] if before is None else [before, blocks]
        after = replace(self, basis=stacked_qr(parts), coarse=coarse)
        # Columns grow, so that earlier rounding becomes relatively smaller.
        old = [
            p.noise * _largest_ratio(_norms(p.source), after.norms)
            for p in parts
            if p.noise is not None
        ]
        # Roundings of different updates are independent.
        return replace(after, noise=float(np.hypot(max(old, default=0.0), _ROUNDING)))

    def subtract(self, blocks: Blocks) -> FactoredGram:
        """Return the sum without some of its rows; see `_downdate`."""
        return _downdate(self, blocks, lambda size: 2 * self.noise * size)

    def scale(self, factor: float) -> FactoredGram:
        """Return the sum with all weights multiplied by a factor."""
        return replace(self, basis=self.basis * np.sqrt(factor))

    def transform(self, A: Floats) -> FactoredGram:
        """Return the sum of rows A z, with z the rows seen."""
        rows = self.basis @ A.T
        if not len(rows):
            return replace(self, basis=rows)
        before = abs(A) @ self.norms
        after = _norms(rows)
        rows[:, after <= self.noise * before] = 0.0  # rounding alone
        noise = self.noise * _largest_ratio(before, _norms(rows))
        return replace(self, basis=independent_rows(rows, noise), noise=noise)


def _downdate(
    sum_: DenseGram | FactoredGram, blocks: Blocks, rounding: Callable[[Floats], Floats]
) -> FactoredGram:
    """Return rows B1 with B1'B1 = B'B - X'X, for rows X that are in the sum.

    With W'GW = I, R = W^-1 and Y = XW that is R'(I - Y'Y)R: a difference of numbers near 1, in
    which no direction hides another, however faint. What is left of a direction p is its
    eigenvalue, known up to the `rounding` of columns weighted with their parts in Wp. If less than
    that is left, it is unknown whether the direction is gone.
    """
    W = sum_.exact.W[:, sum_.exact.kept]
    R = sum_.as_rows()
    if isinstance(sum_, FactoredGram):
        R = (R @ W).T @ R  # the same in the order of W
    share = np.eye(len(R))
    for part, block in blocks.read(_DOUBLE):
        X = block.toarray() if blocks.sparse else to_numpy(block)
        Y = X @ W
        Y += (X - Y @ R) @ W  # else a huge row would leave more rounding than is left
        share -= (Y if blocks.weights is None else Y * blocks.weights[part, None]).T @ Y
    left, P = np.linalg.eigh(share)
    noise = sum_.defect + rounding(sum_.norms @ abs(W @ P))
    known = left > noise
    basis = np.sqrt(left[known])[:, None] * (P[:, known].T @ R)
    basis[:, _norms(basis) <= sum_.noise * sum_.norms] = 0.0  # rounding alone
    defect = float(np.max(noise[known] / left[known], initial=0.0))
    if defect > 1e-3:
        warnings.warn(
            "little is left of a direction after rows were removed, or columns are nearly equal: "
            f"the rest is known to about {defect:.1g} of itself only.",
            OlssWarning,
            stacklevel=5,
        )
    lost = sum_.lost + int((~known).sum())
    return FactoredGram(basis, sum_.coarse, sum_.noise, defect, lost)


def _norms(rows: Floats) -> Floats:
    """Return the norms of columns whose squares may overflow."""
    top = np.maximum(abs(rows).max(axis=0, initial=0.0), 1e-300)
    norms: Floats = np.linalg.norm(rows / top, axis=0) * top
    return norms


def _largest_ratio(above: Floats, below: Floats) -> float:
    """Return the largest ratio of two arrays of norms, where the second is positive."""
    return float(np.max(np.divide(above, below, out=np.ones_like(below), where=below > 0)))


def _as_blocks(sum_: DenseGram | FactoredGram) -> Blocks | None:
    """Return rows that stand for all rows seen, with their rounding."""
    rows: NDArray[Any] = sum_.as_rows()
    if not len(rows):
        return None
    blocks = Blocks.from_gram_rows(rows, sum_.noise)
    if sum_.coarse:
        blocks.dtype = _SINGLE
    return blocks
