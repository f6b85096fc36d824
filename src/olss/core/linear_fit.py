"""Linear models of everything seen, solved from `Moments`: no row is read again.

Columns are scaled to a unit diagonal before anything is factored, so that columns of any unit keep
their digits. Where columns depend on each other the solution of minimum norm in those scaled
columns is taken. A row of weight 2 counts as two rows. Penalties are on the columns as they are,
as in scikit-learn, never on the intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from olss.core.moments import Moments
from olss.errors import InputError
from olss.util import lapack, linalg, optimize

Floats = NDArray[np.float64]

WIDE = 1_500  # columns above which factors are cheaper than eigenvalues


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A least squares or ridge fit with its errors; targets are columns.

    Attributes
    ----------
    coef, intercept : (d, t), (t,) arrays
    coef_error, intercept_error : (d, t), (t,) arrays
        Standard errors, for a noise of constant variance; with a ridge, of the shrunken
        coefficients. NaN where no degree of freedom is left.
    ridge : float
    degrees : float
        Effective number of coefficients, the trace of the hat matrix, the intercept included.
    residual_variance, r2 : (t,) arrays
        R squared is NaN where a target is constant.
    """

    coef: Floats
    intercept: Floats
    coef_error: Floats
    intercept_error: Floats
    ridge: float
    degrees: float
    residual_variance: Floats
    r2: Floats


