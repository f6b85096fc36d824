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

    V = sum_h sum k (z - B_h)^2 / (1 - sum_h (sum k^2 / sum k) / sum_h sum k) + sum_h B_h^2

for all strata h, the last sum being for that row. (Measured: over eight draws in a row the variance
of a stratum's number of rows is 1 within a fifth, whether it has 3 rows or 60.) If rows that are
alike compete first, because the sample is spread over feature space, z varies about the mean of its
neighbours: the first sum is then over blocks of neighbours (`local_blocks`) instead of strata.
Neighbouring blocks exchange rows, which adds c (B_b - B_b+1)^2 for each two. In one draw the number
of rows exchanged has a variance of about 1/2. As rows come, a sample is drawn again and again, and
the noise of earlier draws, when weights were smaller, stays: of thresholds that grow by a quarter
from draw to draw it is 1 + 0.8^2 + 0.8^4 + ... = 2.8 times that of the last one, so c = 1.4. The
mean B of a few rows has noise, by which the last sum is too large; the first is made smaller by it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

MIN_CORRECTION = 0.25  # of a variance, for samples of hardly more rows than strata

# Replicate weights move by half as much as the sample could, so that they stay positive; the
# squared deviations of a statistic are therefore multiplied by four (Fay's method, rho = 0.5).
DAMPING = 2.0
BLOCK_ROWS = 3
EXCHANGE = 1.4  # variance of the number of rows that neighbouring blocks exchange, in all draws
LEAST_FACTOR = 0.05  # of a weight, for rows of strata of two or three


@dataclass(frozen=True)
class GroupEstimates:
    """One estimate per group, with what its interval needs.

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
        """Return the ends of confidence intervals of a level.

        For a sum of terms of one sign the interval is on the logarithmic scale, value *
        exp(± t se / value). Otherwise it is Hall's (1992), which removes the skewness s from
        Student's statistic T = (value - truth) / se: g(T) = T + s T^2 / 3 + s^2 T^3 / 27 + s / 6 is
        nearly symmetric. t is the quantile of Student's distribution with `freedom` degrees.

        For a number of rows of which none was kept there is an upper bound. If the rows had weights
        a_i when they came, and a kept row stands for at most W, each is kept with probability at
        least a_i / W, and none of them with probability at most exp(-sum a_i / W): at this level,
        sum a_i is at most -log(1 - level) W. (For 95% it is the rule of three.)
        """
        from scipy.special import stdtrit  # slow to load

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
        """Return the estimate of one group."""
        return GroupEstimates(*(getattr(self, field.name)[group] for field in fields(self)))


class Calibration:
    """Adjust weights so that some totals agree with their known values.

    The regression estimator (Deville & Särndal 1992): weights w (1 + q x'v) with the v that makes
    the weighted total of x the known one. The error of a total of f is then that of the residual
    f - x'b of the regression of f on x. Here q = k w, which gives the b of least variance
    (Montanari 1987) and does not change rows that are certain to be kept.

    Parameters
    ----------
    x : (n, p) array
        Of the rows kept.
    totals : (p,) array
        Its totals over everything seen.
    weight, pi : (n,) arrays

    Attributes
    ----------
    weight : (n,) array
        The adjusted weights.
    rank : int
        Number of independent columns.
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
        """Return the residual of f, (n,), after regression on x."""
        residual: Floats = f - self._x @ (self._inverse @ (self._metric_x.T @ f))
        return residual


class PostStratification:
    """Adjust weights so that those of each stratum sum to the rows seen of it, which are known.

    The post-stratified estimator (Holt & Smith 1979): with N_h rows seen of stratum h, weights
    become w N_h / sum_h w. The error of a total of f is then that of the residuals of f from its
    weighted mean in each stratum; these are too small by (n_h - 1) / n_h for n_h rows. Strata of
    fewer than `FEWEST` rows are taken together.

    Parameters
    ----------
    codes : (n,) int array
        Stratum of each row kept, from 0.
    counts : (H,) array
        Rows seen of each of these strata.
    others : float
        Rows seen of strata of which no row was kept.
    weight : (n,) array

    Attributes
    ----------
    weight : (n,) array
        The adjusted weights.
    rank : int
        0: residuals are corrected stratum by stratum.
    """

    FEWEST = 10
    rank = 0

    def __init__(self, codes: Indices, counts: Floats, others: float, weight: Floats) -> None:
        kept = np.bincount(codes, minlength=len(counts))
        few = kept < self.FEWEST
        if others > 0 and kept[few].sum() < self.FEWEST and not few.all():
            few[np.argmin(np.where(few, np.inf, counts))] = True  # they need rows to stand for them
        place = np.where(few, 0, np.cumsum(~few))
        self._codes: Indices = place[codes]
        seen = _sums(place, np.asarray(counts, dtype=np.float64), int(place.max()) + 1)
        seen[0] += others
        self._kept = np.bincount(self._codes, minlength=len(seen))
        self._total = _sums(self._codes, weight, len(seen))
        share = np.where(self._total > 0, seen / np.where(self._total > 0, self._total, 1), 1)
        self.weight: Floats = weight * share[self._codes]
        self._weight = weight

    def residual(self, f: Floats) -> Floats:
        """Return the residual of f, (n,), from its mean in each stratum."""
        total = np.where(self._total > 0, self._total, 1)
        mean = _sums(self._codes, self._weight * f, len(total)) / total
        correction = np.sqrt(self._kept / np.maximum(self._kept - 1, 1))
        residual: Floats = (f - mean[self._codes]) * correction[self._codes]
        return residual


class WeightedSample:
    """The rows kept, in groups, with their weights and inclusion probabilities.

    Parameters
    ----------
    weight, pi : (n,) arrays
        Weights a / pi and inclusion probabilities of the rows kept.
    code : (n,) int array
        The group of each row, from 0; -1 for rows outside all groups.
    groups : int
        Number of groups.
    strata : (n,) int array, optional
        The stratum each row competed in first, from 0. Default: a single one.
    calibration : Calibration or PostStratification, optional
        It takes a pass over all rows for each group.
    complete : bool
        Whether all sampled rows are there. If some were removed afterwards, B is unknown and 0 is
        used: the variance of rows drawn independently, which is no less.
    blocks : (n,) int array, optional
        Rows that competed with each other inside strata, from 0, as `local_blocks` returns them.
        Default: the strata.

    Attributes
    ----------
    rows, drawn, effective : (g,) arrays
        What `support` returns for all rows.
    """

    def __init__(
        self,
        weight: Floats,
        pi: Floats,
        code: Indices,
        groups: int,
        strata: Indices | None = None,
        calibration: Calibration | PostStratification | None = None,
        complete: bool = True,
        blocks: Indices | None = None,
    ) -> None:
        self._k = 1 - pi
        self._complete = complete
        self._strata = np.zeros(len(pi), dtype=np.int64) if strata is None else strata
        self._blocks = self._strata if blocks is None else blocks
        self._shrinkage = [
            1.0 if blocks is None else max(_shrinkage(self._k, blocks, power), 0.1)
            for power in (3, 4)
        ]
        self._weight = weight if calibration is None else calibration.weight
        self._calibration = calibration
        self._inside, self._groups = code >= 0, groups
        self._code = code[self._inside]
        self.rows, self.drawn, self.effective = self.support(self._inside)

    def support(self, chosen: NDArray[np.bool_]) -> tuple[Indices, Floats, Floats]:
        """Return by group how many of the chosen rows, (n,), an estimate rests on.

        These are the rows kept, those that might have been missed (pi < 1), and the effective
        number, (sum u)^2 / sum u^2 for u = sqrt(k) w.
        """
        u = np.where(chosen, np.sqrt(self._k) * np.abs(self._weight), 0)
        squares = self._sum(u**2)
        return (
            self._sum(chosen.astype(np.float64)).astype(np.int64),
            self._sum((chosen & (self._k > 0)).astype(np.float64)),
            self._sum(u) ** 2 / np.where(squares > 0, squares, 1),
        )

    def differing(self, f: Floats) -> Indices:
        """Return by group how many rows do not have the most frequent value of f, (n,)."""
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
        """Estimate the totals of f, (n,), by group."""
        values = self._weight * f
        value = self._sum(values)
        one_sign = self._sum(np.abs(values)) <= np.abs(value) * (1 + 1e-12)
        kept = np.count_nonzero(self._k)
        correction = _correction(self._k, self._blocks, self._strata)
        return self._estimates(value, f, kept, correction, np.inf, one_sign)

    def mean(self, f: Floats) -> GroupEstimates:
        """Estimate the means of f, (n,), by group: linearized, (f - mean) / count.

        The squared residual from a mean of n rows is too small by (n - 1) / n, and the mean of a
        group has at most as many degrees of freedom as effective rows, less one.
        """
        count = self._sum(self._weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = self._sum(self._weight * f) / count
            residual = np.zeros(len(f))
            residual[self._inside] = (f[self._inside] - mean[self._code]) / count[self._code]
            correction = np.where(self.drawn > 1, (self.drawn - 1) / self.drawn, 1)
        if self._blocks is not self._strata:  # so are those from the means of a few neighbours
            correction = correction * _correction(self._k, self._blocks, self._strata)
        return self._estimates(mean, residual, self.drawn, correction, self.effective - 1, False)

    def _estimates(
        self, value: Floats, f: Floats, rows: Any, correction: Any, most: Any, one_sign: Any
    ) -> GroupEstimates:
        """Return estimates whose error is that of the total of f.

        Degrees of freedom after Satterthwaite: for contributions c = sqrt(k) (z - B) of n rows,
        2 (sum c^2)^2 / (sum c^4 - (sum c^2)^2 / n), which is n for normal ones; at most `most`.
        The variance is sum c^2 divided by `correction`.
        """
        if self._calibration is not None:  # residuals of a regression are too small as well
            kept = max(1, int(np.count_nonzero(self._k)))
            correction = correction * max(1 - self._calibration.rank / kept, MIN_CORRECTION)
        second, third, fourth = self._moments(f, correction)
        with np.errstate(divide="ignore", invalid="ignore"):
            se = np.sqrt(np.where(second > 0, second, 0))
            skewness = np.nan_to_num(third / second**1.5)
            freedom = 2 / (fourth / second**2 - 1 / np.asarray(rows, dtype=np.float64))
        freedom = np.where(np.isfinite(freedom) & (freedom > 0), freedom, np.inf)
        freedom = np.clip(np.minimum(freedom, most), 1, 1e6)
        flags, none = np.broadcast_to(one_sign, value.shape), np.zeros(value.shape, dtype=bool)
        return GroupEstimates(value, se, skewness, freedom, flags, none, np.zeros(value.shape))

    def _moments(self, f: Floats, correction: Any) -> list[Floats]:
        """Return the sums of c^2, c^3 and c^4 by group, over all rows, f being 0 outside it."""
        k, nested, shrinkage = self._k, (self._blocks, self._strata), self._shrinkage
        if self._calibration is None:
            z = (self._weight * f)[self._inside]
            if self._complete:
                corrections = [correction, *shrinkage]
                return _moments(z, k, nested, self._inside, self._code, self._groups, corrections)
            root = np.sqrt(k[self._inside])
            return [_sums(self._code, (root * z) ** power, self._groups) for power in (2, 3, 4)]
        everywhere = np.ones(len(f), dtype=bool)
        none = np.zeros(len(f), dtype=np.int64)
        correction = np.broadcast_to(correction, self._groups)
        columns = []
        for group in range(self._groups):
            part = np.zeros(len(f))
            mine = np.flatnonzero(self._inside)[self._code == group]
            part[mine] = f[mine]
            z = self._weight * self._calibration.residual(part)
            corrections = [correction[group], *shrinkage]
            columns.append(_moments(z, k, nested, everywhere, none, 1, corrections))
        return list(np.array(columns).reshape(self._groups, 3).T)

    def _sum(self, values: Floats) -> Floats:
        return _sums(self._code, values[self._inside], self._groups)


def replicate_weights(
    weight: Floats,
    pi: Floats,
    count: int,
    rng: np.random.Generator,
    strata: Indices | None = None,
    complete: bool = True,
    blocks: Indices | None = None,
) -> Floats:
    """Return columns of weights that vary as the sample would if it were drawn again.

    The generalized bootstrap (Beaumont & Patak 2012): column r is w (1 + a_r / 2) with random a_r
    of mean zero whose covariance is that of the variance estimator above, so that for any total
    the mean of 4 (total_r - total)^2 is V on average; for other statistics it is V of the
    linearized one. With independent signs e_i and e_h, for row i of stratum h,

        a_i = sqrt(k_i / c) (e_i - sqrt(k_i) sum_j sqrt(k_j) e_j / K_b) + k_i e_h / K_h ,

    where the sum is over the block b of the row, or its stratum if there are no blocks, K = sum
    k_j, and c is the correction of V; the last term is there with two strata or more. With blocks
    there is sqrt(1.4) k_i (e_b+1 - e_b) / K_b, too, for the rows that they exchange.

    Parameters
    ----------
    weight, pi, strata, complete, blocks
        As for `WeightedSample`.
    count : int
        Number of columns.
    rng : numpy.random.Generator

    Returns
    -------
    (n, count) array of positive numbers
        A row that is certain to be kept (pi = 1) has the same weight in each.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> columns = replicate_weights(np.full(50, 20.0), np.full(50, 0.05), 1_000, rng)
    >>> half = columns[:25].sum(axis=0) - 500
    >>> bool(abs(np.mean(4 * half**2) / (20**2 * 0.95 * 50 / 49 * 12.5) - 1) < 0.2)
    True
    """
    k, n = 1 - pi, len(pi)
    s = np.zeros(n, dtype=np.int64) if strata is None else strata
    b = s if blocks is None else blocks
    a = np.sqrt(k)[:, None] * _signs(rng, n, count)
    if complete and k.any():
        sums = np.zeros((int(b.max()) + 1, count))
        np.add.at(sums, b, a)
        correction = _correction(k, b, s)
        a = (a - _shares(k, b) * sums[b]) / np.sqrt(correction if correction > 0 else 1.0)
        if b is not s:
            steps = np.zeros((len(sums) + 1, count))
            steps[1:-1] = _signs(rng, len(sums) - 1, count) * _find_joined(b, s)[:, None]
            a += np.sqrt(EXCHANGE) * _shares(k, b) * np.diff(steps, axis=0)[b]
        if s.any():
            a += _shares(k, s) * _signs(rng, int(s.max()) + 1, count)[s]
    factor: Floats = np.maximum(1 + a / DAMPING, LEAST_FACTOR)
    return weight[:, None] * factor


def _shares(k: Floats, strata: Indices) -> Floats:
    """Return (n, 1) shares of k in the total of the stratum."""
    total = np.bincount(strata, k)
    share: Floats = (k / np.where(total > 0, total, 1)[strata])[:, None]
    return share


def _signs(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    return 2 * rng.integers(0, 2, (rows, columns), dtype=np.int8).astype(np.float64) - 1


def _correction(k: Floats, blocks: Indices, strata: Indices) -> float:
    """Return the factor by which squared deviations from the means of blocks are too small.

    Divided by it, they and what blocks exchange add up to the variance among all rows, for values
    that do not depend on the block.
    """
    everything = float(k.sum())
    if not everything > 0:
        return 1.0
    correction = _shrinkage(k, blocks, 2)
    if blocks is not strata:
        total, squares = np.bincount(blocks, k), np.bincount(blocks, k**2)
        noise = squares / np.where(total > 0, total, 1) ** 2  # of B, in parts of the variance of z
        exchanged = EXCHANGE * float(noise @ _count_neighbours(blocks, strata)) / everything
        correction = max(correction, MIN_CORRECTION) / max(1 - exchanged, MIN_CORRECTION)
    # Strata of single rows have all their variance in the variance of their number of rows.
    return max(correction, MIN_CORRECTION) if blocks.any() else correction


def _shrinkage(k: Floats, blocks: Indices, power: int) -> float:
    """Return the factor by which powers of deviations from the means of blocks are too small.

    It is what c^p adds up to over a block, for c = sqrt(k) (z - B), if a single row of it has a z
    other than zero, in parts of (sqrt(k) z)^p.
    """
    root = k ** (power / 2)
    total, others = np.bincount(blocks, k), np.bincount(blocks, root)[blocks] - root
    share = k / np.where(total > 0, total, 1)[blocks]
    left = root * (1 - share) ** power + others * (-share) ** power
    everything = float(root.sum())
    return float(left.sum()) / everything if everything > 0 else 1.0


def _moments(
    z: Floats,
    k: Floats,
    nested: tuple[Indices, Indices],
    inside: NDArray[np.bool_],
    code: Indices,
    groups: int,
    corrections: list[Any],
) -> list[Floats]:
    """Return the sums of (sqrt(k) (z - B))^p, p = 2, 3, 4, by group; z is 0 where not inside.

    They are divided by `corrections`, one for each p. `nested` has the blocks about whose B rows
    vary, and the strata whose numbers of rows vary by one. It adds up parts, each the rows of a
    group and a block, or a group and a stratum.
    """
    blocks, strata = nested
    count = int(blocks.max()) + 1
    group, block, part, B = _means(z, k, blocks, inside, code)
    off = z - B[part]
    outer = None
    if strata.any():
        outer = _means(z, k, strata, inside, code)
    moments = []
    for power, correction in zip((2, 3, 4), corrections, strict=True):
        root = k ** (power / 2)
        within = _sums(part, root[inside] * off**power, len(B))
        rest = _sums(blocks, root, count)[block] - _sums(part, root[inside], len(B))
        sums = _sums(group, within + (-B) ** power * np.maximum(rest, 0), groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = np.where(sums != 0, sums / correction, 0)
        if power == 2:
            sums = np.maximum(sums, 0)
            if blocks is not strata:
                sums = sums + EXCHANGE * _squared_steps(group, block, B, groups, blocks, strata)
        moments.append(sums + (0 if outer is None else _sums(outer[0], outer[3] ** power, groups)))
    return moments


def _means(
    z: Floats, k: Floats, strata: Indices, inside: NDArray[np.bool_], code: Indices
) -> tuple[Indices, Indices, Indices, Floats]:
    """Return the parts that have rows: group, stratum, part of each row inside, and B of each."""
    count = int(strata.max()) + 1
    parts, part = np.unique(code * count + strata[inside], return_inverse=True)
    group, stratum = np.divmod(parts, count)
    total = _sums(strata, k, count)[stratum]
    B = _sums(part, k[inside] * z, len(parts)) / np.where(total > 0, total, 1)
    return group, stratum, part, B


def _squared_steps(
    group: Indices, block: Indices, B: Floats, groups: int, blocks: Indices, strata: Indices
) -> Floats:
    """Return the sums, by group, of (B_b - B_b+1)^2 over neighbouring blocks of one stratum.

    A part (group, block) without rows has B = 0, and is not listed.
    """
    joined = _find_joined(blocks, strata)
    squares = _sums(group, _count_neighbours(blocks, strata)[block] * B**2, groups)
    next_to = (np.diff(block) == 1) & (np.diff(group) == 0) & np.append(joined, False)[block[:-1]]
    return squares - 2 * _sums(group[:-1][next_to], (B[:-1] * B[1:])[next_to], groups)


def _find_joined(blocks: Indices, strata: Indices) -> NDArray[np.bool_]:
    """Return for each block but the last whether the next one is of the same stratum."""
    stratum = np.zeros(int(blocks.max()) + 1, dtype=np.int64)
    stratum[blocks] = strata
    same: NDArray[np.bool_] = np.diff(stratum) == 0
    return same


def _count_neighbours(blocks: Indices, strata: Indices) -> Indices:
    """Return how many blocks of the same stratum are next to each block: none, one or two."""
    joined = _find_joined(blocks, strata).astype(np.int64)
    count: Indices = np.append(joined, 0) + np.append(0, joined)
    return count


def local_blocks(
    places: NDArray[Any], drawn: NDArray[np.bool_], strata: Indices | None = None
) -> Indices:
    """Return blocks of neighbours in a sample that is spread along a line inside strata.

    Such a sample varies as if a few rows had been drawn from each stretch of the line, so that its
    variance is that about the mean of neighbours, not of all (Grafström & Schelin 2014). Each block
    has `BLOCK_ROWS` to twice as many rows that might have been missed, of one stratum.

    Parameters
    ----------
    places : (n,) array
        Where rows stand on the line.
    drawn : (n,) bool array
        Rows that might have been missed; the others are put to any block.
    strata : (n,) int array, optional

    Examples
    --------
    >>> local_blocks(np.array([3, 1, 2, 9, 8, 7, 5, 6]), np.ones(8, dtype=bool)).tolist()
    [0, 0, 0, 1, 1, 1, 0, 1]
    """
    s = np.zeros(len(places), dtype=np.int64) if strata is None else strata
    order = np.lexsort((places, s))
    s, is_drawn = s[order], drawn[order]
    counts = np.bincount(s, is_drawn).astype(np.int64)
    before: Indices = np.cumsum(is_drawn) - is_drawn
    rank = np.minimum(before - (np.cumsum(counts) - counts)[s], np.maximum(counts - 1, 0)[s])
    blocks = np.maximum(counts // BLOCK_ROWS, 1)
    found = np.empty(len(s), dtype=np.int64)
    inside = rank * blocks[s] // np.maximum(counts, 1)[s]
    found[order] = (np.cumsum(blocks) - blocks)[s] + inside
    return found


def _sums(code: Indices, values: Floats, groups: int) -> Floats:
    return np.asarray(np.bincount(code, values, groups), dtype=np.float64)
