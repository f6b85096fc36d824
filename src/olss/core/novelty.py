"""How unlike everything remembered a row is.

The measure is ridge leverage x' (G + ridge I)^-1 x against the weighted Gram matrix
G = sum w x x' of the remembered rows: large where x points into directions, or reaches lengths,
that they do not. A number by itself says little, so it is compared with what the remembered rows
themselves score when each is left out, t / (1 - w t) for t = x' (G + ridge I)^-1 x (Sherman &
Morrison). A new row like the remembered ones is exchangeable with them: its place among theirs is
uniform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, project_columns
from olss.core.gram import COLUMN_LIMIT, Factor, Gram

__all__ = ["TAIL", "NoveltyScorer"]

Floats: TypeAlias = NDArray[np.float64]

# The ridge, in parts of the squared length of one average row. Above zero, directions never seen
# are novel without bound; small, directions seldom seen still count.
RIDGE = 0.01

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