@dataclass(frozen=True, eq=False)
class DiscriminantFit:
    """Linear scores x'coef + intercept of classes, log posteriors but for a term common to all.

    Attributes
    ----------
    coef, intercept : (d, classes), (classes,) arrays
        The intercept of a class without rows is minus infinity.
    means : (classes, d) array
        Of each class; those of a class without rows are zero.
    priors : (classes,) array
    """

    coef: Floats
    intercept: Floats
    means: Floats
    priors: Floats


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Directions of largest variance.

    Attributes
    ----------
    components : (k, d) array
        Rows of length 1; the entry largest in size is positive.
    variance, variance_ratio : (k,) arrays
        Along each, and as a share of all variance.
    mean : (d,) array
    """

    components: Floats
    variance: Floats
    variance_ratio: Floats
    mean: Floats


def solve_ridge(
    moments: Moments, ridge: float = 0.0, *, intercept: bool = True
) -> tuple[Floats, Floats]:
    """Minimise sum w (y - x'b - a)^2 + ridge |b|^2 for each target.

    Returns
    -------
    (d, t) coefficients b and (t,) intercepts a, zero without an intercept.
    """
    _check_ridge(ridge)
    A, B, noise, _ = _normal_equations(moments, intercept)
    A.flat[:: len(A) + 1] += ridge
    coef = _Factor(A, noise, 0.0 if ridge else _tolerance(moments)).solve(B)
    return coef, _intercept(moments, coef, intercept)


def fit_linear(moments: Moments, ridge: float = 0.0, *, intercept: bool = True) -> LinearFit:
    """Return the fit of `solve_ridge` with R squared and standard errors.

    With P = (S + ridge I)^-1 and the residual variance s2 = RSS / (n - trace PS - 1), coefficients
    have the covariance s2 P S P, and the intercept the variance s2 (1/W + m' P S P m).
    """
    _check_ridge(ridge)
    S, B, noise, squares = _normal_equations(moments, intercept)
    A = S.copy()
    A.flat[:: len(A) + 1] += ridge
    factor = _Factor(A, noise, 0.0 if ridge else _tolerance(moments))
    coef = factor.solve(B)
    P = factor.solve(np.eye(len(S)))
    PS = P @ S
    degrees = float(np.trace(PS)) + intercept
    rss = squares - 2 * (coef * B).sum(axis=0) + (coef * (S @ coef)).sum(axis=0)
    rss = np.maximum(rss, 0.0)
    free = moments.weight - degrees
    variance = rss / (free if free > 1e-9 * moments.weight else np.nan)
    covariance = PS @ P
    with np.errstate(invalid="ignore"):
        coef_error = np.sqrt(np.outer(covariance.diagonal().clip(0), variance))
        of_mean = moments.mean @ covariance @ moments.mean + 1 / moments.weight
        intercept_error = np.sqrt(variance * of_mean) if intercept else np.zeros_like(variance)
        about_mean = moments.target_scatter.diagonal() if intercept else squares
        r2 = np.where(about_mean > 0, 1 - rss / np.where(about_mean > 0, about_mean, 1), np.nan)
    return LinearFit(
        coef=coef,
        intercept=_intercept(moments, coef, intercept),
        coef_error=coef_error,
        intercept_error=intercept_error,
        ridge=float(ridge),
        degrees=degrees,
        residual_variance=variance,
        r2=r2,
    )


def choose_ridge(moments: Moments, *, intercept: bool = True, start: float | None = None) -> float:
    """Return the ridge that minimises generalised cross-validation (Golub, Heath & Wahba 1979).

    GCV = RSS / (n - trace of the hat matrix)^2, RSS summed over targets, is an exact function of
    the moments. Up to 1,500 columns one eigendecomposition gives it for every ridge r: with
    S = Q diag(s) Q' and c = Q'C, RSS = RSS(0) + sum c^2 r^2 / (s (s + r)^2). Beyond, each r takes
    a Cholesky factor, and the search is a coarse one: the minimum is flat.

    Parameters
    ----------
    moments : Moments
    intercept : bool
    start : float, optional
        Where the coarse search begins; by default a thousandth of the mean square.
    """
    S, B, noise, squares = _normal_equations(moments, intercept)
    mean_square = float(S.diagonal().mean()) if len(S) else 0.0
    if mean_square <= 0 or not squares.sum() > 0:
        return 0.0
    rows = moments.weight - intercept
    if len(S) > WIDE:
        return _search_coarsely(S, B, float(squares.sum()), rows, start or 1e-3 * mean_square)
    s, Q = linalg.eigh(S, overwrite_a=True, check_finite=False, driver="evd")
    top = float(s[-1])
    live = s > max(_tolerance(moments) * top, float(noise.max(initial=0.0)))
    s, energy = s[live], ((Q.T @ B) ** 2).sum(axis=1)[live]
    least = max(float(squares.sum() - (energy / s).sum()), 0.0)

    def gcv(log_ridge: float) -> float:
        ridge = np.exp(log_ridge)
        rss = least + float((energy * ridge**2 / (s * (s + ridge) ** 2)).sum())
        free = rows - float((s / (s + ridge)).sum())
        return rss / free**2 if free > 0 else np.inf

    grid = np.linspace(np.log(max(s[0] * 1e-4, top * 1e-12)), np.log(top * 1e3), 80)
    best = int(np.argmin([gcv(value) for value in grid]))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = optimize.minimize_scalar(gcv, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


def _search_coarsely(S: Floats, B: Floats, squares: float, rows: float, start: float) -> float:
    """Minimise GCV over the logarithm of the ridge: tenfold steps downhill, then a parabola."""
    d, diagonal = len(S), S.diagonal().copy()

    def gcv(ridge: float) -> float:
        S.flat[:: d + 1] = diagonal + ridge
        L, failed = lapack.dpotrf(S.T, lower=1, clean=1)
        if failed:
            return np.inf
        coef = lapack.dpotrs(L, B, lower=1)[0]
        rss = squares - float((coef * B).sum()) - ridge * float((coef**2).sum())
        inverse = lapack.dtrtri(L, lower=1, overwrite_c=1)[0]
        free = rows - d + ridge * float(np.vdot(inverse, inverse))
        return rss / free**2 if free > 0 else np.inf

    values = {0: gcv(start)}
    best = 0
    for _ in range(12):
        for place in (best - 1, best + 1):
            if place not in values:
                values[place] = gcv(start * 10.0**place)
        lowest = min((best, best - 1, best + 1), key=values.__getitem__)
        if lowest == best:
            break
        best = lowest
    below, at, above = values.get(best - 1, np.inf), values[best], values.get(best + 1, np.inf)
    bend = below - 2 * at + above
    shift = (below - above) / (2 * bend) if np.isfinite(bend) and bend > 0 else 0.0
    return float(start * 10.0 ** (best + np.clip(shift, -0.5, 0.5)))


def fit_discriminant(
    moments: Moments,
    shrinkage: float | Literal["auto"] | None = None,
    priors: Floats | None = None,
    *,
    ridge: float = 0.0,
) -> DiscriminantFit:
    """Fit a linear discriminant to moments whose targets are one-hot classes.

    The covariance within classes is V = (S - sum_c C_c C_c' / n_c) / n, shrunk by a to
    (1 - a) V + a trace(V)/d I.

    Parameters
    ----------
    moments : Moments
    shrinkage : float between 0 and 1, "auto" or None
        "auto" is the oracle approximating shrinkage of Chen, Wiesel, Eldar & Hero (2010), which
        needs nothing but the covariance.
    priors : (classes,) array, optional
        By default the shares of the classes.
    ridge : float
        Added to the diagonal of the scatter within classes, as `solve_ridge` adds it to that of
        all rows.
    """
    _check_ridge(ridge)
    counts = moments.target_mean * moments.weight
    present = counts > 1e-9 * moments.weight
    shares = moments.target_mean.clip(0) if priors is None else np.asarray(priors, np.float64)
    offsets = np.asarray(moments.cross[:, present], np.float64) / counts[present]
    V = (offsets * -counts[present]) @ offsets.T
    V += moments.scatter
    # Products of a block of rows are summed with an error that grows with its rows: up to 1,500
    # units in the last place were measured for 30,000 rows.
    rounding = float(np.finfo(moments.scatter.dtype).eps) ** (2 / 3)
    noise = moments.noise + rounding * moments.scatter.diagonal()
    V.flat[:: len(V) + 1] += ridge
    V /= moments.weight
    noise = noise / moments.weight
    if shrinkage is not None:
        a = _oracle_shrinkage(V, moments.weight) if shrinkage == "auto" else float(shrinkage)
        if not 0 <= a <= 1:
            raise InputError(f"shrinkage must be 'auto' or between 0 and 1, found {shrinkage!r}.")
        added = a * float(np.trace(V)) / max(len(V), 1)
        V *= 1 - a
        V.flat[:: len(V) + 1] += added
        noise = noise * (1 - a)
    coef = np.zeros((moments.columns, moments.targets))
    coef[:, present] = _Factor(V, noise, 0.0 if ridge else _tolerance(moments)).solve(offsets)
    means = np.zeros((moments.targets, moments.columns))
    means[present] = (moments.mean[:, None] + offsets).T
    intercept = np.full(moments.targets, -np.inf)
    with np.errstate(divide="ignore"):
        logs = np.log(shares[present])
    inner = (coef[:, present] * offsets).sum(axis=0)
    intercept[present] = logs - inner / 2 - moments.mean @ coef[:, present]
    return DiscriminantFit(coef, intercept, means, shares)


def find_components(moments: Moments, k: int | None = None) -> PrincipalComponents:
    """Return the k leading principal components of x, by default all."""
    covariance = moments.covariance()
    d = len(covariance)
    k = d if k is None else k
    if not 1 <= k <= d:
        raise InputError(f"k must be between 1 and the {d} columns, found {k}.")
    total = float(np.trace(covariance))
    s, Q = linalg.eigh(covariance, subset_by_index=(d - k, d - 1))
    components, variance = Q[:, ::-1].T, s[::-1].clip(0)
    largest = np.take_along_axis(components, abs(components).argmax(axis=1)[:, None], axis=1)
    ratio = variance / total if total > 0 else np.zeros(k)
    return PrincipalComponents(components * np.sign(largest), variance, ratio, moments.mean)


class _Factor:
    """A positive semidefinite matrix, overwritten, scaled to a unit diagonal and factored."""

    def __init__(self, A: Floats, noise: Floats, tolerance: float) -> None:
        d, diagonal = len(A), A.diagonal().copy()
        live = diagonal > noise
        self._scale = np.where(live, 1 / np.sqrt(np.where(live, diagonal, 1.0)), 0.0)
        A *= self._scale[:, None]
        A *= self._scale
        A.flat[:: d + 1] = 1.0  # of a dead column, too, which touches no other
        self._vectors: Floats | None = None
        if d == 0:
            return
        if tolerance:
            tolerance = max(tolerance, float(np.max(noise * self._scale**2)))
        L, failed = lapack.dpotrf(A.T, lower=1, clean=0)
        if not failed and (L.diagonal() ** 2 > tolerance).all():
            self._L = L
            return
        s, Q = linalg.eigh(A, check_finite=False)
        keep = s > max(tolerance, d * float(np.finfo(np.float64).eps)) * s[-1]
        self._vectors, self._values = Q[:, keep], s[keep]

    def solve(self, B: Floats) -> Floats:
        """Return A^+ B."""
        if len(B) == 0:
            return np.zeros(B.shape)
        B = B * self._scale[:, None]
        if self._vectors is None:
            X, _ = lapack.dpotrs(self._L, B, lower=1)
        else:
            X = self._vectors @ (self._vectors.T @ B / self._values[:, None])
        return np.asarray(X * self._scale[:, None], np.float64)


def _normal_equations(moments: Moments, intercept: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return S, C, the rounding on the diagonal of S, and sum w y^2; centred if an intercept."""
    if moments.count <= 0:
        raise InputError("there are no rows to fit; update with some first.")
    S: Floats = moments.scatter.astype(np.float64)  # a copy
    cross = np.asarray(moments.cross, np.float64)
    squares = moments.target_scatter.diagonal()
    if not intercept:
        W, m, n = moments.weight, moments.mean, moments.target_mean
        S += W * np.outer(m, m)
        cross = cross + W * np.outer(m, n)
        squares = squares + W * n**2
    return S, cross, moments.noise, squares


def _intercept(moments: Moments, coef: Floats, intercept: bool) -> Floats:
    if not intercept:
        return np.zeros(moments.targets)
    return np.asarray(moments.target_mean - moments.mean @ coef, np.float64)


def _tolerance(moments: Moments) -> float:
    """Return the share of its square below which what is left of a column is rounding."""
    return max(moments.columns, 64) * float(np.finfo(moments.scatter.dtype).eps)


def _oracle_shrinkage(V: Floats, count: float) -> float:
    """Return equation 23 of the paper in the form for many columns, as scikit-learn has it."""
    square, of_trace = float((V**2).sum()), float(np.trace(V)) ** 2
    below = (count + 1) * (square - of_trace / max(len(V), 1))
    return min((square + of_trace) / below, 1.0) if below > 0 else 1.0


def _check_ridge(ridge: float) -> None:
    if not 0 <= ridge < np.inf:
        raise InputError(f"ridge must be a number, not negative, found {ridge!r}.")
