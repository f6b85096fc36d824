"""Frequent Directions: a matrix of few rows with nearly the Gram matrix of a stream of rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, matmul, to_numpy
from olss.core.gram import RidgeRule, column_limit
from olss.errors import DataError, InputError
from olss.util import checks

__all__ = ["DirectionsFactor", "FrequentDirections", "SketchedGram"]

_FLOAT64 = np.dtype(np.float64)


class FrequentDirections:
    """Maintain a matrix B of at most `size` rows whose B'B approximates A'A of all rows seen.

    For the matrix A of all rows given to `update` or merged, and each k <= size,

        0 <= A'A - B'B <= ||A - A_k||_F^2 / (size + 1 - k)

    in the order of symmetric matrices, with A_k the best approximation of rank k (Liberty 2013;
    Ghashami, Liberty, Phillips & Woodruff 2016). The rows of B are not rows of A.

    Rows go into a buffer of 2 * `size`. When it is full, with squared singular values
    s_1 >= s_2 >= ..., each becomes max(s_i - d, 0) with d = s_{size+1}, which frees at least `size`
    rows. Each such step takes at most d off B'B in any direction, and at least (size + 1) d off its
    trace. With D the sum of all d,

        0 <= A'A - B'B <= D   and   (size + 1) D <= ||A||_F^2 - ||B||_F^2.

    The trace of B'B is at least that on the k leading right singular vectors of A, which is at
    least ||A_k||_F^2 - k D; with the second inequality this gives the bound above. Merging adds
    the matrices and the D of both, so both inequalities hold in any order of merging.

    If a row has at most 4 * `size` numbers, A'A itself takes little more memory than the buffer and
    is kept instead; it is reduced only when B is read. Everything is computed in float64. The
    inequalities hold up to rounding: about 1e-14 ||A||_F^2, and 1e-6 ||A||_F^2 for the float32
    `matrix` of float32 rows.

    Parameters
    ----------
    size : int
        The largest number of rows of `matrix`. Memory is that of 2 * size rows in float64, or of a
        square matrix of at most twice that.

    Attributes
    ----------
    seen : int
        Rows seen so far.
    columns : int or None
        Numbers per row; None before the first row.

    Examples
    --------
    >>> A = np.random.default_rng(0).normal(size=(500, 20)) * 0.7 ** np.arange(20)
    >>> fd = FrequentDirections(size=4)
    >>> fd.update(A[:300]).update(A[300:])
    FrequentDirections(size=4, columns=20, seen=500)
    >>> fd.matrix.shape
    (4, 20)
    >>> error = np.linalg.norm(A.T @ A - fd.matrix.T @ fd.matrix, 2)
    >>> bool(error <= fd.error_bound() <= fd.error_bound(2))
    True
    """

    def __init__(self, size: int) -> None:
        self.size = checks.integer("size", size)
        self.seen = 0
        self.columns: int | None = None
        self._dtype: np.dtype[Any] | None = None
        self._gram: NDArray[np.float64] | None = None  # A'A, of narrow rows
        self._buffer = np.empty((0, 0))  # else rows, the first `_filled` of them
        self._filled = 0
        self._mass = 0.0  # ||A||_F^2
        self._shed = 0.0  # D
        self._over = 0.0  # what B'B may be above A'A by, in any direction, after removals

    def update(self, A: Any, weights: Any = None) -> FrequentDirections:
        """Add rows and return the sketch.

        Parameters
        ----------
        A : (n, ...) array of real numbers, or SciPy sparse matrix
            NumPy array, memory map, torch tensor or array-like. Rows of more than one dimension
            are flattened.
        weights : (n,) array, optional
            Row weights w: A'A is then the sum of w x x'.
        """
        source = Blocks(A, weights)
        if self.columns not in (None, source.columns):
            raise DataError(
                f"A must have {self.columns} columns as before, found {source.columns}."
            )
        mass = _check_mass(self._mass + _sum_of_squares(source))
        self._reserve(source.columns)
        for block in _weighted_blocks(source):
            self._append(block)
        self._mass = mass
        self.seen += source.rows
        self._widen(source.dtype)
        return self

    def merge(self, other: FrequentDirections) -> FrequentDirections:
        """Add all that another sketch of the same size and columns has seen; return the sketch."""
        if not isinstance(other, FrequentDirections):
            raise InputError(f"other must be a FrequentDirections, found {type(other).__name__}.")
        if other.size != self.size:
            raise InputError(f"other must have size {self.size} to be merged, found {other.size}.")
        if None not in (self.columns, other.columns) and self.columns != other.columns:
            raise InputError(f"other must have {self.columns} columns, found {other.columns}.")
        if other.columns is None or other._dtype is None:
            return self
        mass = _check_mass(self._mass + other._mass)
        shed, over = other._shed, other._over  # read first: `other` may be this sketch
        self._reserve(other.columns)
        if self._gram is not None and other._gram is not None:
            self._gram += other._gram
        else:
            self._append(other._buffer[: other._filled].copy())
        self.seen += other.seen
        self._mass = mass
        self._shed += shed
        self._over += over
        self._widen(other._dtype)
        return self

    @property
    def matrix(self) -> NDArray[Any]:
        """B, at most `size` rows: float32 if all rows seen were, else float64.

        Reading it leaves the sketch unchanged; it takes a factorization if the buffer holds more
        than `size` rows.
        """
        return self._compact()[0].astype(self._dtype or np.float64)

    def error_bound(self, k: int | None = None) -> float:
        """Return an upper bound of ||A'A - B'B||_2, up to rounding.

        Parameters
        ----------
        k : int, from 0 to `size`, optional
            Without it, the bound is the sum D of what was taken off, the tightest one known. With
            it, the bound is (||A||_F^2 - ||B_k||_F^2) / (size + 1 - k): since A'A >= B'B,
            ||A_k||_F >= ||B_k||_F, and it is never below ||A - A_k||_F^2 / (size + 1 - k). After
            `subtract` that no longer holds, and the bound does not depend on k.
        """
        rows, shed = self._compact()
        if k is None or self._over:
            return max(shed, self._over)
        k = checks.integer("k", k, minimum=0, maximum=self.size)
        gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        leading = np.linalg.eigvalsh(gram)[::-1][:k].sum()
        return float(max(self._mass - leading, 0.0) / (self.size + 1 - k))

    def copy(self) -> FrequentDirections:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def state(self) -> dict[str, Any]:
        """Return the complete state: a few numbers and an array."""
        return {
            "rows": self._buffer[: self._filled] if self._gram is None else self._gram,
            "size": self.size,
            "seen": self.seen,
            "dtype": None if self._dtype is None else self._dtype.name,
            "mass": self._mass,
            "shed": self._shed,
            "over": self._over,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FrequentDirections:
        """Return the sketch with a state that `state` returned."""
        sketch, rows = cls(state["size"]), state["rows"]
        if state["dtype"] is None:
            return sketch
        sketch._reserve(rows.shape[1])
        if sketch._gram is not None:
            sketch._gram[...] = rows
        else:
            sketch._buffer[: len(rows)] = rows
            sketch._filled = len(rows)
        sketch.seen = checks.integer("seen", state["seen"], minimum=0)
        sketch._dtype = np.dtype({"float32": np.float32, "float64": np.float64}[state["dtype"]])
        for name in ("mass", "shed", "over"):
            setattr(sketch, f"_{name}", checks.number(name, state[name], minimum=0))
        return sketch

    def scale(self, factor: float) -> FrequentDirections:
        """Return a sketch of the rows with all weights multiplied by `factor`."""
        other = self.copy()
        if other._gram is not None:
            other._gram *= factor
        other._buffer *= math.sqrt(factor)
        other._mass *= factor
        other._shed *= factor
        other._over *= factor
        return other

    def subtract(self, A: Any, weights: Any = None) -> FrequentDirections:
        """Return a sketch of the rows seen except these, which were among them.

        B'B - sum w x x' has negative eigenvalues where parts of these rows were taken off B'B
        before. They are set to zero, so that B'B may exceed A'A by no more than the most negative:
        `over`.
        """
        source = Blocks(A, weights)
        if source.columns != self.columns:
            raise DataError(f"A must have {self.columns} columns, found {source.columns}.")
        other = self.copy()
        other._mass = max(self._mass - _sum_of_squares(source), 0.0)
        for block in _weighted_blocks(source):
            for start in range(0, len(block), self.size):
                other._subtract(block[start : start + self.size])
        other.seen -= source.rows
        return other

    def _subtract(self, rows: NDArray[np.float64]) -> None:
        """Subtract x x' of a few rows from B'B, by the eigenvalues of both stacked."""
        B, self._shed = self._compact()
        Q, R = np.linalg.qr(np.vstack([B, rows]).T)
        sign = np.repeat([1.0, -1.0], [len(B), len(rows)])
        s, U = np.linalg.eigh((R * sign) @ R.T)
        self._over += max(-float(s[0]), 0.0)
        keep = s > max(float(s[-1]), 0.0) * 1e-14
        left = np.sqrt(s[keep])[:, None] * (Q @ U[:, keep]).T
        if self._gram is not None:
            self._gram = left.T @ left
        else:
            self._buffer[: len(left)], self._filled = left, len(left)

    @property
    def over(self) -> float:
        """How far B'B may exceed A'A in any direction: 0 up to rounding, or after `subtract`."""
        return self._over

    def scorer(self, ridge: float = 0.0) -> DirectionsFactor:
        """Return a function from rows x to their leverage x' (B'B + r I)^+ x, r = max(D, ridge).

        If nothing was taken off and there is no ridge, it is the leverage in A itself.
        """
        rows, shed = self._compact()
        s, vectors = np.linalg.eigh(rows @ rows.T)
        rounding = 1e-12 * max(float(s[-1:].sum()), 0.0)
        live = s > rounding
        s = s[live]
        V = rows.T @ (vectors[:, live] / np.sqrt(s))
        ridge = max(shed, ridge)
        return DirectionsFactor(V, s, ridge if ridge > rounding else 0.0)

    def __repr__(self) -> str:
        return f"FrequentDirections(size={self.size}, columns={self.columns}, seen={self.seen})"

    def _reserve(self, columns: int) -> None:
        """Allocate memory for the first rows."""
        if self.columns is not None:
            return
        self.columns = columns
        if columns <= 4 * self.size:
            self._gram = np.zeros((columns, columns))
        else:
            self._buffer = np.empty((2 * self.size, columns))

    def _append(self, rows: NDArray[np.float64]) -> None:
        """Add dense rows to the Gram matrix or the buffer, which is reduced when it is full."""
        if self._gram is not None:
            self._gram += rows.T @ rows
            return
        while len(rows):
            if self._filled == len(self._buffer):
                kept, shed = _shrink(self._buffer, self.size)
                self._buffer[: len(kept)], self._filled = kept, len(kept)
                self._shed += shed
            room = min(len(self._buffer) - self._filled, len(rows))
            self._buffer[self._filled : self._filled + room] = rows[:room]
            self._filled += room
            rows = rows[room:]

    def _compact(self) -> tuple[NDArray[np.float64], float]:
        """Return at most `size` rows, and the D that goes with them."""
        if self._gram is not None:
            s, vectors, d = _leading(self._gram, self.size)
            return np.sqrt(s - d)[:, None] * vectors.T, self._shed + d
        rows = self._buffer[: self._filled]
        if len(rows) <= self.size:
            return rows, self._shed
        kept, shed = _shrink(rows, self.size)
        return kept, self._shed + shed

    def _widen(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype if self._dtype is None else np.promote_types(self._dtype, dtype)


@dataclass(frozen=True)
class DirectionsFactor:
    """Score rows against few directions: x' (V diag(s) V' + ridge I)^+ x for each.

    With c = V'x that is sum c^2 / (s + ridge) + (||x||^2 - ||c||^2) / ridge; the second term is the
    part of the row outside the directions, which no row seen has if there is no ridge.

    Attributes
    ----------
    V : (d, k) array with orthonormal columns
    s : (k,) array, their squared singular values
    ridge : float
    """

    V: NDArray[np.float64]
    s: NDArray[np.float64]
    ridge: float

    @property
    def dimension(self) -> float:
        """The sum of the scores of all rows inside the directions."""
        return float((self.s / (self.s + self.ridge)).sum()) if self.ridge else float(len(self.s))

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """Score rows of shape (n, ...)."""
        blocks = Blocks(rows, name="rows")
        if blocks.columns != len(self.V):
            raise DataError(f"rows must have {len(self.V)} columns, found {blocks.columns}.")
        scores = np.empty(blocks.rows)
        for part, block in blocks.read(_FLOAT64):
            inside = to_numpy(matmul(block, self.V)) ** 2
            scores[part] = inside @ (1 / (self.s + self.ridge))
            if self.ridge:
                squares = block.power(2) if blocks.sparse else to_numpy(block) ** 2
                outside = np.ravel(squares.sum(axis=1)) - inside.sum(axis=1)
                scores[part] += np.maximum(outside, 0.0) / self.ridge
        if not np.isfinite(scores).all():
            blocks.check_finite()
        return scores


@dataclass(frozen=True, eq=False)
class SketchedGram:
    """Immutable Frequent Directions, with the methods of `olss.core.running_gram.DenseGram`.

    For rows with too many columns for a Gram matrix.
    """

    directions: FrequentDirections

    @classmethod
    def empty(cls, columns: int) -> SketchedGram:
        """Return the sum of no rows, with 16 to 512 directions.

        Their memory is a quarter of that of the largest Gram matrix, 34 MB.
        """
        return cls(FrequentDirections(max(16, min(512, column_limit() ** 2 // (8 * columns)))))

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.directions.columns or 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return 16 * self.directions.size * self.columns

    @property
    def shed(self) -> float:
        """G <= B'B + shed in every direction."""
        return self.directions.error_bound()

    @property
    def over(self) -> float:
        """G >= B'B - over in every direction; 0 unless rows were removed."""
        return self.directions.over

    def as_rows(self) -> NDArray[np.float64]:
        """Return the (l, d) rows B."""
        factor = self.directions.scorer()
        return np.sqrt(factor.s)[:, None] * factor.V.T

    def factor(self, rule: RidgeRule, T: Any = None) -> DirectionsFactor:
        """Return the scoring function, with a ridge by this rule, but at least what was shed."""
        if T is not None:
            raise InputError(f"a linear map needs rows of at most {column_limit():,} columns.")
        if not rule.asks:
            return self.directions.scorer()
        return self.directions.scorer(rule.of_spectrum(self.directions.scorer().s))

    def update(self, blocks: Blocks) -> SketchedGram:
        """Return the sum with these rows added."""
        return SketchedGram(self.directions.copy().update(blocks.source, blocks.weights))

    def merge(self, other: SketchedGram) -> SketchedGram:
        """Return the sum of both."""
        return SketchedGram(self.directions.copy().merge(other.directions))

    def subtract(self, blocks: Blocks) -> SketchedGram:
        """Return the sum without some of its rows."""
        return SketchedGram(self.directions.subtract(blocks.source, blocks.weights))

    def scale(self, factor: float) -> SketchedGram:
        """Return the sum with all weights multiplied by a factor."""
        return SketchedGram(self.directions.scale(factor))


