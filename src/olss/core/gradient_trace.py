"""The exact gradient of a logistic or Poisson model over a stream whose rows are gone.

When rows come, the model of that moment is refitted, to the kept rows that stand for the past and
to the new ones, and the exact gradient of the new rows there, sum w (A'(x'b) - y) (x, 1), is added
up. So later the gradient of everything seen at any b is that sum plus what the kept rows say has
changed since: sum over kept rows of w (A'(x'b) - A'(x'b_i)) (x, 1), b_i being the model when row i
came. That difference is small where models have hardly moved, which makes the sampling error of the
kept rows one of second order. Which model was there when a row came follows from its position in
the stream, so nothing is stored with the rows.

It extends renewable estimation (Luo & Song 2020), which has a quadratic form in the place of the
kept rows and fails on ordered streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.glm import Family, RowTerm, fit_beside_past, slopes
from olss.core.moments import Moments
from olss.util.threads import call_with_one_blas_thread

__all__ = ["MOST_MODELS", "GlmRows", "GradientTrace"]

Floats = NDArray[np.float64]

MOST_MODELS = 64  # classes, each of which has a model against the rest
SAMPLE_ROWS = 4_096  # of a batch, to which the model is refitted
REFIT = 16  # the model is refitted whenever rows have grown by one in so many


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

    def thinned(self, most: int) -> GlmRows:
        """Return at most about so many rows, evenly spaced, that stand for all."""
        there = np.flatnonzero(self.weight)
        step = -(-len(there) // most)
        if step <= 1:
            return self
        at = there[step // 2 :: step]
        w = self.weight[at]
        return GlmRows(self.X[at], self.y[at], w * (self.weight.sum() / w.sum()), self.index[at])


@dataclass(frozen=True, eq=False)
class GradientTrace:
    """What is known of the gradient of everything seen; every method returns a new value.

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
    """

    family: Family
    classes: tuple[Any, ...]
    gradient: Floats
    starts: NDArray[np.int64]
    models: Floats = field(metadata={"finite": False})

    @classmethod
    def empty(cls, family: Family, columns: int) -> GradientTrace:
        """Return the trace of no rows."""
        classes = (None,) if family == "poisson" else ()
        k = len(classes)
        zero = np.zeros((k, columns + 1))
        return cls(family, classes, zero, np.zeros(0, np.int64), np.zeros((0, k, columns + 1)))

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
        wide = self.gradient.shape[1]
        gradient = np.zeros((len(classes), wide))
        models = np.full((len(self.models), len(classes), wide), np.nan)
        gradient[at], models[:, at] = self.gradient, self.models
        return replace(self, classes=classes, gradient=gradient, models=models)

    def residuals(self, rows: GlmRows) -> Floats:
        """(n, k) A' - y of rows at the models of their time."""
        r = -rows.y
        time = np.searchsorted(self.starts, rows.index, side="right") - 1
        for number in np.unique(time[time >= 0]):
            at, model = np.flatnonzero(time == number), self.models[number]
            known = np.isfinite(model).all(axis=1)
            t = rows.X[at] @ model[known, :-1].T + model[known, -1]
            r[np.ix_(at, known)] += slopes(t, self.family)
        return r

    def gradient_of(self, rows: GlmRows) -> Floats:
        """(k, d + 1) sum w (A' - y) (x, 1) of rows at the models of their time."""
        r = self.residuals(rows) * rows.weight[:, None]
        return np.column_stack([r.T @ rows.X, r.sum(axis=0)])

    def tilt(self, kept: GlmRows) -> Floats:
        """(k, d + 1) what is to be added to the gradient of kept rows for that of all."""
        return self.gradient - self.gradient_of(kept)

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
        if self._has_no_model or first - self.starts[-1] >= first / REFIT:
            batch = GlmRows.concat([b.thinned(SAMPLE_ROWS // len(blocks) + 1) for b in blocks])
            tilts, about, coef = self.tilt(kept), self.last, np.full_like(self.gradient, np.nan)
            for k in self._problems():
                past = RowTerm(kept.X, kept.y[:, k], kept.weight, self.family)
                new = RowTerm(batch.X, batch.y[:, k], batch.weight, self.family)
                fit = partial(fit_beside_past, moments, past, tilts[k], about[k], new, penalty)
                coef[k] = call_with_one_blas_thread(fit, columns=moments.columns)
            if len(coef) == 2:
                coef[0] = -coef[1]
            trace = replace(
                self,
                starts=np.append(self.starts, first),
                models=np.concatenate([self.models, coef[None]]),
            )
        added = sum((trace.gradient_of(block) for block in blocks), np.zeros_like(self.gradient))
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
        return replace(self, gradient=self.gradient - self.gradient_of(rows))

    def scale(self, factor: float) -> GradientTrace:
        """Return the trace with all weights multiplied."""
        return replace(self, gradient=self.gradient * factor)

    def merge(self, other: GradientTrace, seen: int) -> GradientTrace:
        """Return the trace of both, the other's rows coming after the `seen` rows of this one."""
        if self.family == "logistic":
            classes = tuple(sorted({*self.classes, *other.classes}))
            a, b = self.arrange(classes), other.arrange(classes)
        else:
            a, b = self, other
        return replace(
            a,
            gradient=a.gradient + b.gradient,
            starts=np.concatenate([a.starts, b.starts + seen]),
            models=np.concatenate([a.models, b.models]),
        )
