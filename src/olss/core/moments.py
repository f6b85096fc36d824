"""Moments of everything seen: what exact linear models need of rows that are gone.

For rows x with weights w and targets y (numbers, or classes as one-hot columns) the sums

    W = sum w,  m = sum w x / W,  S = sum w (x - m)(x - m)',  C = sum w (x - m)(y - n)'

and those of y alone determine least squares, ridge, linear discriminants and principal
components exactly (`olss.core.linear_fit`). They add up over batches, files and machines, fade by
a factor, and rows can be subtracted again. Sums are centred: blocks of rows are shifted by the
mean so far, and two sets of moments are joined by the pairwise formula of Chan, Golub & LeVeque
(1983, "Algorithms for computing the sample variance"), so that a column such as the year,
1900 to 2000, keeps its digits, and a constant column has a scatter of exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from olss.core.blocks import BLOCK_BYTES, is_sparse
from olss.errors import DataError, InputError
from olss.util import sparse as sp

Floats = NDArray[np.float64]
Matrix = NDArray[np.floating[Any]]


def one_hot(codes: NDArray[np.integer[Any]], classes: int) -> sp.csr_array:
    """Return classes 0, 1, ... as sparse rows of zeros with a single one."""
    rows = len(codes)
    return sp.csr_array((np.ones(rows), codes, np.arange(rows + 1)), shape=(rows, classes))


def place_classes(known: NDArray[Any], every: NDArray[Any]) -> NDArray[np.intp]:
    """Return which column of (known classes, new ones) stands at each place of all, sorted.

    Examples
    --------
    >>> place_classes(np.array(["b", "d"]), np.array(["a", "b", "c", "d"]))
    array([2, 0, 3, 1])
    """
    order = np.full(len(every), -1, np.intp)
    order[np.searchsorted(every, known)] = np.arange(len(known))
    order[order < 0] = np.arange(len(known), len(every))
    return order


def fade(half_life: float | None, rows: int) -> tuple[float, Floats]:
    """Return what the past is multiplied by when rows come, and the rows' weights, oldest first.

    A row counts half once `half_life` rows have come after it, however they are batched.
    """
    if half_life is None:
        return 1.0, np.ones(rows)
    if not half_life > 0:
        raise InputError(f"half_life must be above 0, or None; found {half_life!r}.")
    return float(0.5 ** (rows / half_life)), 0.5 ** (np.arange(rows - 1, -1, -1) / half_life)


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments of rows (x, y), centred. Every method returns a new value.

    Attributes
    ----------
    count : float
        Rows with a weight above zero; faded like the weights by `scale`.
    weight : float
        The sum of the weights.
    mean : (d,) array
        Of x.
    scatter : (d, d) array
        sum w (x - m)(x - m)', in float64, or in float32 to halve the memory of wide rows.
    target_mean : (t,) array
        Of y; of classes, their shares.
    cross : (d, t) array
        sum w (x - m)(y - n)', in the precision of the scatter.
    target_scatter : (t, t) array
        sum w (y - n)(y - n)'.
    noise : (d,) array
        Rounding that subtractions have left on the diagonal of the scatter.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((100, 3)) + 1e6, rng.standard_normal(100)
    >>> first = Moments.empty(3, 1).update(X[:40], y[:40])
    >>> both = first.merge(Moments.empty(3, 1).update(X[40:], y[40:]))
    >>> both
    Moments(count=100, columns=3, targets=1)
    >>> bool(np.allclose(both.covariance(), np.cov(X, rowvar=False), rtol=1e-9))
    True
    """

    count: float
    weight: float
    mean: Floats
    scatter: Matrix
    target_mean: Floats
    cross: Matrix
    target_scatter: Floats
    noise: Floats

    @classmethod
    def empty(cls, columns: int, targets: int = 0, dtype: DTypeLike = np.float64) -> Moments:
        """Return the moments of no rows.

        Parameters
        ----------
        columns, targets : int
            Of x and of y.
        dtype : dtype
            Of the scatter and of the products of x: float64, or float32.
        """
        return cls(
            count=0.0,
            weight=0.0,
            mean=np.zeros(columns),
            scatter=np.zeros((columns, columns), dtype),
            target_mean=np.zeros(targets),
            cross=np.zeros((columns, targets), dtype),
            target_scatter=np.zeros((targets, targets)),
            noise=np.zeros(columns),
        )

    def __repr__(self) -> str:
        return f"Moments(count={self.count:g}, columns={self.columns}, targets={self.targets})"

    @property
    def columns(self) -> int:
        """Columns of x."""
        return len(self.mean)

    @property
    def targets(self) -> int:
        """Columns of y."""
        return len(self.target_mean)

    # ------------------------------------------------------------------ accumulating

    def update(self, X: Any, y: Any = None, weight: Any = None) -> Moments:
        """Return the moments with more rows in them.

        Parameters
        ----------
        X : array (n, d)
        y : array (n,) or (n, t), or sparse (n, t), optional
            Numbers, or classes by `one_hot`; needed if there are targets.
        weight : array (n,), optional
            Not negative; by default 1.
        """
        X, y, w = self._check_batch(X, y, weight)
        count, total, mean = self.count, self.weight, self.mean
        target_mean, cross = self.target_mean, self.cross
        target_scatter, scatter = self.target_scatter, self.scatter.copy()
        for part in self._parts(len(X)):
            w_part = w[part]
            added = float(w_part.sum())
            before, total = total, total + added
            shift = (mean if before else np.asarray(X[part.start], np.float64)).astype(self._dtype)
            Z = np.empty((part.stop - part.start + 1, self.columns), self._dtype)
            np.subtract(X[part], shift, out=Z[:-1], dtype=self._dtype, casting="unsafe")
            offset = np.asarray(w_part.astype(self._dtype) @ Z[:-1] / added, np.float64)
            Z[:-1] -= offset.astype(self._dtype)
            block_mean = shift + offset
            step = block_mean - mean if before else np.zeros(self.columns)
            y_step, y_mean, y_cross, y_squares = _target_block(y[part], w_part, Z, target_mean)
            y_step = y_step if before else np.zeros(self.targets)
            between = before * added / total
            cross = cross + y_cross + between * np.outer(step, y_step)
            target_scatter = target_scatter + y_squares + between * np.outer(y_step, y_step)
            # The step between the means as one more row: one product does all of the scatter.
            Z[:-1] *= np.sqrt(w_part)[:, None].astype(self._dtype)
            Z[-1] = np.sqrt(between) * step
            scatter += Z.T @ Z
            mean = mean + step * (added / total) if before else block_mean
            target_mean = target_mean + y_step * (added / total) if before else y_mean
            count += len(w_part)
        if not (np.isfinite(scatter.diagonal()).all() and np.isfinite(cross).all()):
            raise DataError("X and y must be finite, with squares that are; found NaN or infinity.")
        cross = cross.astype(self._dtype)
        return Moments(count, total, mean, scatter, target_mean, cross, target_scatter, self.noise)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both; the one with fewer targets is padded with zeros."""
        self._check_alike(other)
        most = max(self.targets, other.targets)
        a, b = self.pad(most), other.pad(most)
        if not (a.weight and b.weight):
            return a if a.weight else b
        step, y_step = b.mean - a.mean, b.target_mean - a.target_mean
        weight = a.weight + b.weight
        share, between = b.weight / weight, a.weight * b.weight / weight
        return Moments(
            count=a.count + b.count,
            weight=weight,
            mean=a.mean + share * step,
            scatter=_sum(a.scatter, b.scatter, step, between),
            target_mean=a.target_mean + share * y_step,
            cross=(a.cross + b.cross + between * np.outer(step, y_step)).astype(a._dtype),
            target_scatter=a.target_scatter + b.target_scatter + between * np.outer(y_step, y_step),
            noise=a.noise + b.noise,
        )

    def subtract(self, other: Moments) -> Moments:
        """Return the moments without rows that are in them, given the moments of those rows.

        Raises
        ------
        DataError
            If those rows cannot all have been in them.
        """
        self._check_alike(other)
        most = max(self.targets, other.targets)
        a, b = self.pad(most), other.pad(most)
        if not b.weight:
            return a
        weight, count = a.weight - b.weight, a.count - b.count
        if weight < -1e-9 * a.weight or count < -1e-6 * max(a.count, 1):
            raise DataError(
                f"X holds rows of weight {b.weight:g}, more than the {a.weight:g} seen; only rows "
                "that were seen can be forgotten."
            )
        if weight <= 1e-12 * a.weight or count <= 1e-9 * a.count:
            return Moments.empty(a.columns, a.targets, a._dtype)
        share = b.weight / weight
        mean = a.mean + share * (a.mean - b.mean)
        target_mean = a.target_mean + share * (a.target_mean - b.target_mean)
        step, y_step = b.mean - mean, b.target_mean - target_mean
        between = -weight * b.weight / a.weight
        scatter = _sum(a.scatter, -b.scatter, step, between)
        eps = float(np.finfo(a._dtype).eps)
        noise = a.noise + b.noise + 16 * eps * a.scatter.diagonal()
        if (scatter.diagonal() < -1e3 * noise).any():
            raise DataError(
                "X must hold rows that were seen; without these a variance is negative."
            )
        return Moments(
            count=count,
            weight=weight,
            mean=mean,
            scatter=scatter,
            target_mean=target_mean,
            cross=(a.cross - b.cross + between * np.outer(step, y_step)).astype(a._dtype),
            target_scatter=a.target_scatter - b.target_scatter + between * np.outer(y_step, y_step),
            noise=noise,
        )

    def scale(self, factor: float) -> Moments:
        """Return the moments with all weights multiplied, as a half-life does; count alike."""
        if not factor > 0:
            raise InputError(f"factor must be above 0, found {factor}.")
        return replace(
            self,
            count=self.count * factor,
            weight=self.weight * factor,
            scatter=self.scatter * self._dtype.type(factor),
            cross=self.cross * self._dtype.type(factor),
            target_scatter=self.target_scatter * factor,
            noise=self.noise * factor,
        )

    def pad(self, targets: int) -> Moments:
        """Return the moments with columns of zeros added to y: classes not seen so far."""
        more = targets - self.targets
        if more <= 0:
            return self
        return replace(
            self,
            target_mean=np.pad(self.target_mean, (0, more)),
            cross=np.pad(self.cross, ((0, 0), (0, more))),
            target_scatter=np.pad(self.target_scatter, (0, more)),
        )

    def arrange_targets(self, order: NDArray[np.integer[Any]]) -> Moments:
        """Return the moments with columns of y added and ordered as `place_classes` says."""
        wide = self.pad(len(order))
        return replace(
            wide,
            target_mean=wide.target_mean[order],
            cross=wide.cross[:, order],
            target_scatter=wide.target_scatter[np.ix_(order, order)],
        )

    def select(self, columns: Any, targets: Any) -> Moments:
        """Return moments with other columns of (x, y) as x and as y, all by position in (x, y).

        Any column can become the target: its products with all others are known.
        """
        joint = np.block([[self.scatter, self.cross], [self.cross.T, self.target_scatter]])
        mean = np.concatenate([self.mean, self.target_mean])
        noise = np.concatenate([self.noise, np.zeros(self.targets)])
        x, y = np.asarray(columns, np.intp), np.asarray(targets, np.intp)
        return replace(
            self,
            mean=mean[x],
            scatter=joint[np.ix_(x, x)].astype(self._dtype),
            target_mean=mean[y],
            cross=joint[np.ix_(x, y)].astype(self._dtype),
            target_scatter=joint[np.ix_(y, y)],
            noise=noise[x],
        )

    # ------------------------------------------------------------------ asking

    def covariance(self, ddof: int = 1) -> Floats:
        """Return the covariance of x, the scatter divided by weight - ddof."""
        self._check_rows(ddof + 1)
        return np.asarray(self.scatter / (self.weight - ddof), np.float64)

    def correlation(self) -> Floats:
        """Return the correlation of the columns of x; NaN where a column is constant."""
        self._check_rows(1)
        squares = np.asarray(self.scatter.diagonal(), np.float64)
        live = squares > self.noise
        roots = np.where(live, np.sqrt(np.where(live, squares, 1.0)), np.nan)
        found = np.asarray(self.scatter, np.float64) / roots[:, None] / roots
        found.flat[:: self.columns + 1] = np.where(live, 1.0, np.nan)
        return found.clip(-1, 1)

    # ------------------------------------------------------------------ on disk

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to know as a few arrays, of symmetric ones the lower triangle."""
        return {
            "sums": np.array([self.count, self.weight]),
            "mean": self.mean,
            "scatter": _triangle(self.scatter),
            "target_mean": self.target_mean,
            "cross": self.cross,
            "target_scatter": _triangle(self.target_scatter),
            "noise": self.noise,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Moments:
        """Return the moments that `to_arrays` described."""
        columns, targets = len(arrays["mean"]), len(arrays["target_mean"])
        return cls(
            count=float(arrays["sums"][0]),
            weight=float(arrays["sums"][1]),
            mean=arrays["mean"],
            scatter=_symmetric(arrays["scatter"], columns),
            target_mean=arrays["target_mean"],
            cross=arrays["cross"],
            target_scatter=_symmetric(arrays["target_scatter"], targets),
            noise=arrays["noise"],
        )

    @property
    def nbytes(self) -> int:
        """Bytes of what `to_arrays` returns."""
        d, t, wide = self.columns, self.targets, self._dtype.itemsize
        triangles = d * (d + 1) // 2 * wide + t * (t + 1) // 2 * 8
        return 16 + triangles + d * t * wide + 16 * d + 8 * t

    # ------------------------------------------------------------------ inside

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(self.scatter.dtype)

    def _parts(self, rows: int) -> Iterator[slice]:
        # Wide rows in blocks so long that their product takes longer than to add it up.
        each = max(64, BLOCK_BYTES // max(self.columns * self._dtype.itemsize, 1))
        each = max(each, self.columns // 2)
        for start in range(0, rows, each):
            yield slice(start, min(start + each, rows))

    def _check_batch(self, X: Any, y: Any, weight: Any) -> tuple[Any, Any, Floats]:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.columns:
            raise DataError(f"X must have {self.columns} columns, found shape {X.shape}.")
        y = np.zeros((len(X), 0)) if y is None else y
        if not is_sparse(y):
            y = np.asarray(y, np.float64)
            y = y[:, None] if y.ndim == 1 else y
        if y.shape != (len(X), self.targets):
            raise DataError(f"y must have shape {(len(X), self.targets)}, found {y.shape}.")
        w = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
        if w.shape != (len(X),) or not (np.isfinite(w).all() and (w >= 0).all()):
            raise DataError(
                f"weight must hold a finite number, not negative, for each of {len(X)} rows."
            )
        if not w.all():  # what counts for nothing may hold anything
            X, y, w = X[w > 0], y[w > 0], w[w > 0]
        return X, y, w

    def _check_alike(self, other: Moments) -> None:
        if self.columns != other.columns:
            raise DataError(f"columns must be alike, found {self.columns} and {other.columns}.")

    def _check_rows(self, least: int) -> None:
        if self.weight < least:
            raise InputError(f"rows must weigh at least {least}, found {self.weight:g}.")


def _target_block(
    y: Any, w: Floats, Z: Matrix, before: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the step from the mean `before`, the mean, products with centred x, own products."""
    Z = Z[:-1]
    total = w.sum()
    if is_sparse(y):  # one-hot: counts are exact, and the sum of w Z is zero
        weighted = sp.csr_array(y * w[:, None])
        sums = np.asarray(weighted.sum(axis=0), np.float64).ravel()
        cross = np.asarray((weighted.T @ Z), np.float64).T
        squares = np.asarray((weighted.T @ y).todense(), np.float64)
        mean = sums / total
        return mean - before, mean, cross, squares - np.outer(sums, sums) / total
    shift = y[0] if len(y) else before
    centred = y - shift
    offset = w @ centred / total
    centred -= offset
    mean, weighted = shift + offset, centred * w[:, None]
    return mean - before, mean, np.asarray(Z.T @ weighted, np.float64), weighted.T @ centred


def _sum(A: Matrix, B: Matrix, step: Floats, factor: float) -> Matrix:
    """Return A + B + factor step step'."""
    root = np.asarray(np.sqrt(abs(factor)) * step, A.dtype)
    total = A + B
    total += np.sign(factor).astype(A.dtype) * np.outer(root, root)
    return total


def _triangle(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return the lower triangle, row by row: an index of it would be larger than the matrix."""
    rows = [row[: i + 1] for i, row in enumerate(matrix)]
    return np.concatenate(rows) if rows else matrix.ravel()


def _symmetric(triangle: NDArray[Any], columns: int) -> NDArray[Any]:
    if triangle.size != columns * (columns + 1) // 2:
        raise ValueError(f"{triangle.size} numbers are not the triangle of a matrix")
    matrix = np.empty((columns, columns), triangle.dtype)
    for i in range(columns):
        row = triangle[i * (i + 1) // 2 :][: i + 1]
        matrix[i, : i + 1] = matrix[: i + 1, i] = row
    return matrix
