"""Logistic and Poisson models of rows that are gone: objectives as sums of terms, minimised.

The loss of a generalised linear model is sum w [A(x'b) - y x'b], with A(t) = log(1 + exp t) for
classes and exp t for counts. The second half is linear, so exact from moments. The first is not a
function of moments, and is carried in two ways, both corrected by exact gradients:

- **Gaussian past** (`GaussianTerm`): A is averaged over normal distributions with the means of the
  classes and their common covariance, all rows' exactly. It needs no rows at all.
- **Kept rows** (`RowTerm`): A is summed over a weighted sample, with a multiple of the curvature of
  everything seen (`QuadraticTerm`) for damping.

After each batch the model is refitted to the past and the batch; the exact gradient of the batch
there, less what the past's stand-in gains by the batch, goes into a tilt c (`LinearTerm`). So the
refit's gradient is exact at the point where the model is, and its shape elsewhere approximate. What
renewable estimation (Luo & Song 2020) does with one quadratic form, which fails when classes come
one after the other, this does with a convex function that has the right growth in every direction.

Coefficients b are (d + 1,) vectors for (x, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from olss.core.moments import Moments, one_hot
from olss.util import linalg, special

Floats = NDArray[np.float64]
Family = Literal["logistic", "poisson"]
DAMPING = 0.5  # of a corrected fit, in parts of the kept rows' curvature
Value = tuple[float, Floats, Floats]  # of an objective: itself, its gradient, its Hessian

# Nodes and weights for means over a standard normal distribution.
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(32)
_SHARES = _SHARES / _SHARES.sum()


class Term(Protocol):
    """A convex function of the coefficients."""

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""


@dataclass(frozen=True, eq=False)
class RowTerm:
    """sum w [A(x'b) - y x'b] over rows X (n, d)."""

    X: Floats
    y: Floats
    weight: Floats
    family: Family = "logistic"

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""
        t = self.X @ b[:-1] + b[-1]
        value, slope, curvature = _link(t, self.family)
        residual, curvature = self.weight * (slope - self.y), self.weight * curvature
        gradient = np.append(self.X.T @ residual, residual.sum())
        scaled = self.X * curvature[:, None]
        corner, side = curvature.sum(), scaled.sum(axis=0)
        total = float(self.weight @ (value - self.y * t))
        return total, gradient, _bordered(self.X.T @ scaled, side, corner)


@dataclass(frozen=True, eq=False)
class GaussianTerm:
    """sum_k n_k E A(x'b), x normal with mean m_k and a covariance common to all k.

    Attributes
    ----------
    counts, means, covariance : (k,), (k, d), (d, d) arrays
    """

    counts: Floats
    means: Floats
    covariance: Floats
    family: Family = "logistic"

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""
        spread = self.covariance @ b[:-1]
        deviation = np.sqrt(max(float(b[:-1] @ spread), 1e-300))
        centre = self.means @ b[:-1] + b[-1]
        t = centre[:, None] + deviation * _NODES
        value, slope, curvature, third, fourth = (
            a @ _SHARES * self.counts for a in _derivatives(t, self.family)
        )
        # By Stein's lemma, each derivative along the covariance raises the order by one.
        wide = np.append(spread, 0.0)
        points = np.column_stack([self.means, np.ones(len(self.means))])
        gradient = slope @ points + curvature.sum() * wide
        hessian = (points * curvature[:, None]).T @ points
        hessian[:-1, :-1] += curvature.sum() * self.covariance
        mixed = np.outer(third @ points, wide)
        hessian += mixed + mixed.T + fourth.sum() * np.outer(wide, wide)
        return float(value.sum()), gradient, hessian


@dataclass(frozen=True, eq=False)
class LinearTerm:
    """c'b."""

    c: Floats

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""
        return float(self.c @ b), self.c, np.zeros((len(b), len(b)))


@dataclass(frozen=True, eq=False)
class QuadraticTerm:
    """(b - centre)' J (b - centre) / 2."""

    J: Floats
    centre: Floats

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""
        gradient = self.J @ (b - self.centre)
        return float(gradient @ (b - self.centre)) / 2, gradient, self.J


def minimize(terms: Sequence[Term], start: Floats, steps: int = 100) -> Floats:
    """Return the coefficients at the minimum of a sum of terms, by Newton's method.

    Steps are shortened until the value falls enough (Armijo's rule), and damped where the Hessian
    is not positive, as it can be far from the minimum with `GaussianTerm`.
    """

    def total(b: Floats) -> Value:
        values, gradients, hessians = zip(*(term(b) for term in terms), strict=True)
        return float(sum(values)), np.sum(gradients, axis=0), np.sum(hessians, axis=0)

    with np.errstate(over="ignore", invalid="ignore"):
        # Where a start is far off, as after rows of one class only, curvature vanishes: begin anew.
        b, (value, gradient, hessian) = min(
            ((b, total(b)) for b in (start, np.zeros_like(start))), key=lambda found: found[1][0]
        )
        for _ in range(steps):
            step = -_solve_damped(hessian, gradient)
            gain = -float(gradient @ step)
            length = 1.0
            while length > 1e-12:
                after = total(b + length * step)
                if after[0] <= value - 1e-4 * length * gain:
                    break
                length /= 2
            else:
                break
            b = b + length * step
            value, gradient, hessian = after
            if gain <= 1e-12 * (abs(value) + 1):
                break
    return b


@dataclass(frozen=True, eq=False)
class LogisticState:
    """One logistic model for each class against the rest, of everything seen.

    Attributes
    ----------
    moments : Moments
        Of rows with one-hot classes.
    tilt : (classes, d + 1) array
        The exact gradient of all rows where the model was when they came, less that of the
        Gaussian past.
    coef : (classes, d + 1) array
        The last one is the intercept.
    """

    moments: Moments
    tilt: Floats
    coef: Floats

    @classmethod
    def empty(cls, columns: int, classes: int) -> LogisticState:
        """Return the state before the first row."""
        zero = np.zeros((classes, columns + 1))
        return cls(Moments.empty(columns, classes), zero, zero)

    def arrange_targets(self, order: NDArray[np.integer[Any]]) -> LogisticState:
        """Return the state with classes added and ordered as `place_classes` says.

        All rows seen count against a class added, as normal distributions.
        """
        more = ((0, len(order) - len(self.tilt)), (0, 0))
        return LogisticState(
            self.moments.arrange_targets(order),
            np.pad(self.tilt, more)[order],
            np.pad(self.coef, more)[order],
        )

    def scale(self, factor: float) -> LogisticState:
        """Return the state with all weights multiplied."""
        return replace(self, moments=self.moments.scale(factor), tilt=self.tilt * factor)


def update_logistic(
    state: LogisticState,
    X: Floats,
    codes: NDArray[np.integer[Any]],
    weight: Floats,
    penalty: float,
    *,
    intercept: bool = True,
) -> LogisticState:
    """Return the state with a batch in it, refitted with penalty/2 times the squared coefficients.

    The first batch is fitted exactly.
    """
    classes = len(state.tilt)
    after = state.moments.update(X, one_hot(codes, classes), weight)
    coef, tilt = state.coef.copy(), state.tilt.copy()
    for k in _problems(after):
        row_term = RowTerm(X, (codes == k).astype(np.float64), weight)
        frame = _Frame.of(after, penalty, intercept)
        terms = [*frame.past(state.moments, k, tilt[k]), frame.rows(row_term)]
        coef[k] = frame.back(minimize([*terms, frame.penalty], frame.to(coef[k])))
        gained = _gradient(after, coef[k]) - _gradient(state.moments, coef[k])
        tilt[k] += _slopes(row_term, coef[k]) - gained
    return _mirrored(LogisticState(after, tilt, coef))


def merge_logistic(
    a: LogisticState, b: LogisticState, penalty: float, *, intercept: bool = True
) -> LogisticState:
    """Return the state of both, classes in the same order: fitted to the sum of their pasts."""
    if not (a.moments.weight and b.moments.weight):
        return a if a.moments.weight else b
    both = a.moments.merge(b.moments)
    coef, tilt = a.coef.copy(), a.tilt + b.tilt
    for k in _problems(both):
        frame = _Frame.of(both, penalty, intercept)
        terms = [*frame.past(a.moments, k, a.tilt[k]), *frame.past(b.moments, k, b.tilt[k])]
        coef[k] = frame.back(minimize([*terms, frame.penalty], frame.to(coef[k])))
        tilt[k] += _gradient(a.moments, coef[k]) + _gradient(b.moments, coef[k])
        tilt[k] -= _gradient(both, coef[k])
    return _mirrored(LogisticState(both, tilt, coef))


def forget_logistic(
    state: LogisticState,
    X: Floats,
    codes: NDArray[np.integer[Any]],
    weight: Floats,
    penalty: float,
    *,
    intercept: bool = True,
) -> LogisticState:
    """Return the state without rows that were seen, refitted.

    Moments are subtracted exactly; gradients are those at the model of now.
    """
    rows = Moments.empty(X.shape[1], len(state.tilt))
    after = state.moments.subtract(rows.update(X, one_hot(codes, len(state.tilt)), weight))
    if not after.weight:
        return LogisticState.empty(X.shape[1], len(state.tilt))
    coef, tilt = state.coef.copy(), state.tilt.copy()
    for k in _problems(after):
        row_term = RowTerm(X, (codes == k).astype(np.float64), weight)
        lost = _gradient(state.moments, coef[k]) - _gradient(after, coef[k])
        tilt[k] -= _slopes(row_term, coef[k]) - lost
        frame = _Frame.of(after, penalty, intercept)
        terms = [*frame.past(after, k, tilt[k]), frame.penalty]
        coef[k] = frame.back(minimize(terms, frame.to(coef[k])))
    return _mirrored(LogisticState(after, tilt, coef))


@dataclass(frozen=True, eq=False)
class GlmFit:
    """A model of one target, fitted to kept rows and corrected by what is known of all rows.

    Attributes
    ----------
    coef, error : (d + 1,) arrays
        The last one is the intercept. Standard errors have two parts: that of a fit to all rows,
        with the curvature of the kept ones, and what was left to be estimated by the kept rows.
    loss : float
        Weighted mean loss of the kept rows: A(x'b) - y x'b.
    corrected : bool
        Whether the correction was taken; False: the kept rows alone, weighted.
    """

    coef: Floats
    error: Floats
    loss: float
    corrected: bool


def fit_kept_rows(
    moments: Moments,
    rows: RowTerm,
    penalty: float,
    *,
    target: int = 0,
    sampled: Floats | None = None,
    tilt: Floats | None = None,
    residuals: Floats | None = None,
    start: Floats | None = None,
) -> GlmFit:
    """Fit a model to weighted rows that stand for all rows of the moments, and correct it.

    The gradient of all rows at b is g(b) = sum w (A'(x'b) - y) (x, 1). The kept rows' own is an
    estimate of it; what is known of all rows makes it a better one:

    - with a `tilt`, the gradient of all rows where the model was when they came, less that of the
      kept rows there, only what has changed since is left to be estimated;
    - of what is left, A' - y or its change, the part linear in (x, 1, y) is found by a regression
      on the kept rows. Its sums times (x, 1) are known from the moments, so that only the rest is
      estimated (a difference estimator, as for totals).

    Both are a linear term beside the loss of the kept rows, with a multiple of their curvature for
    damping. The corrected fit is taken if its loss on the kept rows, which estimates that of all,
    is no more above that of the fit to the kept rows than the latter's optimism could be.

    Parameters
    ----------
    moments : Moments
        Of all rows.
    rows : RowTerm
        The kept ones.
    penalty : float
        Its half times the squared coefficients is added to the loss of all rows.
    target : int
        The column of the moments' y that `rows` has.
    sampled : (n,) array, optional
        Of each kept row the variance, by sampling, of what it adds to a sum of ones: w (w - w0)
        for a row of weight w that came with w0. By default none: the rows are all there are.
    tilt : (d + 1,) array, optional
    residuals : (n,) array, optional
        With a tilt, A' - y of the kept rows where the model was when they came.
    start : (d + 1,) array, optional
        The last model, where the corrected fit begins; by default the fit to the kept rows.
    """
    frame = _Frame.of(moments, penalty, intercept=True)
    local = frame.rows(rows)
    Z = np.column_stack([local.X, np.ones(len(local.X))])
    plain = minimize([local, frame.penalty], np.zeros(Z.shape[1]))
    known = np.zeros(len(Z)) if residuals is None else residuals
    traced = np.zeros(Z.shape[1]) if tilt is None else frame.tilt(tilt)
    found = plain if start is None or not start.any() else frame.to(start)
    for _ in range(2):
        linear = _fit_slopes(local, Z, found, known)
        c = traced + _linear_part(moments, frame, local, Z, target, linear)
        found = _tilted(local, frame, Z, c, found)
    worth = float(local.weight.sum() ** 2 / (local.weight**2).sum())
    room = local.weight.sum() * Z.shape[1] / worth
    corrected = bool(np.isfinite(found).all() and local(found)[0] <= local(plain)[0] + room)
    best = found if corrected else plain
    value, _, hessian = local(best)
    whole = hessian + frame.penalty(best)[2]
    if sampled is not None:
        left = _link(Z @ best, local.family)[1] - local.y
        if corrected:
            left = left - known - np.column_stack([Z, local.y]) @ linear
        left = Z * (left * np.sqrt(sampled))[:, None]
        hessian = hessian + left.T @ left
    inverse = _inverse(whole)
    spread = inverse @ hessian @ inverse
    back = np.diag(np.append(frame.scale, 1.0))
    back[-1, :-1] = -frame.mean * frame.scale
    error = np.sqrt(np.einsum("ij,jk,ik->i", back, spread, back).clip(0))
    loss = value / float(local.weight.sum())
    return GlmFit(frame.back(best), error, loss, corrected)


def _problems(moments: Moments) -> Sequence[int]:
    """Return the classes to be fitted against the rest: of two, the second; of one, none."""
    if moments.targets == 2:
        return [1]
    return [] if moments.targets < 2 else range(moments.targets)


def _mirrored(state: LogisticState) -> LogisticState:
    """Return the state with the first of two classes as the opposite of the second."""
    if len(state.tilt) == 2:
        state.tilt[0], state.coef[0] = -state.tilt[1], -state.coef[1]
    return state


def _slopes(rows: RowTerm, b: Floats) -> Floats:
    """Return sum w A'(x'b) (x, 1) over rows."""
    slope = rows.weight * special.expit(rows.X @ b[:-1] + b[-1])
    return np.append(rows.X.T @ slope, slope.sum())


def _gradient(moments: Moments, b: Floats) -> Floats:
    return _gaussians(moments)(b)[1] if moments.weight else np.zeros(len(b))


def _gaussians(moments: Moments) -> GaussianTerm:
    """Return all rows as normal distributions, one for each class."""
    counts = moments.target_mean * moments.weight
    present = counts > 1e-9 * moments.weight
    offsets = moments.cross[:, present] / counts[present]
    within = (moments.scatter - (offsets * counts[present]) @ offsets.T) / moments.weight
    return GaussianTerm(counts[present], (moments.mean[:, None] + offsets).T, within)


@dataclass(frozen=True, eq=False)
class _Frame:
    """Columns centred and scaled as rows seen suggest: coefficients b of x, a of the frame."""

    mean: Floats
    scale: Floats
    ridge: Floats

    @classmethod
    def of(cls, moments: Moments, penalty: float, intercept: bool) -> _Frame:
        squares = moments.scatter.diagonal() / moments.weight
        live = squares > 2 * moments.noise / moments.weight
        scale = np.where(live, 1 / np.sqrt(np.where(live, squares, 1.0)), 1.0)
        mean = moments.mean if intercept else np.zeros(moments.columns)
        # Without an intercept it is held at zero; the rest keeps constant columns from drifting.
        tiny = 1e-10 * moments.weight
        ridge = np.append(penalty * scale**2 + tiny, 0.0 if intercept else 1e12 * moments.weight)
        return cls(mean, scale, ridge)

    @property
    def penalty(self) -> Term:
        return QuadraticTerm(np.diag(self.ridge), np.zeros(len(self.ridge)))

    def to(self, b: Floats) -> Floats:
        return np.append(b[:-1] / self.scale, b[-1] + self.mean @ b[:-1])

    def back(self, a: Floats) -> Floats:
        b = a[:-1] * self.scale
        return np.append(b, a[-1] - self.mean @ b)

    def tilt(self, c: Floats) -> Floats:
        """Return a linear term's coefficients in the frame."""
        return np.append((c[:-1] - self.mean * c[-1]) * self.scale, c[-1])

    def rows(self, term: RowTerm) -> RowTerm:
        return replace(term, X=(term.X - self.mean) * self.scale)

    def past(self, moments: Moments, k: int, tilt: Floats) -> list[Term]:
        """Return the terms of rows that are gone, for class k against the rest."""
        if not moments.weight:
            return []
        raw = _gaussians(moments)
        gaussians = replace(
            raw,
            means=(raw.means - self.mean) * self.scale,
            covariance=raw.covariance * self.scale[:, None] * self.scale,
        )
        count = moments.target_mean[k] * moments.weight
        about = moments.cross[:, k] + count * (moments.mean - self.mean)
        c = np.append((tilt[:-1] - self.mean * tilt[-1] - about) * self.scale, tilt[-1] - count)
        return [gaussians, LinearTerm(c)]


def fit_beside_past(
    moments: Moments, past: RowTerm, tilt: Floats, about: Floats, new: RowTerm, penalty: float
) -> Floats:
    """Return the coefficients (d + 1,) fitted to new rows and to a past that kept rows stand for.

    Parameters
    ----------
    moments : Moments
        Of everything.
    past : RowTerm
        Kept rows; there may be none.
    tilt : (d + 1,) array
        What is to be added to their gradient for that of all past rows.
    about : (d + 1,) array
        The model so far, about which the past is damped; zero if there is none.
    new : RowTerm
    penalty : float
    """
    frame = _Frame.of(moments, penalty, intercept=True)
    start = frame.to(about)
    terms: list[Term] = [frame.rows(new), frame.penalty]
    if len(past.X):
        local = frame.rows(past)
        terms += [local, LinearTerm(frame.tilt(tilt))]
        if about.any():
            Z = np.column_stack([local.X, np.ones(len(local.X))])
            terms.append(QuadraticTerm(_damping(local, Z, start), start))
    return frame.back(minimize(terms, start))


def slopes(t: Floats, family: Family) -> Floats:
    """Return A'(t), the mean of y."""
    return _link(t, family)[1]


def _damping(rows: RowTerm, Z: Floats, about: Floats) -> Floats:
    curvature = rows.weight * _link(Z @ about, rows.family)[2]
    return np.asarray(DAMPING * (Z * curvature[:, None]).T @ Z, np.float64)


def _tilted(rows: RowTerm, frame: _Frame, Z: Floats, c: Floats, about: Floats) -> Floats:
    """Minimise the rows' loss + c'b + damping about a model, penalised."""
    J = _damping(rows, Z, about)
    return minimize([rows, LinearTerm(c), QuadraticTerm(J, about), frame.penalty], about)


def _fit_slopes(rows: RowTerm, Z: Floats, b: Floats, known: Floats) -> Floats:
    """Return the coefficients h of (x, 1, y) in a regression of A' - y - known on them."""
    left = _link(Z @ b, rows.family)[1] - rows.y - known
    weighted = np.column_stack([Z, rows.y]) * rows.weight[:, None]
    ridge = 1e-3 * np.linalg.norm(weighted, axis=0)
    right = np.append(left * rows.weight, np.zeros(weighted.shape[1]))
    h = np.linalg.lstsq(np.vstack([weighted, np.diag(ridge)]), right, rcond=None)[0]
    return np.asarray(h, np.float64)


def _linear_part(
    moments: Moments, frame: _Frame, rows: RowTerm, Z: Floats, target: int, h: Floats
) -> Floats:
    """Return sum over all rows less sum over the kept of (x, 1, y)'h (x, 1)."""
    weighted = np.column_stack([Z, rows.y]) * rows.weight[:, None]
    d = moments.columns
    scatter = np.asarray(moments.scatter, np.float64) * frame.scale[:, None] * frame.scale
    of_y = moments.cross[:, target] * frame.scale
    everything = np.append(scatter @ h[:d] + of_y * h[-1], 0.0)
    everything[-1] = moments.weight * (h[d] + moments.target_mean[target] * h[-1])
    return np.asarray(everything - Z.T @ (weighted @ h), np.float64)


def _link(t: Floats, family: Family) -> tuple[Floats, Floats, Floats]:
    """Return A, A' and A''."""
    if family == "poisson":
        e = np.exp(t)
        return e, e, e
    p = special.expit(t)
    return np.logaddexp(0.0, t), p, p * (1 - p)


def _derivatives(t: Floats, family: Family) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return A and its first four derivatives."""
    value, p, q = _link(t, family)
    if family == "poisson":
        return value, p, q, q, q
    return value, p, q, q * (1 - 2 * p), q * (1 - 6 * q)


def _bordered(inner: Floats, side: Floats, corner: float) -> Floats:
    d = len(side)
    matrix = np.empty((d + 1, d + 1))
    matrix[:d, :d], matrix[:d, d], matrix[d, :d], matrix[d, d] = inner, side, side, corner
    return matrix


def _solve_damped(H: Floats, g: Floats) -> Floats:
    """Solve (H + damping) x = g, scaled to a unit diagonal, with as little damping as works."""
    diagonal = H.diagonal()
    scale = 1 / np.sqrt(np.maximum(abs(diagonal), 1e-12 * abs(diagonal).max() + 1e-300))
    C = H * scale[:, None] * scale
    damping = 1e-13
    while damping < 1e6:
        try:
            factor = linalg.cho_factor(C + damping * np.eye(len(C)), check_finite=False)
            return np.asarray(linalg.cho_solve(factor, g * scale) * scale, np.float64)
        except np.linalg.LinAlgError:
            damping *= 100
    return np.asarray(g * scale**2, np.float64)


def _inverse(H: Floats) -> Floats:
    return np.column_stack([_solve_damped(H, e) for e in np.eye(len(H))])
