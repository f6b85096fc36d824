"""How unlike everything remembered a row is, and a batch of rows.

Of a row the measure is ridge leverage x' (G + ridge I)^-1 x against the weighted Gram matrix
G = sum w x x' of the remembered rows: large where x points into directions, or reaches lengths,
that they do not. A number by itself says little, so it is compared with what the remembered rows
themselves score when each is left out, t / (1 - w t) for t = x' (G + ridge I)^-1 x (Sherman &
Morrison). A new row like the remembered ones is exchangeable with them: its place among theirs is
uniform.

Of a batch it is a standardised mean difference (Cohen 1988) for each of some numbers of a row:
its columns, their distances from the remembered mean, and the lengths of a few random sums of
columns, which change where columns change together and none of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, project_columns
from olss.core.gram import COLUMN_LIMIT, Factor, Gram

Floats: TypeAlias = NDArray[np.float64]

# The ridge, in parts of the squared length of one average row. Above zero, directions never seen
# are novel without bound; small, directions seldom seen still count.
RIDGE = 0.01

# Values further from the mean count as if they were so many standard deviations away: one outlier
# is not a change.
CLIP = 5.0
TOGETHER = 8  # random sums of columns

# A change is where more rows than chance allows are more novel than 19 of 20 remembered ones.
TAIL = 0.05


@dataclass(frozen=True)
class NoveltyScorer:
    """What remembered rows look like; compares new rows with them.

    Attributes
    ----------
    factor : Factor
        Scores rows against the Gram matrix.
    scores : (m,) array, ascending
        What the remembered rows score when left out.
    share : (m + 1,) array from 0 to 1
        share[i] is the share of all weight that the i lowest scores have.
    rows : float
        How many rows of equal weight tell as much: (sum w)^2 / sum w^2.
    """

    factor: Factor
    scores: Floats
    share: Floats
    rows: float

    @classmethod
    def fit(cls, rows: Any, weight: Floats) -> NoveltyScorer:
        """Return a scorer fitted to remembered rows and their weights."""
        gram = Gram()
        for part, block in _blocks(rows):
            gram.update(block, weight[part])
        ridge = RIDGE * float(np.trace(gram.matrix)) / len(weight)
        factor = gram.scorer(ridge or 1.0)  # rows of zeros only: any ridge will do
        inside = np.concatenate([factor(block) for _, block in _blocks(rows)])
        left_out = inside / np.maximum(1 - weight * inside, np.finfo(np.float64).eps)
        order = np.argsort(left_out)
        share = np.concatenate([[0.0], np.cumsum(weight[order])]) / weight.sum()
        return cls(factor, left_out[order], share, float(weight.sum() ** 2 / (weight**2).sum()))

    def novelty(self, rows: Any) -> Floats:
        """Return, for each new row, the share of remembered rows that are less novel."""
        return np.asarray(self.share[np.searchsorted(self.scores, self.score(rows))])

    def score(self, rows: Any) -> Floats:
        """Return x' (G + ridge I)^-1 x of new rows."""
        return np.concatenate([self.factor(block) for _, block in _blocks(rows)])

    def chance(self, novelty: Floats) -> float:
        """Return the probability that rows like the remembered ones are as novel as these.

        Of b new rows exchangeable with m remembered ones, the number beyond the k-th most novel
        of those has the beta-binomial law with parameters b, k and m - k + 1.
        """
        k = max(1.0, TAIL * self.rows)
        beyond = int(np.count_nonzero(novelty > 1 - (k - 0.5) / self.rows))
        return _beta_binomial_tail(beyond, len(novelty), k, max(self.rows - k, 0.0) + 1)


def _beta_binomial_tail(least: int, n: int, a: float, b: float) -> float:
    """Return the probability of `least` or more of n under the beta-binomial law."""
    from scipy.special import betaln, gammaln  # slow to load, and not needed before

    j = np.arange(least, n + 1)
    choose = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    return float(np.exp(choose + betaln(j + a, n - j + b) - betaln(a, b)).sum())


def _blocks(rows: Any) -> Iterator[tuple[slice, Any]]:
    blocks = Blocks(rows, name="X")
    if blocks.columns > COLUMN_LIMIT:
        (blocks,) = project_columns([blocks], COLUMN_LIMIT)
    return blocks.read(blocks.dtype)


def compare_numbers(remembered: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the numbers by which remembered rows (m, d) and new rows (n, d) are compared.

    (m, 2 d + 8) and (n, 2 d + 8): columns in units of the remembered rows' mean and deviation, at
    most 5 of these; their absolute values; absolute values of 8 sums of columns, signs at random.
    """
    mean, deviation = remembered.mean(axis=0), remembered.std(axis=0)
    deviation = np.maximum(deviation, 1e-9 * (1 + np.abs(mean)))
    signs = _random_signs(remembered.shape[1])
    found = []
    for part in (remembered, rows):
        z = (part - mean) / deviation
        np.clip(z, -CLIP, CLIP, out=z)
        found.append(np.concatenate([z, np.abs(z), np.abs(z @ signs)], axis=1))
    return found[0], found[1]


@lru_cache(maxsize=8)
def _random_signs(columns: int) -> Floats:
    return np.random.default_rng(0).choice([-1.0, 1.0], (columns, TOGETHER))


def standardized_difference(remembered: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return how far the mean of each number moved, in remembered deviations, and its variance.

    The variance of d = (mean of rows - mean remembered) / s is s_rows^2 / (s^2 n) + 1 / m, and
    d^2 / 2 m for the estimate of s (Hedges & Olkin 1985, chapter 5). A number that does not vary
    counts in its own units.
    """
    m, n = len(remembered), len(rows)
    deviation = remembered.std(axis=0)
    deviation[deviation == 0] = 1.0
    difference = (rows.mean(axis=0) - remembered.mean(axis=0)) / deviation
    own = (rows.std(axis=0) / deviation) ** 2 if n > 1 else np.ones_like(difference)
    return difference, own / n + (1 + difference**2 / 2) / m
