"""Statistical leverage scores: how much the span of a table depends on each of its rows.

The leverage of row x of A is x' (A'A)^+ x = ||U_i||^2 with U the left singular vectors of A:
a number in [0, 1]; all of them sum to rank(A). A row of score 1 is the only one in its
direction. Algorithm 1 of the OLSS paper samples rows in proportion to it.

No SVD is computed. The exact method forms the Gram matrix block by block, scores rows with a
triangular factor of it, checks its own result on every call and uses more digits if the check
fails (`_exact` below, then `olss.core.qr`). The sketched method replaces the Gram matrix by that of
a sparse sketch and the norm by a random projection (Drineas et al. 2012).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import (
    Blocks,
    is_sparse,
    matmul,
    project_columns,
    squared_norms,
    sum_weighted_squares,
    to_numpy,
)
from olss.core.gram import Factor, RidgeRule, column_limit, factor_gram, gram_of, squares_in_range
from olss.core.qr import equilibrate, is_null_vector, preconditioned_scores, sparse_sketch
from olss.errors import DataError, InputError, OlssWarning
from olss.util import checks, lapack
from olss.util.threads import call_with_one_blas_thread, ordered_map

__all__ = [
    "TOLERANCE",
    "Projected",
    "are_dependent",
    "leverage_scores",
    "pool_scores",
    "product_defect",
    "warn_uninformative",
]

Floats = NDArray[np.float64]
Method = Literal["exact", "sketched", "bless"]

# Scores are correct to 1e-3 relative; a larger defect found by the check calls for more digits.
TOLERANCE = 3e-4
SKETCH_TOLERANCE = 0.05  # scores of a sketch are correct to 12%
PROBES = 8
JL_COLUMNS = 64


def leverage_scores(
    A: Any,
    *,
    method: Method = "exact",
    ridge: float | str | None = None,
    weights: Any = None,
    size: int | None = None,
    dimension: float | None = None,
    rank: int | None = None,
    kernel: str = "linear",
    gamma: float | None = None,
    seed: int | np.random.Generator | None = None,
) -> Any:
    """Return the leverage score of each row of `A`.

    Parameters
    ----------
    A : array-like of shape (n, ...), or SciPy sparse matrix
        NumPy array, memory map, torch tensor on any device, sparse rows, or array-like; any real
        dtype. Rows of more than one dimension are flattened.
    method : {"exact", "sketched", "bless"}
        ``"exact"`` equals an SVD, for any rank, within 1e-3 relative for float32 input.
        ``"sketched"`` is about four times faster; half of its scores are within 12%, 99 of 100
        within 50%, and their sum is correct. ``"bless"`` approximates
        kernel ridge leverage and needs `ridge`; `olss.core.kernels.bless` also returns its
        dictionary.
    ridge : float or "auto", optional
        Score x' (A'A + ridge I)^-1 x. A ridge keeps scores informative if there are few rows and
        many columns. ``"auto"`` chooses it so that the scores sum to `dimension`, or to size/20.
    weights : array-like of shape (n,), optional
        Row weights w: the scores of diag(sqrt(w)) A, that is w x' (A' diag(w) A)^+ x.
    size : int, optional
        Number of rows to be kept; used by ``ridge="auto"``.
    dimension : float, optional
        The effective dimension; used by ``ridge="auto"``.
    rank : int, optional
        Use the ridge ||A - A_k||_F^2 / k of Cohen, Musco & Musco (2017) with k = rank.
    kernel, gamma
        For ``method="bless"``: "linear" or "rbf", and the RBF's gamma.
    seed : int or numpy.random.Generator, optional
        For the random methods. The exact method is deterministic.

    Returns
    -------
    array of shape (n,)
        Of the library, float family and device of `A` (float32 for float32, float16 and small
        integers).

    Examples
    --------
    >>> import numpy as np, olss
    >>> A = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 5.0]])
    >>> olss.leverage_scores(A)
    array([0.5, 0.5, 1. ])
    """
    blocks = Blocks(A, weights)
    if method == "bless":
        for name, value in (("size", size), ("dimension", dimension), ("rank", rank)):
            if value is not None:
                raise InputError(f"{name} is not for method='bless', found {value!r}.")
        return blocks.like_source(_bless(blocks, ridge, kernel, gamma, seed))
    if kernel != "linear" or gamma is not None:
        raise InputError(f"kernel and gamma are for method='bless', found method={method!r}.")
    rule = RidgeRule(ridge, size, dimension, rank)
    (scores,) = _scores([blocks], method, rule, seed)
    if blocks.weights is not None:
        scores = scores * blocks.weights
    return blocks.like_source(scores)


def pool_scores(
    parts: Sequence[Any],
    *,
    method: str = "exact",
    ridge: float | str | None = None,
    weights: Sequence[Any] | None = None,
    size: int | None = None,
    dimension: float | None = None,
    rank: int | None = None,
    seed: int | np.random.Generator | None = None,
) -> list[Floats]:
    """Return the leverage of the rows of several tables as one, without stacking them.

    The scores are x' (G + ridge I)^+ x with G = sum w x x' over all parts: not multiplied by
    the row's own weight, which must be above zero. The other arguments are those of
    `leverage_scores`.

    Returns
    -------
    list of NumPy float64 arrays, one per part
    """
    rows = [None] * len(parts) if weights is None else weights
    blocks = [Blocks(part, w, name="X") for part, w in zip(parts, rows, strict=True)]
    if any(b.weights is not None and not b.weights.all() for b in blocks):
        raise InputError("weights must be above 0, found 0; leave such rows out.")
    columns = {b.columns for b in blocks}
    if len(columns) > 1:
        raise DataError(f"all parts must have the same number of columns, found {columns}.")
    return _scores(blocks, method, RidgeRule(ridge, size, dimension, rank), seed)


def _scores(
    parts: list[Blocks], method: str, rule: RidgeRule, seed: int | np.random.Generator | None
) -> list[Floats]:
    if method not in ("exact", "sketched"):
        raise InputError(f"method must be 'exact', 'sketched' or 'bless', found {method!r}.")
    rows, columns = sum(p.rows for p in parts), parts[0].columns
    if rows <= columns:
        warn_uninformative(rows, columns, rule)

    def scores() -> list[Floats]:
        if rows <= min(columns, column_limit()):
            return _split(_dual(parts, rule), parts)
        narrow = project_columns(parts, column_limit()) if columns > column_limit() else parts
        if method == "sketched" and rows > 8 * narrow[0].columns:
            return _score_sketched(narrow, rule, checks.generator(seed))
        return _exact(narrow, rule)

    return call_with_one_blas_thread(scores, columns=columns)


def warn_uninformative(rows: int, columns: int, rule: RidgeRule) -> None:
    """Warn that all scores are the same, unless there is a ridge."""
    if not rule.asks:
        warnings.warn(
            f"{rows} rows of {columns} columns: the score of every independent row is 1, which "
            "carries no information. Use a ridge (ridge='auto'), fewer features or more rows.",
            OlssWarning,
            stacklevel=4,
        )


def _split(scores: Floats, parts: list[Blocks]) -> list[Floats]:
    return np.split(scores, np.cumsum([p.rows for p in parts])[:-1])


# Two levels of precision: the dtype of products, and the fraction of a column's squared norm
# outside the span of the others below which it counts as dependent.
_SINGLE = (np.dtype(np.float32), 1e-5)
_DOUBLE = (np.dtype(np.float64), 1e-10)


def _exact(parts: list[Blocks], rule: RidgeRule) -> list[Floats]:
    """Increase the precision until a result passes its own check."""
    single = all(p.dtype == np.float32 for p in parts)
    for dtype, dependent in (_SINGLE, _DOUBLE) if single else (_DOUBLE,):
        G = gram_of(parts, dtype)
        if not squares_in_range(G, parts, dtype):
            rule = _rescale(parts, rule)
            G = gram_of(parts, dtype)
        factor = factor_gram(G, rule.of_gram(G), dependent)
        if factor.null is not None and not are_dependent(parts, factor, np.sqrt(G.diagonal())):
            continue
        scores, defect = _score(parts, factor)
        if defect <= TOLERANCE:
            return scores
    return preconditioned_scores(parts, factor.ridge)


def _score(parts: list[Blocks], factor: Factor) -> tuple[list[Floats], float]:
    """Return the scores, and how far W'(G + ridge I)W is from the identity E.

    The relative error of a score is at most ||W'(G + ridge I)W - E||_2. For random normal z, the
    variance of z'(...)z is twice the squared Frobenius norm, an upper bound of that; the pass that
    scores the rows yields z'W'GWz = ||A W z||^2 for a few z at no cost.
    """
    z, V = _probes(factor)
    missing = (z**2).sum(axis=0) - factor.ridge * (V**2).sum(axis=0)
    all_scores, total = [], 0.0
    for blocks in parts:
        scores, found = squared_norms(blocks, factor.work_dtype(blocks.dtype), factor.W, V)
        missing -= found
        w = 1.0 if blocks.weights is None else blocks.weights
        total += float((w * scores).sum())
        with np.errstate(divide="ignore"):
            all_scores.append(np.minimum(scores, 1 / np.asarray(w)))
    off_sum = abs(total - factor.dimension) / max(factor.dimension, 1e-300)
    return all_scores, max(float(np.std(missing, ddof=1)) / np.sqrt(2), off_sum)


def _probes(factor: Factor) -> tuple[Floats, Floats]:
    """Return a few random normal columns z, and W z."""
    z = np.random.default_rng(0).standard_normal((len(factor.W), PROBES)) * factor.kept[:, None]
    return z, factor.W @ z


def product_defect(blocks: Blocks, factor: Factor, product: Floats) -> float:
    """Estimate ||W'(P - A'A)W||_F for the `product` P that should be A'A of the rows.

    See `_score`. When the rows are added to a Gram matrix, this bounds the relative error of scores
    against the sum, now and after any later additions.
    """
    _, V = _probes(factor)
    missing = np.einsum("ij,ij->j", V, product @ V)
    dtype = factor.work_dtype(blocks.dtype)
    right = V.astype(dtype)

    def work(pieces: Iterator[slice]) -> Iterator[Floats]:
        for part, block in blocks.read(dtype, pieces):
            yield sum_weighted_squares(to_numpy(matmul(block, right)), blocks, part)

    def subtract(found: Floats) -> None:
        np.subtract(missing, found, out=missing)

    ordered_map(blocks.pieces(dtype), work, subtract)
    return float(np.sqrt(np.mean(missing**2) / 2))


def are_dependent(
    parts: Sequence[Blocks],
    factor: Factor,
    norms: Floats,
    before: Floats | None = None,
    vanished: Callable[[Floats], bool] | None = None,
) -> bool:
    """Return whether the columns left out depend on the others in every single row.

    The null vector v is refined, v <- v - W W' A'(A v), until x v is zero in each row x. A single
    row in which it is not makes a column independent, and would get a wrong score. `before` is the
    Gram matrix of rows that are gone, and `vanished` tells whether x v is zero in them, as far as
    is known.
    """
    assert factor.null is not None
    v = factor.null
    for _ in range(3):
        if (vanished is None or vanished(v)) and is_null_vector(parts, v, norms):
            return True
        gradient = np.zeros(len(v)) if before is None else before @ v
        for blocks in parts:
            for part, block in blocks.read(np.dtype(np.float64)):
                residual = to_numpy(matmul(block, v))
                if blocks.weights is not None:
                    residual = residual * blocks.weights[part]
                gradient += to_numpy(matmul(block.T, residual))
        v = v - factor.W @ (factor.W.T @ gradient)
    return (vanished is None or vanished(v)) and is_null_vector(parts, v, norms)


def _rescale(parts: list[Blocks], rule: RidgeRule) -> RidgeRule:
    """Scale values to about 1 by powers of two: by column, or all alike if there is a ridge."""
    scale = equilibrate(parts, alike=rule.asks)
    if rule.value and not isinstance(rule.value, str):
        with np.errstate(over="ignore"):  # beside it scores vanish
            value = float(np.minimum(rule.value * scale[0] * scale[0], 1e300))
        return replace(rule, value=value)
    return rule


def _dual(parts: list[Blocks], rule: RidgeRule) -> Floats:
    """Return scores from the (n, n) matrix K = AA', for fewer rows than columns.

    With a ridge they are the diagonal of K (K + ridge I)^-1, without one that of the projection on
    the range of K: ones, if the rows are independent.
    """
    for p in parts:
        p.check_finite()
    roots = np.concatenate(
        [np.ones(p.rows) if p.weights is None else np.sqrt(p.weights) for p in parts]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        K = _row_products(parts)
    if not (np.isfinite(K).all() and (K.diagonal() > 1e-280).all()):
        rule = _rescale(parts, rule)
        K = _row_products(parts)
    K *= roots[:, None] * roots
    if rule.asks:
        s, U = np.linalg.eigh(K)
        s = np.clip(s, 0, None)
        ridge = rule.of_spectrum(s)
        share = np.divide(s, s + ridge, out=np.zeros_like(s), where=s > s[-1] * 1e-12)
        scores = U**2 @ share
    else:
        scores = _projection_diagonal(K, min(float(np.finfo(p.dtype).eps) for p in parts))
    unweighted: Floats = np.divide(scores, roots**2, out=np.zeros_like(scores), where=roots > 0)
    return unweighted


def _row_products(parts: list[Blocks]) -> Floats:
    """Return AA' in float64, reading two blocks of rows at a time."""
    wide = np.dtype(np.float64)
    total = sum(p.rows for p in parts)
    K = np.empty((total, total))
    starts = np.cumsum([0] + [p.rows for p in parts])
    for p, a in zip(parts, starts, strict=False):
        for i, x in p.read(wide):
            for q, b in zip(parts, starts, strict=False):
                for j, y in q.read(wide):
                    product = x @ y.T
                    dense = product.toarray() if is_sparse(product) else to_numpy(product)
                    K[a + i.start : a + i.stop, b + j.start : b + j.stop] = dense
    return K


