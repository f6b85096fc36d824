"""Logistic and Poisson models of rows that are gone: objectives as sums of terms, minimised.

The loss of a generalised linear model is sum w [A(x'b) - y x'b], with A(t) = log(1 + exp t) for
classes and exp t for counts. The second half is linear, so exact from moments. The first is not a
function of moments, and is carried in two ways, both corrected by exact gradients:

- **Gaussian past** (`GaussianTerm`): A is averaged over normal distributions with the means of the
  classes and their common covariance, all rows' exactly. It needs no rows at all.
- **Kept rows** (`RowTerm`): A is summed over a weighted sample, with a multiple of the curvature of
  everything seen (`QuadraticTerm`) for damping; see `olss.core.corrected_glm`.

After each batch the model is refitted to the past and the batch; the exact gradient of the batch
there, less what the past's stand-in gains by the batch, goes into a tilt c (`LinearTerm`). So the
refit's gradient is exact at the point where the model is, and its shape elsewhere approximate. What
renewable estimation (Luo & Song 2020) does with one quadratic form, which fails when classes come
one after the other, this does with a convex function that has the right growth in every direction.

Coefficients b are (d + 1,) vectors for (x, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from olss.core.moments import Moments, one_hot
from olss.util import linalg, special
from olss.util.threads import cached_property

Floats = NDArray[np.float64]
Family = Literal["logistic", "poisson"]
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

    @cached_property
    def points(self) -> Floats:
        """(n, d + 1) the rows with a one."""
        return np.column_stack([self.X, np.ones(len(self.X))])

    def __call__(self, b: Floats) -> Value:
        """Return value, gradient and Hessian."""
        Z, w = self.points, self.weight
        t = Z @ b
        value, slope, bend = link(t, self.family)
        hessian = (Z * (w * bend)[:, None]).T @ Z
        return float(w @ (value - self.y * t)), Z.T @ (w * (slope - self.y)), hessian


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
    after = state.moments.update(X, one_hot(codes, len(state.tilt)), weight)
    rows = partial(_rows_of_class, X, codes, weight)
    return _refit(after, [state], state.coef, penalty, intercept, rows)


def merge_logistic(
    a: LogisticState, b: LogisticState, penalty: float, *, intercept: bool = True
) -> LogisticState:
    """Return the state of both, classes in the same order: fitted to the sum of their pasts."""
    if not (a.moments.weight and b.moments.weight):
        return a if a.moments.weight else b
    return _refit(a.moments.merge(b.moments), [a, b], a.coef, penalty, intercept)


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
    tilt = state.tilt.copy()
    for k in _problems(after):
        b = state.coef[k]
        lost = _gradient(state.moments, b) - _gradient(after, b)
        tilt[k] -= _slopes(_rows_of_class(X, codes, weight, k), b) - lost
    left = LogisticState(after, tilt, state.coef)
    return _refit(after, [left], state.coef, penalty, intercept)


def _refit(
    moments: Moments,
    pasts: Sequence[LogisticState],
    start: Floats,
    penalty: float,
    intercept: bool,
    rows: Callable[[int], RowTerm] | None = None,
) -> LogisticState:
    """Return the state of all of some pasts and rows, fitted to their sum.

    The tilt takes up the gradient of each part there, less that of the Gaussian past of all.
    """
    coef, tilt = start.copy(), np.sum([past.tilt for past in pasts], axis=0)
    for k in _problems(moments):
        frame = Frame.of(moments, penalty, intercept)
        terms = [term for past in pasts for term in frame.past(past.moments, k, past.tilt[k])]
        new = [] if rows is None else [rows(k)]
        terms += [*map(frame.rows, new), frame.penalty]
        coef[k] = b = frame.back(minimize(terms, frame.to(coef[k])))
        gradients = [_gradient(past.moments, b) for past in pasts] + [_slopes(r, b) for r in new]
        tilt[k] += np.sum(gradients, axis=0) - _gradient(moments, b)
    if len(tilt) == 2:  # the first of two classes is the opposite of the second
        tilt[0], coef[0] = -tilt[1], -coef[1]
    return LogisticState(moments, tilt, coef)


def _rows_of_class(X: Floats, codes: NDArray[np.integer[Any]], weight: Floats, k: int) -> RowTerm:
    """Return rows with class k against the rest."""
    return RowTerm(X, (codes == k).astype(np.float64), weight)


def _problems(moments: Moments) -> Sequence[int]:
    """Return the classes to be fitted against the rest: of two, the second; of one, none."""
    if moments.targets == 2:
        return [1]
    return [] if moments.targets < 2 else range(moments.targets)


def _slopes(rows: RowTerm, b: Floats) -> Floats:
    """Return sum w A'(x'b) (x, 1) over rows."""
    return rows.points.T @ (rows.weight * link(rows.points @ b, rows.family)[1])


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
class Frame:
    """Columns centred and scaled as rows seen suggest: coefficients b of x, a of the frame."""

    mean: Floats
    scale: Floats
    ridge: Floats

    @classmethod
    def of(cls, moments: Moments, penalty: float, intercept: bool) -> Frame:
        """Return the frame of the rows that the moments are of."""
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
        """The penalty on coefficients of x, for coefficients of the frame."""
        return QuadraticTerm(np.diag(self.ridge), np.zeros(len(self.ridge)))

    def to(self, b: Floats) -> Floats:
        """Return coefficients of the frame."""
        return np.append(b[:-1] / self.scale, b[-1] + self.mean @ b[:-1])

    def back(self, a: Floats) -> Floats:
        """Return coefficients of x."""
        b = a[:-1] * self.scale
        return np.append(b, a[-1] - self.mean @ b)

    @property
    def matrix(self) -> Floats:
        """T with b = T a."""
        T = np.diag(np.append(self.scale, 1.0))
        T[-1, :-1] = -self.mean * self.scale
        return T

    def rows(self, term: RowTerm) -> RowTerm:
        """Return rows in the frame."""
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


def link(t: Floats, family: Family) -> tuple[Floats, Floats, Floats]:
    """Return A, A' and A'' at t."""
    if family == "poisson":
        e = np.exp(t)
        return e, e, e
    p = special.expit(t)
    return np.logaddexp(0.0, t), p, p * (1 - p)


def _derivatives(t: Floats, family: Family) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return A and its first four derivatives."""
    value, p, q = link(t, family)
    if family == "poisson":
        return value, p, q, q, q
    return value, p, q, q * (1 - 2 * p), q * (1 - 6 * q)


def _solve_damped(H: Floats, g: Floats) -> Floats:
    """Solve (H + damping) x = g, scaled to a unit diagonal, with as little damping as works."""
    diagonal = H.diagonal()
    scale = 1 / np.sqrt(np.maximum(abs(diagonal), 1e-12 * abs(diagonal).max() + 1e-300))
    C, g = H * scale[:, None] * scale, (g.T * scale).T
    damping = 1e-13
    while damping < 1e6:
        try:
            factor = linalg.cho_factor(C + damping * np.eye(len(C)), check_finite=False)
            g = linalg.cho_solve(factor, g)
            break
        except np.linalg.LinAlgError:
            damping *= 100
    return np.asarray((g.T * scale).T, np.float64)


def invert(H: Floats) -> Floats:
    """Return the inverse of a Hessian, damped if it has none."""
    return _solve_damped(H, np.eye(len(H)))
