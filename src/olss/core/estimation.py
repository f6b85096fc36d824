"""Estimate totals and means of everything seen from the rows kept, with standard errors.

A row kept with inclusion probability pi, whose own weight was a, has the weight w = a / pi, and the
sum of w f over the rows kept is an unbiased estimate of the sum of a f over all rows. Its variance
is estimated from the same rows (Hájek 1964, in Deville's form, 1999): with z = w f, k = 1 - pi and
B = sum(k z) / sum(k),

    V = sum k (z - B)^2 / (1 - sum(k^2) / sum(k)^2) .

The sums run over all rows kept, with f = 0 outside the group. Rows certain to be kept (pi = 1) add
nothing, and a uniform sample (all z equal for f = 1) determines the number of rows exactly.
The estimator is for designs of high entropy, such as a pivotal sample of shuffled rows. If rows are
shuffled within strata, rows of a stratum compete first, and each stratum gets its share within a
row or so: z then varies about the B_h of its own stratum, and

    V = sum_h sum k (z - B_h)^2 / (1 - H sum(k^2) / sum(k)^2) + sum_h B_h^2

for H strata, the last sum being for that row. (Measured: over eight draws in a row the variance of
a stratum's number of rows is 1 within a fifth, whether it has 3 rows or 60.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Calibration", "GroupEstimates", "WeightedSample"]

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

SHORTEST = 0.25


@dataclass(frozen=True)
class GroupEstimates:
    """An estimated number for each group, and what its interval is made of.

    Attributes
    ----------
    value, se : (g,) arrays
        The estimates and their standard errors.
    skewness, freedom : (g,) arrays
        Skewness of the estimate; degrees of freedom of its standard error.
    one_sign : (g,) bool array
        Whether it is a sum of terms of one sign.
    too_few : (g,) bool array
        Whether too few rows were kept for an interval.
    unseen : (g,) array
        For a number of rows of which none was kept, the most that one row kept stands for (for a
        share, over all rows); else 0.
    """

    value: Floats
    se: Floats
    skewness: Floats
    freedom: Floats
    one_sign: NDArray[np.bool_]
    too_few: NDArray[np.bool_]
    unseen: Floats

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends of intervals that hold the true numbers with probability `level`.

        A sum of terms of one sign has its interval on the logarithmic scale, value *
        exp(± t se / value). All else has Hall's (1992), which takes the skewness s out of Student's
        statistic T = (value - truth) / se: g(T) = T + s T^2 / 3 + s^2 T^3 / 27 + s / 6 is nearly
        symmetric. t is the quantile of Student's law with `freedom` degrees.

        Of a number of rows of which none was kept there is an upper bound. If the rows of a kind
        counted a_i when they came, and a row kept stands for W at most, they are kept with
        probabilities of at least a_i / W, and none of them is with a probability of at most
        exp(-sum a_i / W): with probability `level`, sum a_i is at most -log(1 - level) W. (For 95%
        it is the rule of three.)
        """
        from scipy.special import stdtrit  # slow to load, and not needed before

        t = stdtrit(self.freedom, 0.5 + level / 2)
        value, size = self.value, np.abs(self.value)
        rounding = self.se <= 1e-12 * size
        s = np.where(rounding | (np.abs(self.skewness) < 1e-6), 1e-6, self.skewness)

        def hall(x: Floats) -> Floats:
            inverse: Floats = 3 / s * (np.cbrt(1 + s * (x - s / 6)) - 1)
            return value - self.se * inverse

        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.exp(np.where(rounding, 0, t * self.se / size))
            ends = np.sort([value / factor, value * factor], axis=0)
        logarithmic = self.one_sign | rounding
        low: Floats = np.where(logarithmic, ends[0], hall(t))
        high: Floats = np.where(logarithmic, ends[1], hall(-t))
        bounded = np.asarray(self.unseen) > 0
        low, high = (
            np.where(bounded, 0.0, low),
            np.where(bounded, -np.log1p(-level) * self.unseen, high),
        )
        nothing = np.where(self.too_few, np.nan, 0.0)
        return low + nothing, high + nothing

    def at(self, group: int) -> GroupEstimates:
        """Return that of one group."""
        return GroupEstimates(*(getattr(self, field.name)[group] for field in fields(self)))


