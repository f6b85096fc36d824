"""The Gram matrix of a stream of rows, and its factor that scores rows.

For A (n, d) with row weights w, G = sum_i w_i x_i x_i' and the leverage of a row x is
x' G^+ x, or x' (G + ridge I)^-1 x. Row leverage does not change when columns are rescaled, so
G is *equilibrated* to C = D^-1/2 G D^-1/2 with D = diag(G) before it is factored: columns that
are rarely non-zero keep their digits. Columns that depend on others are found by pivoting and
left out; the rest is factored in its own order, C = R'R, which makes the scoring matrix
W = D^-1/2 R^-1 upper triangular, and a row's score ||x W||^2 half the work of a full product.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from olss.core.blocks import Blocks, is_sparse, matmul, multiply_blocks, to_numpy
from olss.errors import DataError, InputError
from olss.util import checks, lapack, linalg
from olss.util import sparse as sp
from olss.util.threads import ordered_map

__all__ = [
    "Factor",
    "Gram",
    "RidgeRule",
    "column_limit",
    "factor_gram",
    "gram_of",
    "sum_products",
]

Floats = NDArray[np.float64]


def column_limit() -> int:
    """Return the columns of the widest Gram matrix that is formed, by the memory it may take.

    4,096 by default.
    """
    megabytes = os.environ.get("OLSS_GRAM_MB", "128")
    if not (megabytes.isascii() and megabytes.isdigit() and int(megabytes)):
        raise InputError(
            "OLSS_GRAM_MB must be the megabytes that a Gram matrix may take, a positive integer, "
            f"found {megabytes!r}."
        )
    return math.isqrt(int(megabytes) * 2**20 // 8)


class Gram:
    """Accumulate the Gram matrix of blocks of rows, in float64.

    For data that do not fit in memory: one pass adds blocks (on any number of machines, whose
    Grams are merged), a second pass scores blocks.

    Examples
    --------
    >>> import numpy as np, olss
    >>> A = np.random.default_rng(0).standard_normal((1_000, 5))
    >>> gram = olss.Gram().update(A[:400]).merge(olss.Gram().update(A[400:]))
    >>> score = gram.scorer()
    >>> bool(np.allclose(score(A[:10]), olss.leverage_scores(A)[:10]))
    True
    """

    def __init__(self) -> None:
        self.matrix: Floats = np.zeros((0, 0))
        self.rows = 0
        self.weight = 0.0

    @classmethod
    def of(cls, matrix: Floats, rows: int, weight: float | None = None) -> Gram:
        """Return the Gram of rows whose matrix sum w x x' was formed elsewhere.

        Parameters
        ----------
        matrix : (d, d) array, symmetric
        rows : int
        weight : float, optional
            The sum of the rows' weights; `rows` if not given.
        """
        gram = cls()
        gram.matrix, gram.rows = np.asarray(matrix, dtype=np.float64), rows
        gram.weight = float(rows if weight is None else weight)
        return gram

    def __repr__(self) -> str:
        return f"Gram(rows={self.rows:,}, columns={self.columns:,})"

    @property
    def columns(self) -> int:
        """Number of columns; 0 before the first rows."""
        return len(self.matrix)

    def update(self, rows: Any, weights: Any = None) -> Gram:
        """Add rows of shape (n, ...), optionally weighted, and return self."""
        blocks = Blocks(rows, weights, name="rows")
        self._match(blocks.columns)
        matrix = gram_of([blocks], np.dtype(np.float64))
        if not np.isfinite(matrix.diagonal()).all():
            blocks.check_finite()
            raise DataError("rows hold values too large to square; rescale them.")
        self.matrix = matrix + self.matrix if self.rows else matrix
        self.rows += blocks.rows
        self.weight += float(blocks.rows if blocks.weights is None else blocks.weights.sum())
        return self

    def merge(self, other: Gram) -> Gram:
        """Add everything another Gram has seen and return self."""
        if other.rows:
            self._match(other.columns)
            self.matrix = self.matrix + other.matrix if self.rows else other.matrix.copy()
            self.rows += other.rows
            self.weight += other.weight
        return self

    def scorer(
        self,
        ridge: float | str | None = None,
        *,
        size: int | None = None,
        dimension: float | None = None,
        rank: int | None = None,
    ) -> Factor:
        """Return a function from rows to their leverage x' (G + ridge I)^+ x.

        The arguments choose the ridge as in `olss.leverage_scores`.
        """
        if not self.rows:
            raise InputError("this Gram has no rows; call update first.")
        rule = RidgeRule(ridge, size, dimension, rank)
        return factor_gram(self.matrix, rule.of_gram(self.matrix), tolerance=1e-11)

    def _match(self, columns: int) -> None:
        if columns > column_limit():
            raise InputError(
                f"a Gram takes at most {column_limit():,} columns, found {columns:,}. Set "
                "OLSS_GRAM_MB to allow more, project the rows, or use FrequentDirections."
            )
        if self.rows and columns != self.columns:
            raise DataError(f"rows must have {self.columns} columns as before, found {columns}.")


def gram_of(parts: Sequence[Blocks], dtype: np.dtype[Any]) -> Floats:
    """Return the sum of w x x': products in `dtype`, added in float64 in the order of rows."""
    total = np.zeros((parts[0].columns, parts[0].columns))
    for blocks in parts:
        sum_products(blocks, dtype, total=total)
    return total