def _projection_diagonal(K: Floats, eps: float) -> Floats:
    """Return the diagonal of the projection on the range of K, a Gram matrix of rows."""
    live = np.flatnonzero(K.diagonal() > 0)
    norms = np.sqrt(K[live, live])
    C = K[np.ix_(live, live)] / norms[:, None] / norms
    tolerance = max((16 * eps) ** 2, len(K) * 1e-15)
    factor, pivots, rank, _ = lapack.dpstrf(C, tol=tolerance, lower=0)
    scores = np.zeros(len(K))
    if rank == len(live):
        scores[live] = 1.0
        return scores
    basis = np.empty((len(live), rank))
    basis[pivots - 1] = np.triu(factor)[:rank].T
    Q, _ = np.linalg.qr(basis * norms[:, None])
    scores[live] = np.minimum((Q**2).sum(axis=1), 1.0)
    return scores


def _score_sketched(parts: list[Blocks], rule: RidgeRule, rng: np.random.Generator) -> list[Floats]:
    """Score with the Gram matrix of a sparse sketch, and norms by a random projection.

    Drineas, Magdon-Ismail, Mahoney & Woodruff (2012), with a sparse sketch of 4 d rows (Nelson &
    Nguyen 2013) for the first step. Scores are rescaled to the correct sum.
    """
    S = Blocks(sparse_sketch(parts, 4 * parts[0].columns, rng, parts[0].dtype))
    factor = _factor_of_sketch(S, rule)
    if factor is None:
        for p in parts:
            p.check_finite()
        return _exact(parts, rule)
    projected = Projected.of(factor, rng)
    all_scores, total = [], 0.0
    for blocks in parts:
        scores, _ = projected.of_blocks(blocks)
        total += float(scores.sum() if blocks.weights is None else blocks.weights @ scores)
        all_scores.append(scores)
    right = factor.dimension / total if total else 1.0
    tops = [1.0 if p.weights is None else 1 / np.maximum(p.weights, 1e-300) for p in parts]
    return [np.minimum(s * right, top) for s, top in zip(all_scores, tops, strict=True)]


