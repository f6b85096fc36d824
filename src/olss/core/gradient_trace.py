"""The exact gradient of a logistic or Poisson model over a stream whose rows are gone.

When rows come, the model of that moment is refitted, to the kept rows that stand for the past and
to the new ones, and the exact gradient of the new rows there, sum w (A'(x'b) - y) (x, 1), is added
up. So later the gradient of everything seen at any b is that sum plus what the kept rows say has
changed since: sum over kept rows of w (A'(x'b) - A'(x'b_i)) (x, 1), b_i being the model when row i
came. That difference is small where models have hardly moved, which makes the sampling error of the
kept rows one of second order. Which model was there when a row came follows from its position in
the stream, so nothing is stored with the rows.

The part of that difference that is linear in b is known too, from the curvature of the new rows,
which is added up as well: renewable estimation (Luo & Song 2020), which keeps no rows, takes it for
the whole and fails on ordered streams. Here the kept rows estimate the rest, and how much of the
linear part to take (`olss.core.corrected_glm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.corrected_glm import Followed, fit_beside_past
from olss.core.glm import Family, RowTerm, link
from olss.core.moments import Moments
from olss.util.threads import call_with_one_blas_thread

__all__ = ["MOST_MODELS", "GlmRows", "GradientTrace"]

Floats = NDArray[np.float64]

MOST_MODELS = 64  # classes, each of which has a model against the rest
SAMPLE_ROWS = 4_096  # of a batch, to which the model is refitted
REFIT = 16  # the model is refitted whenever rows have grown by one in so many
MOST_CURVATURE = 2**22  # numbers of it that are kept: 32 MB


@dataclass(frozen=True, eq=False)
class GlmRows:
    """Rows with targets.

    Attributes
    ----------
    X : (n, d) array
    y : (n, k) array
        One-hot classes, or counts.
    weight : (n,) array
    index : (n,) int array
        Positions in the stream.
    """

    X: Floats
    y: Floats
    weight: Floats
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    @staticmethod
    def concat(parts: Sequence[GlmRows]) -> GlmRows:
        """Return several rows as one."""
        return GlmRows(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.weight for part in parts]),
            np.concatenate([part.index for part in parts]),
        )

    def take(self, at: NDArray[np.intp]) -> GlmRows:
        """Return some of the rows."""
        return GlmRows(self.X[at], self.y[at], self.weight[at], self.index[at])

    def thin(self, most: int) -> GlmRows:
        """Return at most about so many rows, evenly spaced, that stand for all."""
        there = np.flatnonzero(self.weight)
        step = -(-len(there) // most)
        if step <= 1:
            return self
        some = self.take(there[step // 2 :: step])
        return replace(some, weight=some.weight * (self.weight.sum() / some.weight.sum()))


@dataclass(frozen=True, eq=False)
class GradientTrace:
    """The gradient of everything seen, at the models of its time; methods return a new value.

    Attributes
    ----------
    family : {"logistic", "poisson"}
    classes : tuple
        One model each, against the rest; of counts, a single None.
    gradient : (k, d + 1) array
        sum w (A'(x'b) - y) (x, 1), b the model when the row came; 0 in its place before any.
    starts : (m,) int array
        Positions in the stream from which models hold.
    models : (m, k, d + 1) array
        NaN before the first rows of a class.
    pull : (k, d + 1) array
        sum w A''(x'b) x'b (x, 1).
    curvature : (k, d + 1, d + 1) array or None
        sum w A''(x'b) (x, 1)(x, 1)', of large batches estimated by some of their rows; None if
        there are too many classes and columns.
    """

    family: Family
    classes: tuple[Any, ...]
    gradient: Floats
    starts: NDArray[np.int64]
    models: Floats = field(metadata={"finite": False})
    pull: Floats
    curvature: Floats | None

    @classmethod
    def empty(cls, family: Family, columns: int) -> GradientTrace:
        """Return the trace of no rows."""
        classes = (None,) if family == "poisson" else ()
        zero = np.zeros((len(classes), columns + 1))
        models = np.zeros((0, *zero.shape))
        known = zero.size * (columns + 1) <= MOST_CURVATURE
        J = np.zeros((*zero.shape, columns + 1)) if known else None
        return cls(family, classes, zero, np.zeros(0, np.int64), models, zero, J)

    @property
    def last(self) -> Floats:
        """(k, d + 1) the latest models; zero where there is none."""
        if not len(self.models):
            return np.zeros_like(self.gradient)
        last: Floats = np.nan_to_num(self.models[-1])
        return last

    def arrange(self, classes: tuple[Any, ...]) -> GradientTrace:
        """Return the trace with these classes, among which are those it has."""
        if classes == self.classes:
            return self
        at = [classes.index(label) for label in self.classes]
        k, wide = len(classes), self.gradient.shape[1]
        gradient, pull = np.zeros((2, k, wide))
        models = np.full((len(self.models), k, wide), np.nan)
        gradient[at], models[:, at], pull[at] = self.gradient, self.models, self.pull
        J = None
        if self.curvature is not None and k * wide**2 <= MOST_CURVATURE:
            J = np.zeros((k, wide, wide))
            J[at] = self.curvature
        return replace(
            self, classes=classes, gradient=gradient, models=models, pull=pull, curvature=J
        )

    def evaluate(self, rows: GlmRows) -> tuple[Floats, Floats, Floats]:
        """Return three (n, k) arrays: x'b, A' and A'' at the models of the rows' time, or zero."""
        found = np.zeros((3, *rows.y.shape))
        time = np.searchsorted(self.starts, rows.index, side="right") - 1
        for number in np.unique(time[time >= 0]):
            at, model = np.flatnonzero(time == number), self.models[number]
            known = np.isfinite(model).all(axis=1)
            t = rows.X[at] @ model[known, :-1].T + model[known, -1]
            _, slope, bend = link(t, self.family)
            found[np.ix_(np.arange(3), at, known)] = t, slope, bend
        scores, slopes, bends = found
        return scores, slopes, bends

    def gradient_of(self, rows: GlmRows) -> Floats:
        """(k, d + 1) sum w (A' - y) (x, 1) of rows at the models of their time."""
        r = (self.evaluate(rows)[1] - rows.y) * rows.weight[:, None]
        return np.column_stack([r.T @ rows.X, r.sum(axis=0)])

    def follow(self, kept: GlmRows) -> list[Followed]:
        """Return what is known of each model's past, the kept rows standing for it."""
        scores, slopes, bends = self.evaluate(kept)
        return [
            Followed(
                model=self.last[k],
                gradient=self.gradient[k],
                pull=self.pull[k],
                curvature=None if self.curvature is None else self.curvature[k],
                scores=scores[:, k],
                slopes=slopes[:, k],
                bends=bends[:, k],
            )
            for k in range(len(self.gradient))
        ]

    def _add_curvature(self, rows: GlmRows, sign: float = 1.0) -> GradientTrace:
        """Return the trace with the curvature of rows at the models of their time."""
        if self.curvature is None:
            return self
        J, pull = self.curvature.copy(), self.pull.copy()
        Z = np.column_stack([rows.X, np.ones(len(rows))])
        scores, _, bends = self.evaluate(rows)
        for k in self._problems():
            weighted = Z * (sign * rows.weight * bends[:, k])[:, None]
            J[k] += weighted.T @ Z
            pull[k] += weighted.T @ scores[:, k]
        if self.family == "logistic" and len(J) == 2:
            J[0], pull[0] = J[1], -pull[1]
        return replace(self, curvature=J, pull=pull)

    def update(
        self,
        moments: Moments,
        kept: GlmRows,
        blocks: Sequence[GlmRows],
        penalty: float = 1.0,
    ) -> GradientTrace:
        """Return the trace with a batch in it.

        Parameters
        ----------
        moments : Moments
            Of everything, the batch included.
        kept : GlmRows
            Those that stand for the past.
        blocks : sequence of GlmRows
            The rows of the batch, in their order.
        penalty : float
            On the squared coefficients, for the refit.
        """
        first = int(blocks[0].index[0])
        trace = self
        batch = GlmRows.concat([b.thin(SAMPLE_ROWS // len(blocks) + 1) for b in blocks])
        if self._has_no_model or first - self.starts[-1] >= first / REFIT:
            past, coef = self.follow(kept), np.full_like(self.gradient, np.nan)
            for k in self._problems():
                known = RowTerm(kept.X, kept.y[:, k], kept.weight, self.family)
                new = RowTerm(batch.X, batch.y[:, k], batch.weight, self.family)
                fit = partial(fit_beside_past, moments, known, past[k], new, penalty)
                coef[k] = call_with_one_blas_thread(fit, columns=moments.columns)
            if len(coef) == 2:
                coef[0] = -coef[1]
            trace = replace(
                self,
                starts=np.append(self.starts, first),
                models=np.concatenate([self.models, coef[None]]),
            )
        added = sum((trace.gradient_of(block) for block in blocks), np.zeros_like(self.gradient))
        add_curvature = partial(trace._add_curvature, batch)
        trace = call_with_one_blas_thread(add_curvature, columns=moments.columns)
        return replace(trace, gradient=self.gradient + added)

    @property
    def _has_no_model(self) -> bool:
        """Whether none has been fitted, or none of some class."""
        return not len(self.models) or bool(np.isnan(self.models[-1][self._problems()]).any())

    def _problems(self) -> range:
        """Return the models to be fitted: of two classes the second; of one, none."""
        if self.family == "logistic" and len(self.classes) <= 2:
            return range(1, len(self.classes))
        return range(len(self.classes))

    def subtract(self, rows: GlmRows) -> GradientTrace:
        """Return the trace without rows that are in it."""
        less = self._add_curvature(rows, -1.0)
        J = less.curvature
        if J is not None:  # of a sample of large batches: more than there was of a direction may go
            values, vectors = np.linalg.eigh(J)
            J = (vectors * values.clip(0)[:, None]) @ vectors.transpose(0, 2, 1)
        return replace(less, gradient=self.gradient - self.gradient_of(rows), curvature=J)

    def scale(self, factor: float) -> GradientTrace:
        """Return the trace with all weights multiplied."""
        J = None if self.curvature is None else self.curvature * factor
        return replace(self, gradient=self.gradient * factor, pull=self.pull * factor, curvature=J)

    def merge(self, other: GradientTrace, seen: int) -> GradientTrace:
        """Return the trace of both, the other's rows coming after the `seen` rows of this one."""
        if self.family == "logistic":
            classes = tuple(sorted({*self.classes, *other.classes}))
            a, b = self.arrange(classes), other.arrange(classes)
        else:
            a, b = self, other
        J = None
        if a.curvature is not None and b.curvature is not None:
            J = a.curvature + b.curvature
        return replace(
            a,
            gradient=a.gradient + b.gradient,
            pull=a.pull + b.pull,
            curvature=J,
            starts=np.concatenate([a.starts, b.starts + seen]),
            models=np.concatenate([a.models, b.models]),
        )