def squares_in_range(G: Floats, parts: Sequence[Blocks], dtype: np.dtype[Any]) -> bool:
    """Return whether squares neither overflowed nor underflowed; raise if data are not finite."""
    squares = G.diagonal()
    if not np.isfinite(squares).all():
        for p in parts:
            p.check_finite()
        return False
    tiny = np.flatnonzero(squares < (1e-30 if dtype == np.float32 else 1e-280))
    if not len(tiny):
        return True
    return not any(p.any_nonzero(tiny) for p in parts)


def sum_products(
    blocks: Blocks,
    dtype: np.dtype[Any],
    beside: Any = None,
    *,
    total: Floats | None = None,
    squares: bool = True,
) -> tuple[Floats, Floats]:
    """Return sum w x x' as `gram_of` does, and sum w x v' for numbers v beside the rows.

    One pass forms both: reading rows, or encoding those of a table, costs more than the second.

    Parameters
    ----------
    blocks : Blocks
    dtype : dtype
    beside : (n, k) array, or SciPy CSR array, optional
        Dense for a few numbers a row; sparse for one-hot rows of many classes.
    total : (d, d) array, optional
        Sum of other rows, to which these are added.
    squares : bool
        Whether the first sum is wanted; else it is zero.
    """
    d = blocks.columns
    total = np.zeros((d, d)) if total is None else total
    cross = np.zeros((d, 0 if beside is None else beside.shape[1]))

    def add(products: tuple[NDArray[Any] | None, NDArray[Any] | None]) -> None:
        for sum_, product in zip((total, cross), products, strict=True):
            if product is not None:
                np.add(sum_, product, out=sum_)

    own = blocks.products(beside) if squares else None
    parts, work = own or (blocks.pieces(dtype), partial(_products, blocks, dtype, beside, squares))
    # Overflow and NaN show on the diagonal, which callers check.
    with np.errstate(over="ignore", invalid="ignore"):
        ordered_map(parts, work, add, bytes_each=2 * d * d * dtype.itemsize)
    return total, cross


def _products(
    blocks: Blocks, dtype: np.dtype[Any], beside: Any, squares: bool, pieces: Iterator[slice]
) -> Iterator[tuple[NDArray[Any] | None, NDArray[Any] | None]]:
    """Yield sum w x x' and sum w x v' of each piece, as far as they are wanted.

    The first is overwritten by the next but one, as `ordered_map` allows: new memory each time
    would be mapped and cleared each time.
    """
    d = blocks.columns
    buffer, squared = np.empty((0, d), dtype=dtype), np.empty((2, d, d), dtype=dtype)
    for number, (part, block) in enumerate(blocks.read(dtype, pieces)):
        w = None if blocks.weights is None else blocks.weights[part]
        cross = None
        if isinstance(block, np.ndarray) and isinstance(beside, np.ndarray):
            V = beside[part] if w is None else beside[part] * w[:, None]
            cross = block.T @ V.astype(block.dtype, copy=False)
        elif beside is not None:
            cross = _cross(block, beside[part], w)
        if not squares:
            yield None, cross
            continue
        alike = w is not None and bool((w == w[0]).all())  # as for new rows: no need to scale them
        if not isinstance(block, np.ndarray):
            yield _square(block if w is None else _scale_rows(block, np.sqrt(w))), cross
            continue
        if w is not None and not alike:
            if len(buffer) < len(block):
                buffer = np.empty_like(block)
            roots = np.sqrt(w).astype(dtype)[:, None]
            block = np.multiply(block, roots, out=buffer[: len(block)])
        product = squared[number % 2]
        np.matmul(block.T, block, out=product)  # BLAS sees the symmetry and does half the work
        if w is not None and alike:
            product *= w[0]
        yield product, cross


def _cross(block: Any, beside: Any, w: Floats | None) -> NDArray[Any]:
    """Return sum w x v' of one block, one of them at least sparse or on another device."""
    if w is not None:
        beside = beside * w[:, None]
    if is_sparse(beside):
        rows = block if is_sparse(block) else to_numpy(block)
        product = beside.T.astype(block.dtype) @ rows
        return np.asarray(product.toarray() if is_sparse(product) else product).T
    if is_sparse(block):
        return np.asarray(block.T @ beside)
    return to_numpy(matmul(block.T, beside.astype(np.float64)))