class Calibration:
    """Weights moved so that some totals come out as they are known to be.

    The regression estimator (Deville & Särndal 1992): weights w (1 + q x'v) with the v that makes
    the weighted total of x the known one. The error of a total of f is then that of the residual
    f - x'b of the regression of f on x. Here q = k w, which gives the b of least variance
    (Montanari 1987) and leaves rows alone that are certain to be kept.

    Parameters
    ----------
    x : (n, p) array
        Of the rows kept.
    totals : (p,) array
        Its totals over everything drawn from.
    weight, pi : (n,) arrays

    Attributes
    ----------
    weight : (n,) array
        The weights moved.
    rank : int
        How many of the columns say something of their own.
    """

    def __init__(self, x: Floats, totals: Floats, weight: Floats, pi: Floats) -> None:
        scale = np.sqrt((x**2).mean(axis=0))
        scale[scale == 0] = 1
        self._x = x / scale
        self._metric_x = ((1 - pi) * weight**2)[:, None] * self._x
        gram = self._x.T @ self._metric_x
        self._inverse = np.linalg.pinv(gram, rcond=1e-12, hermitian=True)
        self.rank = int(np.linalg.matrix_rank(gram, rtol=1e-12, hermitian=True))
        missing = totals / scale - weight @ self._x
        self.weight: Floats = weight + self._metric_x @ (self._inverse @ missing)

    def residual(self, f: Floats) -> Floats:
        """Return what a regression on x leaves of f, (n,)."""
        residual: Floats = f - self._x @ (self._inverse @ (self._metric_x.T @ f))
        return residual


