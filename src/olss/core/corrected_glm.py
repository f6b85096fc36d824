"""Logistic and Poisson models fitted to kept rows, corrected by what is known of all rows.

The kept rows' gradient estimates that of all rows. Of each row's share in it a part is predicted by
functions whose sums over all rows are known, from the moments or because a model was followed
through the stream (`olss.core.gradient_trace`), and only the rest is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.glm import Frame, LinearTerm, QuadraticTerm, RowTerm, Term, invert, link, minimize
from olss.core.moments import Moments

Floats = NDArray[np.float64]
DAMPING = 0.5  # of a corrected fit, as a fraction of the curvature
STEPS = 8  # of a refit at most: the gradient is exact wherever the model is, it need only be near


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


@dataclass(frozen=True, eq=False)
class Followed:
    """What is known of the gradient of all rows, by one model that was refitted as they came.

    Row i came when the model was b_i. All are zero for rows that came before there was a model.

    Attributes
    ----------
    model : (d + 1,) array
        The last.
    gradient, pull : (d + 1,) arrays
        Over all rows, sum w (A'(x'b_i) - y) (x, 1) and sum w A''(x'b_i) x'b_i (x, 1).
    curvature : (d + 1, d + 1) array or None
        sum w A''(x'b_i) (x, 1)(x, 1)'.
    scores, slopes, bends : (n,) arrays
        Of kept rows: x'b_i, A'(x'b_i) and A''(x'b_i).
    """

    model: Floats
    gradient: Floats
    pull: Floats
    curvature: Floats | None
    scores: Floats
    slopes: Floats
    bends: Floats

    def transform(self, A: Floats) -> Followed:
        """Return the same of points A (x, 1)."""
        J = None if self.curvature is None else A @ self.curvature @ A.T
        model = np.asarray(np.linalg.solve(A.T, self.model), np.float64)
        return replace(
            self, model=model, gradient=A @ self.gradient, pull=A @ self.pull, curvature=J
        )


def fit_kept_rows(
    moments: Moments,
    rows: RowTerm,
    penalty: float,
    *,
    target: int = 0,
    sampled: Floats | None = None,
    followed: Followed | None = None,
) -> GlmFit:
    """Fit a model to weighted rows that stand for all rows of the moments, and correct it.

    The gradient of all rows at b is g(b) = sum w (A'(x'b) - y) (x, 1). The kept rows' own is an
    estimate of it. Sums over all rows improve it: of each row's A' - y a part is predicted, by
    functions whose sums times (x, 1) over all rows are known, and only the rest is estimated (a
    difference estimator, as for totals). The predictions are

    - of a model that was followed, A' - y where the model was when the row came, and its change
      since, as far as it is linear;
    - a regression of the rest on (x, 1, y), from the moments.

    Their sums are a linear term beside the loss of the kept rows, damped by a multiple of the
    curvature of all rows, or of the kept ones. Of a followed model the fit is made with and without
    the second prediction; the one with the lower loss on kept rows that are left out (to first
    order) is taken, unless that is above that of the fit to the kept rows alone by more than two
    standard errors.

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
    followed : Followed, optional
    """
    frame = Frame.of(moments, penalty, intercept=True)
    local = frame.rows(rows)
    Z = local.points
    alone = minimize([local, frame.penalty], np.zeros(Z.shape[1]))
    plain = _Candidate.of(local, [local, frame.penalty], alone, 0.0)
    past = None if followed is None else followed.transform(frame.matrix.T)
    sums = _Sums(moments, frame, target)
    ways = [sums] if past is None else [None, sums]
    fits = [_fit_corrected(local, frame, past, way, alone) for way in ways]
    best = min(fits, key=lambda fit: float(fit.left_out.sum()))
    worse = best.left_out - plain.left_out
    corrected = bool(worse.sum() <= 2 * np.sqrt((worse**2).sum()))
    best = best if corrected else plain
    value, _, hessian = local(best.coef)
    moved = invert(hessian + frame.penalty(best.coef)[2]) @ frame.matrix.T
    bend = link(Z @ best.coef, local.family)[2]
    variance = (((Z * np.sqrt(local.weight * bend)[:, None]) @ moved) ** 2).sum(axis=0)
    if sampled is not None:
        variance += (((Z * (best.left * np.sqrt(sampled))[:, None]) @ moved) ** 2).sum(axis=0)
    loss = value / float(local.weight.sum())
    return GlmFit(frame.back(best.coef), np.sqrt(variance), loss, corrected)


def fit_beside_past(
    moments: Moments, kept: RowTerm, followed: Followed, new: RowTerm, penalty: float
) -> Floats:
    """Return the coefficients (d + 1,) fitted to new rows and to a past that kept rows stand for.

    Parameters
    ----------
    moments : Moments
        Of everything.
    kept : RowTerm
        Rows of the past; there may be none.
    followed : Followed
        What is known of the past.
    new : RowTerm
    penalty : float
    """
    frame = Frame.of(moments, penalty, intercept=True)
    local, past = frame.rows(kept), followed.transform(frame.matrix.T)
    c, _ = _tilt(local, past.model, past)
    terms: list[Term] = [frame.rows(new), frame.penalty, local, LinearTerm(c)]
    if past.model.any():
        terms.append(_damping(local, past.model, past))
    return frame.back(minimize(terms, past.model, STEPS))


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Coefficients in the frame, and how far they are from the kept rows.

    Attributes
    ----------
    coef : (d + 1,) array
    left : (n,) array
        Of each kept row A' - y, less what was predicted of it.
    left_out : (n,) array
        The weighted loss of each, had it been left out of the fit, by one Newton step.
    """

    coef: Floats
    left: Floats
    left_out: Floats

    @classmethod
    def of(cls, rows: RowTerm, terms: Sequence[Term], b: Floats, predicted: Any) -> _Candidate:
        """Return the minimum of some terms, `rows` among them."""
        Z, t = rows.points, rows.points @ b
        _, slope, bend = link(t, rows.family)
        left = slope - rows.y - predicted
        inverse = invert(np.sum([term(b)[2] for term in terms], axis=0))
        pull = rows.weight * ((Z @ inverse) * Z).sum(axis=1)
        step = left * pull / np.maximum(1 - bend * pull, 1e-6)
        t = t + step.clip(-30, 30)  # exp stays finite
        return cls(b, left, rows.weight * (link(t, rows.family)[0] - rows.y * t))


def _fit_corrected(
    rows: RowTerm, frame: Frame, past: Followed | None, sums: _Sums | None, start: Floats
) -> _Candidate:
    """Fit twice, the second time corrected at the first fit."""
    b = start if past is None or not past.model.any() else past.model
    for _ in range(2):
        c, predicted = _tilt(rows, b, past, sums)
        terms: list[Term] = [rows, LinearTerm(c), _damping(rows, b, past), frame.penalty]
        b = minimize(terms, b)
    return _Candidate.of(rows, terms, b, predicted)


def _tilt(
    rows: RowTerm, b: Floats, past: Followed | None, sums: _Sums | None = None
) -> tuple[Floats, Floats]:
    """Return what to add to the kept rows' gradient near b, and what is predicted of A' - y."""
    Z, w, t = rows.points, rows.weight, rows.points @ b
    left = link(t, rows.family)[1] - rows.y
    c, predicted = np.zeros(len(b)), np.zeros(len(t))
    if past is not None:
        c, predicted = past.gradient, past.slopes - rows.y
        if past.curvature is not None:
            change = past.bends * (t - past.scores)
            about = float((w**2 * change) @ (left - predicted))
            share = min(max(about / max(float(w**2 @ change**2), 1e-300), 0.0), 1.0)
            predicted = predicted + share * change
            c = c + share * (past.curvature @ b - past.pull)
    if sums is not None:
        h, of_rows = _regress(left - predicted, Z, rows.y, w)
        predicted, c = predicted + of_rows, c + sums.of(h)
    return c - Z.T @ (w * predicted), predicted


def _damping(rows: RowTerm, b: Floats, past: Followed | None) -> Term:
    known = None if past is None else past.curvature
    return QuadraticTerm(DAMPING * (rows(b)[2] if known is None else known), b)


def _regress(left: Floats, Z: Floats, y: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients h of (x, 1, y) in a weighted regression, and its values."""
    points = np.column_stack([Z, y])
    weighted = points * w[:, None]
    ridge = 1e-3 * np.linalg.norm(weighted, axis=0)
    right = np.append(left * w, np.zeros(len(ridge)))
    h = np.linalg.lstsq(np.vstack([weighted, np.diag(ridge)]), right, rcond=None)[0]
    return h, points @ h


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of functions linear in (x, 1, y) times (x, 1) over all rows, in a frame."""

    moments: Moments
    frame: Frame
    target: int

    def of(self, h: Floats) -> Floats:
        """Return sum w (x, 1, y)'h (x, 1)."""
        moments, scale, d = self.moments, self.frame.scale, self.moments.columns
        of_x = moments.scatter @ (h[:d] * scale) + moments.cross[:, self.target] * h[-1]
        of_one = moments.weight * (h[d] + moments.target_mean[self.target] * h[-1])
        return np.append(of_x * scale, of_one)