def _shrink(rows: NDArray[np.float64], size: int) -> tuple[NDArray[np.float64], float]:
    """Subtract d = s_{size+1} from each squared singular value s_i; return the rows kept and d.

    With rows = U S V', those are (1 - d / s_i)^(1/2) u_i' rows, with the u_i from the eigenvectors
    of rows rows': several times faster than an SVD, and as accurate for the Gram matrix.
    """
    s, vectors, d = _leading(rows @ rows.T, size)
    return np.sqrt(1 - d / s)[:, None] * (vectors.T @ rows), d


def _leading(
    gram: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return eigenvalues above d, the one of number size + 1, their eigenvectors, and d."""
    s, vectors = np.linalg.eigh(gram)
    s, vectors = s[::-1], vectors[:, ::-1]
    d = max(float(s[size]), 0.0) if len(s) > size else 0.0
    keep = np.count_nonzero(s[:size] > d)
    return s[:keep], vectors[:, :keep], d


def _weighted_blocks(source: Blocks) -> Iterator[NDArray[np.float64]]:
    """Yield dense blocks of rows, each multiplied by the root of its weight."""
    for part, block in source.read(_FLOAT64):
        rows = block.toarray() if source.sparse else to_numpy(block)
        if source.weights is not None:
            rows = rows * np.sqrt(source.weights[part])[:, None]
        yield rows


def _sum_of_squares(source: Blocks) -> float:
    """Return ||A||_F^2; rows that are not finite are refused here, before they get in."""
    total = 0.0
    for part, block in source.read(_FLOAT64):
        if source.weights is None:
            values = block.data if source.sparse else to_numpy(block).ravel()
            total += float(np.vdot(values, values))
        else:
            squares = block.power(2) if source.sparse else to_numpy(block) ** 2
            total += float(source.weights[part] @ np.ravel(squares.sum(axis=1)))
    if not math.isfinite(total):
        source.check_finite()
    return total


def _check_mass(mass: float) -> float:
    if not math.isfinite(mass):
        raise DataError("The rows are too large to be squared in float64; scale them down.")
    return mass