class WeightedSample:
    """Rows kept, in groups, and what is known of how they were drawn.

    Parameters
    ----------
    weight, pi : (n,) arrays
        Weights a / pi and inclusion probabilities of the rows kept.
    code : (n,) int array
        The group of each row, from 0; -1 for rows outside all groups.
    groups : int
        How many groups there are.
    strata : (n,) int array, optional
        The stratum each row competed in first, from 0; all in one by default.
    calibration : Calibration, optional
        It costs a look at all rows for each group.
    complete : bool
        Whether all rows drawn are there. If some were removed afterwards, about what z varies is
        not known any more, and B = 0 is taken: the variance of rows drawn independently, which is
        no less.

    Attributes
    ----------
    rows, drawn, effective : (g,) arrays
        What `support` gives of all rows.
    """

    def __init__(
        self,
        weight: Floats,
        pi: Floats,
        code: Indices,
        groups: int,
        strata: Indices | None = None,
        calibration: Calibration | None = None,
        complete: bool = True,
    ) -> None:
        self._k = 1 - pi
        self._complete = complete
        self._strata = np.zeros(len(pi), dtype=np.int64) if strata is None else strata
        self._weight = weight if calibration is None else calibration.weight
        self._calibration = calibration
        self._inside, self._groups = code >= 0, groups
        self._code = code[self._inside]
        self.rows, self.drawn, self.effective = self.support(self._inside)

    def support(self, chosen: NDArray[np.bool_]) -> tuple[Indices, Floats, Floats]:
        """Return on how many of some rows, (n,), a number rests, by group.

        These are the rows kept, those of them that might have been missed (pi < 1), and how many
        of equal weight tell as much: (sum u)^2 / sum u^2 for u = sqrt(k) w.
        """
        u = np.where(chosen, np.sqrt(self._k) * np.abs(self._weight), 0)
        squares = self._sum(u**2)
        return (
            self._sum(chosen.astype(np.float64)).astype(np.int64),
            self._sum((chosen & (self._k > 0)).astype(np.float64)),
            self._sum(u) ** 2 / np.where(squares > 0, squares, 1),
        )

    def differing(self, f: Floats) -> Indices:
        """Return how many rows have another value of f, (n,), than most of their group."""
        values = f[self._inside]
        order = np.lexsort((values, self._code))
        code, values = self._code[order], values[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(code) != 0) | (np.diff(values) != 0)
        starts = np.flatnonzero(first)
        most = np.zeros(self._groups, dtype=np.int64)
        np.maximum.at(most, code[starts], np.diff(starts, append=len(order)))
        return self.rows - most

    def total(self, f: Floats) -> GroupEstimates:
        """Return the totals of f, (n,), by group."""
        values = self._weight * f
        value = self._sum(values)
        one_sign = self._sum(np.abs(values)) <= np.abs(value) * (1 + 1e-12)
        kept, total_k = np.count_nonzero(self._k), self._k.sum()
        count = self._strata.max() + 1
        short = 1 - count * (self._k**2).sum() / total_k**2 if total_k > 0 else 1.0
        # Strata of single rows have all their variance in the last sum.
        short = max(short, SHORTEST) if count > 1 else short
        return self._figure(value, f, kept, short, np.inf, one_sign)

    def mean(self, f: Floats) -> GroupEstimates:
        """Return the means of f, (n,), by group: linearised, (f - mean) / count.

        A residual from a mean of n rows is too short by (n - 1) / n in the square, and the mean of
        a group can have no more degrees of freedom than its rows in effect, less one.
        """
        count = self._sum(self._weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = self._sum(self._weight * f) / count
            residual = np.zeros(len(f))
            residual[self._inside] = (f[self._inside] - mean[self._code]) / count[self._code]
            short = np.where(self.drawn > 1, (self.drawn - 1) / self.drawn, 1)
        return self._figure(mean, residual, self.drawn, short, self.effective - 1, False)

    def _figure(
        self, value: Floats, f: Floats, rows: Any, short: Any, most: Any, one_sign: Any
    ) -> GroupEstimates:
        """Return the figure whose error is that of the total of f.

        Degrees of freedom after Satterthwaite: for contributions c = sqrt(k) (z - B) of n rows,
        2 (sum c^2)^2 / (sum c^4 - (sum c^2)^2 / n), which is n for normal ones; at most `most`.
        The variance is sum c^2, which is too small by the factor `short`.
        """
        if self._calibration is not None:  # residuals of a regression are too short as well
            kept = max(1, int(np.count_nonzero(self._k)))
            short = short * max(1 - self._calibration.rank / kept, SHORTEST)
        second, third, fourth = self._moments(f, short)
        with np.errstate(divide="ignore", invalid="ignore"):
            se = np.sqrt(np.where(second > 0, second, 0))
            skewness = np.nan_to_num(third / second**1.5)
            freedom = 2 / (fourth / second**2 - 1 / np.asarray(rows, dtype=np.float64))
        freedom = np.where(np.isfinite(freedom) & (freedom > 0), freedom, np.inf)
        freedom = np.clip(np.minimum(freedom, most), 1, 1e6)
        flags, none = np.broadcast_to(one_sign, value.shape), np.zeros(value.shape, dtype=bool)
        return GroupEstimates(value, se, skewness, freedom, flags, none, np.zeros(value.shape))

    def _moments(self, f: Floats, short: Any) -> list[Floats]:
        """Return the sums of c^2, c^3 and c^4 by group, over all rows, f being 0 outside it."""
        k, strata = self._k, self._strata
        if self._calibration is None:
            z = (self._weight * f)[self._inside]
            if self._complete:
                return _moments(z, k, strata, self._inside, self._code, self._groups, short)
            root = np.sqrt(k[self._inside])
            return [_sums(self._code, (root * z) ** power, self._groups) for power in (2, 3, 4)]
        everywhere = np.ones(len(f), dtype=bool)
        none = np.zeros(len(f), dtype=np.int64)
        short = np.broadcast_to(short, self._groups)
        columns = []
        for group in range(self._groups):
            part = np.zeros(len(f))
            mine = np.flatnonzero(self._inside)[self._code == group]
            part[mine] = f[mine]
            z = self._weight * self._calibration.residual(part)
            columns.append(_moments(z, k, strata, everywhere, none, 1, short[group]))
        return list(np.array(columns).reshape(self._groups, 3).T)

    def _sum(self, values: Floats) -> Floats:
        return _sums(self._code, values[self._inside], self._groups)


def _moments(
    z: Floats,
    k: Floats,
    strata: Indices,
    inside: NDArray[np.bool_],
    code: Indices,
    groups: int,
    short: Any,
) -> list[Floats]:
    """Return the sums of (sqrt(k) (z - B))^p, p = 2, 3, 4, by group; z is 0 where not inside.

    It adds up parts, each the rows of a group and a stratum.
    """
    count = int(strata.max()) + 1
    parts, part = np.unique(code * count + strata[inside], return_inverse=True)
    group, stratum = np.divmod(parts, count)
    total_k = _sums(strata, k, count)[stratum]
    B = _sums(part, k[inside] * z, len(parts)) / np.where(total_k > 0, total_k, 1)
    off = z - B[part]
    moments = []
    for power in (2, 3, 4):
        root = k ** (power / 2)
        within = _sums(part, root[inside] * off**power, len(parts))
        rest = _sums(strata, root, count)[stratum] - _sums(part, root[inside], len(parts))
        sums = _sums(group, within + (-B) ** power * np.maximum(rest, 0), groups)
        if power == 2:
            with np.errstate(divide="ignore", invalid="ignore"):
                sums = np.where(sums > 0, sums / short, 0)
        moments.append(sums + (_sums(group, B**power, groups) if count > 1 else 0))
    return moments


def _sums(code: Indices, values: Floats, groups: int) -> Floats:
    return np.asarray(np.bincount(code, values, groups), dtype=np.float64)
