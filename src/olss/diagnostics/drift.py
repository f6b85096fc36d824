"""Whether a batch of rows is unlike everything remembered: one test, and what moved.

**The test is exact.** Remembered rows of weight w are thinned: each stays with probability
w / max(w). What stays has equal weights, so it is a uniform sample of everything seen, and new rows
of the same kind are exchangeable with it: a permutation test of any statistic gives a false alarm
with the probability stated, whatever the columns look like, rare levels and long tails included
(Fisher 1935; Lehmann & Romano 2005, theorem 15.2.1). Thinning costs some power and buys that.

**Statistics.** Columns are replaced by their ranks among both lots of rows. Of each column the mean
rank and the mean rank of the distance from the middle are compared, a shift and a change of spread,
as z-values; the largest of these and their sum of squares count. Changes that no single column
shows, of correlations for instance, are seen by the novelty of rows (`olss.core.novelty`): its
mean rank, and how many rows are in its highest twentieth. So that new rows and those they are
compared with stand to the Gram matrix alike, half of the thinned rows are compared and the Gram
matrix is that of the other rows. Among statistics of the same permutations, the smallest p-value is
judged by its own law (Westfall & Young 1993), which makes the columns' p-values right all at once;
that of the columns and that of novelty are joined by Bonferroni's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.core.novelty import TAIL, NoveltyScorer
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.errors import InputError
from olss.memory.rows import Array, take
from olss.util import checks

__all__ = ["Drift", "drift"]

Floats: TypeAlias = NDArray[np.float64]

ALPHA = 0.01

# The work is permutations x numbers compared: at most this many numbers, rows x columns.
NUMBERS = 5_000_000
LEAST_ROWS = 200

PERMUTATIONS = 999
BLOCK = 500  # permutations worked on at a time

# Values of float32 sums nearer to each other than this are equal.
DIGITS = 3
EQUAL = 10.0**-DIGITS

SHOWN = 5  # columns a printed answer shows


@dataclass(frozen=True)
class Drift:
    """Whether rows are unlike those remembered; true in an ``if`` when they are.

    Attributes
    ----------
    alarm : bool
        Whether `p` is at most `alpha`.
    p : float
        The probability that rows like those remembered differ as much as these.
    alpha : float
        The share of alarms among batches that bring no change.
    novel : float
        The share of the new rows more novel than 19 of 20 remembered ones: 0.05 without change.
    names : list of str
        The columns, those that moved most first; of text, of each value (``kind = 'town'``).
    column_p : (d,) array
        For each of them the probability that any column moves as much by chance.
    shift : (d,) array from -1 to 1
        How far it moved: the probability that a new row is above a remembered one, less that it
        is below.
    spread : (d,) array
        By what its spread changed, in the same measure: above 0 where new rows are further out.
    rows, remembered : int
        New rows, and rows of equal weight they are compared with.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> held, weight = rng.standard_normal((400, 3)), np.full(400, 10.0)
    >>> new = rng.standard_normal((100, 3)) + [0, 0.8, 0]
    >>> print(drift(held, weight, new, names=["a", "b", "c"], seed=0))
    drift: p = 0.002, alarms at 0.01; 100 new rows against 400 remembered
    17% of the new rows are more novel than 19 of 20 remembered (5% expected)
    column  shift  spread      p
    b       +0.60   +0.18  0.001
    """

    p: float
    alpha: float
    novel: float
    names: list[str]
    column_p: Floats
    shift: Floats
    spread: Floats
    rows: int
    remembered: int

    @property
    def alarm(self) -> bool:
        """Whether `p` is at most `alpha`."""
        return self.p <= self.alpha

    def __bool__(self) -> bool:
        return self.alarm

    def __str__(self) -> str:
        found = "drift" if self else "no drift seen"
        lines = [
            f"{found}: p = {self.p:.2g}, alarms at {self.alpha:g}; {self.rows:,} new rows "
            f"against {self.remembered:,} remembered",
            f"{self.novel:.0%} of the new rows are more novel than 19 of 20 remembered "
            f"({TAIL:.0%} expected)",
        ]
        moved = np.flatnonzero(self.column_p <= self.alpha)
        if len(moved) and self:
            width = max(6, *(len(self.names[j]) for j in moved[:SHOWN]))
            lines.append(f"{'column':<{width}}  shift  spread      p")
            lines += [
                f"{self.names[j]:<{width}}  {self.shift[j]:+.2f}   {self.spread[j]:+.2f}  "
                f"{self.column_p[j]:5.2g}"
                for j in moved[:SHOWN]
            ]
            if len(moved) > SHOWN:
                lines.append(f"and {len(moved) - SHOWN:,} columns more")
        elif self:
            lines.append("no single column moved much: they changed together")
        return "\n".join(lines)

    __repr__ = __str__


def drift(
    remembered: Array,
    weight: Floats,
    rows: Array,
    *,
    names: Sequence[str] | None = None,
    alpha: float = ALPHA,
    scorer: NoveltyScorer | None = None,
    seed: int | np.random.Generator | None = 0,
) -> Drift:
    """Return whether rows are unlike those remembered, how unlike, and which columns moved most.

    Parameters
    ----------
    remembered, rows : arrays (m, ...) and (b, ...)
        What is compared: the rows held, and the new ones.
    weight : (m,) array
        How many of the rows seen each row held stands for.
    names : sequence of str, optional
        Of the columns.
    alpha : float between 0.0001 and 0.5
        The share of batches without a change that may raise an alarm.
    scorer : NoveltyScorer, optional
        What `NoveltyScorer.fit(remembered, weight)` gives, if it is there already.
    seed : int, numpy.random.Generator or None
        For the thinning and the permutations. The same seed gives the same answer.
    """
    if not 1e-4 <= alpha <= 0.5:
        raise InputError(f"alpha must be a number from 0.0001 to 0.5, found {alpha!r}.")
    if not len(rows) or len(remembered) < 4:
        raise InputError(
            f"drift needs four rows to compare with and one to compare, found {len(remembered)} "
            f"remembered and {len(rows)} new."
        )
    rng = checks.generator(seed)
    scorer = scorer or NoveltyScorer.fit(remembered, weight)
    columns = int(np.prod(rows.shape[1:]))
    names = [str(j) for j in range(columns)] if names is None else list(names)
    if len(names) != columns:
        raise InputError(f"names must have one for each of the {columns} columns, found {names}.")
    novel = float(np.mean(scorer.novelty(rows) > 1 - TAIL))

    # Equal weights by thinning, then as many rows of both as the work allows.
    most = max(LEAST_ROWS, NUMBERS // columns // 2)
    equal = max(2, min(int(weight.sum() / weight.max() * (1 + 1e-9)), most))
    line = rng.permutation(len(weight))
    held = rng.permutation(line[pivotal_sample(inclusion_probabilities(weight[line], equal), rng)])
    new = rng.choice(len(rows), min(len(rows), most), replace=False)
    fresh = take(rows, new)
    permutations = max(PERMUTATIONS, int(np.ceil(4 / alpha)) - 1)

    ranks = _ranks(np.concatenate([_flat(take(remembered, held)), _flat(fresh)]))
    scores = np.column_stack(list(ranks))
    z, permuted = _permuted(scores, len(new), permutations, rng)
    largest = permuted.max(axis=1)
    by_column = _least_p(np.column_stack([largest, (permuted**2).sum(axis=1)]))

    judged = held[: len(held) // 2]
    others = np.setdiff1d(np.arange(len(weight)), judged)
    judge = NoveltyScorer.fit(take(remembered, others), weight[others])
    novelty = np.concatenate([judge.score(take(remembered, judged)), judge.score(fresh)])
    (rank, _) = _ranks(novelty[:, None])
    _, permuted = _permuted(np.column_stack([rank, rank > 0.5 - TAIL]), len(new), permutations, rng)
    by_novelty = _least_p(permuted.max(axis=1)[:, None])

    moved = np.abs(z).reshape(2, -1).max(axis=0)
    order = np.argsort(-moved, kind="stable")
    shift, spread = ranks[:, len(held) :].mean(axis=1) * 2 * ranks.shape[1] / len(held)
    return Drift(
        p=min(1.0, 2 * min(by_column, by_novelty)),
        alpha=alpha,
        novel=novel,
        names=[names[j] for j in order],
        column_p=np.array([np.mean(largest >= moved[j] - EQUAL) for j in order]),
        shift=shift[order],
        spread=spread[order],
        rows=len(rows),
        remembered=len(held),
    )


def _flat(rows: Array) -> Floats:
    return to_numpy(rows).reshape(len(rows), -1).astype(np.float64)


def _ranks(values: Floats) -> Floats:
    """Return two tables of ranks from -1/2 to 1/2, (2, n, d): of values, of their outlyingness."""
    from scipy.stats import rankdata  # slow to load, and not needed before

    centred = (rankdata(values, axis=0) - 0.5) / len(values) - 0.5
    outlying = (rankdata(np.abs(centred), axis=0) - 0.5) / len(values) - 0.5
    return np.stack([centred, outlying])


def _permuted(
    scores: Floats, new: int, permutations: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the z-values of columns for the last `new` rows, and |z| of them and permuted ones.

    Under permutations the sum over b of n numbers s that sum to zero has the variance
    b (n - b) / (n (n - 1)) sum s^2.
    """
    n = len(scores)
    scores = scores - scores.mean(axis=0)
    scale = np.sqrt((scores**2).sum(axis=0) * new * (n - new) / n / (n - 1))
    scores = (scores / np.where(scale > 0, scale, 1)).astype(np.float32)
    lot = np.arange(n) >= n - new
    found = []
    for start in range(0, permutations + 1, BLOCK):
        lots = np.tile(lot, (min(BLOCK, permutations + 1 - start), 1))
        own = int(start == 0)  # the first line is that of the new rows themselves
        lots[own:] = rng.permuted(lots[own:], axis=1)
        found.append(lots.astype(np.float32) @ scores)
    z = np.concatenate(found)
    return z[0].astype(np.float64), np.abs(z)


def _least_p(statistics: Floats) -> float:
    """Return the probability that the least p-value of a line's is as small as the first line's."""
    rounded = np.round(statistics, DIGITS)
    below = [np.searchsorted(np.sort(column), column) for column in rounded.T]
    most = np.max(below, axis=0)
    return float(np.mean(most >= most[0]))