def _scale_rows(block: Any, factors: NDArray[Any]) -> Any:
    """Multiply the rows of a sparse or on-device block by `factors`."""
    if is_sparse(block):
        return sp.diags(factors.astype(block.dtype)) @ block
    xp = array_namespace(block)
    return block * xp.asarray(factors, dtype=block.dtype, device=device_of(block))[:, None]


def _square(block: Any) -> Floats:
    product = block.T @ block
    dense = product.toarray() if is_sparse(product) else to_numpy(product)
    lower: Floats = np.tril(dense).astype(np.float64)
    return lower + np.tril(lower, -1).T


@dataclass(frozen=True)
class Factor:
    """Score rows against a factored Gram matrix: `factor(rows)` is x' (G + ridge I)^+ x for each.

    Attributes
    ----------
    W : (d, d) float64, upper triangular; zero in rows and columns of dependent columns
    kept : (d,) bool, columns that span the column space
    null : (d,) float64 or None, a random vector that A maps to zero if the rank is right
    ridge : float
    dimension : float, the rank or, with a ridge, the effective dimension
    growth : float, ||R^-1||_F, the largest factor by which rounding is amplified in a score
    """

    W: Floats
    kept: NDArray[np.bool_]
    null: Floats | None
    ridge: float
    dimension: float
    growth: float

    def __call__(self, rows: Any) -> Floats:
        """Score rows of shape (n, ...)."""
        return self.score_and_multiply(rows, np.zeros((len(self.W), 0)))[0]

    def score_and_multiply(self, rows: Any, V: Floats) -> tuple[Floats, Floats]:
        """Score rows (n, ...), and return their products with a few columns V, (k, n)."""
        blocks = Blocks(rows, name="rows")
        if blocks.columns != len(self.W):
            raise DataError(f"rows must have {len(self.W)} columns, found {blocks.columns}.")
        dtype = self.work_dtype(blocks.dtype)
        scores, products = np.empty(blocks.rows), np.empty((V.shape[1], blocks.rows))

        def use(part: slice, XW: NDArray[Any], XV: NDArray[Any]) -> None:
            scores[part], products[:, part] = np.einsum("ij,ij->i", XW, XW), XV.T

        ordered_map(blocks.pieces(dtype), multiply_blocks(blocks, dtype, self.W, V, use))
        if not np.isfinite(scores).all():
            blocks.check_finite()
        return scores, products

    @property
    def right(self) -> Floats:
        """The (d, k) matrix M with score ||x M||^2: W."""
        return self.W

    def work_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype to score rows in: their own, or float64.

        float64 is used if float32 would round by more than 1e-4 of a score, or if W is out of its
        range.
        """
        tops = abs(self.W).max(axis=1)
        fits = ((tops == 0) | ((tops > 1e-30) & (tops < 1e36))).all()
        return np.dtype(dtype if self.growth < 1e3 and fits else np.float64)

    def through(self, T: Floats, norms: Floats) -> Factor:
        """Return the factor that scores z as this one scores x = T z.

        Parameters
        ----------
        T : (k, d) array
            ||(T z)' W||^2 = ||z' M||^2 with M = T' W, and an RQ factorisation M = U Q gives
            the upper triangular U (d, d) of the same norms.
        norms : (d,) array
            Norms of the columns of all z, for the growth.
        """
        M = T.T @ self.W[:, self.kept]
        U = linalg.rq(M, mode="r")[:, -len(M) :]  # (d, r) trapezoidal if r < d
        W = np.zeros((len(M), len(M)))
        W[:, len(M) - U.shape[1] :] = U
        growth = float(np.linalg.norm(norms[:, None] * W))
        kept: NDArray[np.bool_] = np.asarray(W.any(axis=0))
        return Factor(W, kept, None, self.ridge, self.dimension, growth)


def factor_gram(G: Floats, ridge: float, tolerance: float) -> Factor:
    """Factor G + ridge I without columns whose squared relative residual is below `tolerance`.

    Parameters
    ----------
    G : (d, d) float64
    ridge : float
        With a ridge above the tolerance no column is dependent.
    tolerance : float
        A column is dependent if less than this fraction of its squared norm is outside the span of
        the others.
    """
    d = len(G)
    diagonal = G.diagonal() + ridge
    live = diagonal > 0
    s = np.divide(1, np.sqrt(diagonal), out=np.zeros(d), where=live)
    C = G * s[:, None]
    C *= s
    C.flat[:: d + 1] = 1.0  # for columns of zeros, too, which affect no other
    inverse, independent = _inverse_root(C, tolerance)
    W = s[:, None] * inverse
    kept = independent & live
    dropped = np.flatnonzero(live & ~independent)
    null = _null_vector(G, W, dropped) if len(dropped) else None
    dimension = int(kept.sum()) - (ridge * float(np.sum(W**2)) if ridge else 0.0)
    growth = np.sqrt(np.einsum("ij,ij->i", inverse, inverse) @ kept)
    return Factor(W, kept, null, ridge, dimension, float(growth))


def _inverse_root(C: Floats, tolerance: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return R^-1 for C = R'R, R upper triangular, and which columns are independent.

    Rows and columns of R^-1 that belong to dependent ones are zero.
    """
    # LAPACK is column-major: R' = L is lower triangular for it, and C' = C.
    L, failed = lapack.dpotrf(C.T, lower=1, clean=1)
    if not failed and (L.diagonal() ** 2 > tolerance).all():
        return lapack.dtrtri(L, lower=1, overwrite_c=1)[0].T, np.ones(len(C), dtype=bool)
    _, pivots, rank, _ = lapack.dpstrf(C, tol=tolerance, lower=0)
    keep = np.sort(pivots[:rank] - 1)
    L, failed = lapack.dpotrf(C[np.ix_(keep, keep)].T, lower=1, clean=1)
    if failed:  # impossible: pivoting has just factored it with pivots above the tolerance
        raise ArithmeticError("Cholesky factorization failed after pivoting")
    inverse, independent = np.zeros_like(C), np.zeros(len(C), dtype=bool)
    inverse[np.ix_(keep, keep)] = lapack.dtrtri(L, lower=1, overwrite_c=1)[0].T
    independent[keep] = True
    return inverse, independent