def _factor_of_sketch(S: Blocks, rule: RidgeRule) -> Factor | None:
    """Factor S'S, with products in float32 if a check finds that harmless.

    Return None if squares overflow or underflow even in float64, or are NaN.
    """

    def fits(G: Floats, dtype: np.dtype[Any]) -> bool:
        return bool(np.isfinite(G.diagonal()).all()) and squares_in_range(G, [S], dtype)

    if S.dtype == np.float32:
        G = gram_of([S], S.dtype)
        if fits(G, S.dtype):
            factor = factor_gram(G, rule.of_gram(G), _SINGLE[1])
            if factor.null is None and product_defect(S, factor, G) <= SKETCH_TOLERANCE:
                return factor
    G = gram_of([S], _DOUBLE[0])
    return factor_gram(G, rule.of_gram(G), _DOUBLE[1]) if fits(G, _DOUBLE[0]) else None


@dataclass(frozen=True)
class Projected:
    """Score rows by norms of a random projection: ||x V||^2 has mean ||x W||^2.

    Attributes
    ----------
    V : (d, k) array, W Z / sqrt(k) with Z random normal
    factor : Factor
        That of W.
    """

    V: Floats
    factor: Factor

    @classmethod
    def of(cls, factor: Factor, rng: np.random.Generator) -> Projected:
        """Return a random projection of a factor."""
        Z = rng.standard_normal((len(factor.W), JL_COLUMNS)) / np.sqrt(JL_COLUMNS)
        return cls(factor.W @ Z, factor)

    @property
    def dimension(self) -> float:
        """The sum of the scores of all rows."""
        return self.factor.dimension

    @property
    def right(self) -> Floats:
        """The (d, k) matrix M with score ||x M||^2: V."""
        return self.V

    def work_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype to score rows in."""
        return self.factor.work_dtype(dtype)

    def __call__(self, rows: Any) -> Floats:
        """Score rows of shape (n, ...)."""
        return self.of_blocks(Blocks(rows, name="rows"))[0]

    def score_and_multiply(self, rows: Any, V: Floats) -> tuple[Floats, Floats]:
        """Score rows (n, ...), and return their products with a few columns V, (k, n)."""
        return self.of_blocks(Blocks(rows, name="rows"), V)

    def of_blocks(self, blocks: Blocks, V: Floats | None = None) -> tuple[Floats, Floats]:
        """Score the rows of blocks, and return their products with a few columns V, (k, n)."""
        k, scores = self.V.shape[1], np.empty(blocks.rows)
        right = self.V if V is None else np.hstack([self.V, V])
        products = np.empty((right.shape[1] - k, blocks.rows))
        dtype = self.work_dtype(blocks.dtype)
        right = right.astype(dtype)
        left = np.ascontiguousarray(right.T)

        def work(pieces: Iterator[slice]) -> Iterator[None]:
            room = np.empty((len(left), 0), dtype=dtype)  # mapped once, not for every piece
            for part, block in blocks.read(dtype, pieces):
                if isinstance(block, np.ndarray):
                    if room.shape[1] < len(block):
                        room = np.empty((len(left), len(block)), dtype=dtype)
                    product = np.matmul(left, block.T, out=room[:, : len(block)])
                else:
                    product = to_numpy(matmul(block, right)).T
                scores[part] = np.einsum("ij,ij->j", product[:k], product[:k])
                products[:, part] = product[k:]
                yield

        ordered_map(blocks.pieces(dtype), work)
        if not np.isfinite(scores).all():
            blocks.check_finite()
        return scores, products


def _bless(
    blocks: Blocks,
    ridge: float | str | None,
    kernel: str,
    gamma: float | None,
    seed: int | np.random.Generator | None,
) -> Floats:
    from olss.core.kernels import bless

    if ridge is None or isinstance(ridge, str):
        raise InputError(f"method='bless' needs ridge as a number, found {ridge!r}.")
    if blocks.weights is not None:
        raise InputError("method='bless' takes no row weights.")
    scores, _ = bless(blocks.source, ridge, kernel=kernel, gamma=gamma, seed=seed)
    return np.asarray(scores, dtype=np.float64)