def _null_vector(G: Floats, W: Floats, dropped: NDArray[np.intp]) -> Floats:
    """Return a random combination of the vectors that express dropped columns by kept ones."""
    mix = np.random.default_rng(0).standard_normal(len(dropped)) / np.sqrt(G[dropped, dropped])
    v = -(W @ (W.T @ (G[:, dropped] @ mix)))
    v[dropped] = mix
    return v


@dataclass(frozen=True)
class RidgeRule:
    """How the ridge is set: a number, by effective dimension, or by rank.

    `value="auto"` makes the effective dimension, sum s/(s + ridge), equal to `dimension`, or to
    size/20; the ridge is 0 if the rank is below that. `rank=k` is the choice
    ||A - A_k||_F^2 / k of Cohen, Musco & Musco (2017), whose scores sum to at most 2k.
    """

    value: float | str | None = None
    size: int | None = None
    dimension: float | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, str) and self.value != "auto":
            raise InputError(f"ridge must be a number or 'auto', found {self.value!r}.")
        if not isinstance(self.value, str) and self.value is not None:
            checks.number("ridge", self.value, minimum=0)
        if self.size is not None:
            checks.integer("size", self.size)
        if self.dimension is not None:
            checks.number("dimension", self.dimension, minimum=0)
        if self.rank is not None:
            checks.integer("rank", self.rank)
            if self.value is not None:
                raise InputError("give either ridge or rank, not both: rank chooses the ridge.")
        if self.value == "auto" and self.size is None and self.dimension is None:
            raise InputError(
                "ridge='auto' needs size, the number of rows to be kept, or dimension, "
                "the effective dimension wanted."
            )

    @property
    def asks(self) -> bool:
        """Whether there may be a ridge."""
        return self.rank is not None or bool(self.value)

    def of_gram(self, G: Floats) -> float:
        """Return the ridge as a number, for this Gram matrix."""
        if self.rank is None and self.value != "auto":
            return float(self.value or 0)
        return self.of_spectrum(np.asarray(np.linalg.eigvalsh(G), dtype=np.float64))

    def of_spectrum(self, eigenvalues: Floats) -> float:
        """Return the ridge as a number, for a Gram matrix with these eigenvalues."""
        if self.rank is None and self.value != "auto":
            return float(self.value or 0)
        s = np.clip(np.sort(eigenvalues)[::-1], 0, None)
        if self.rank is not None:
            return float(s[self.rank :].sum() / min(self.rank, len(s)))
        if self.dimension is not None:
            return _ridge_of_dimension(s, self.dimension)
        assert self.size is not None  # __post_init__
        return _ridge_of_dimension(s, self.size / 20)


def _ridge_of_dimension(s: Floats, target: float) -> float:
    """Solve sum s/(s + ridge) = target for the ridge, by bisection of its logarithm."""
    s = s[s > s[0] * 1e-12]
    if len(s) <= target:
        return 0.0
    low, high = np.log(s[-1] * 1e-12), np.log(s.sum() / min(max(target, 1e-9), 1) * 2)
    for _ in range(60):
        middle = (low + high) / 2
        if (s / (s + np.exp(middle))).sum() > target:
            low = middle
        else:
            high = middle
    return float(np.exp(high))
