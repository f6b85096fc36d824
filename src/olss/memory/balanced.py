"""The balanced policy: equal shares for every task and class, and a fixed order inside each."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from olss.core.herding import REFERENCES, herding_order
from olss.errors import InputError, OlssWarning
from olss.memory.pool import Choice, Floats, Pool
from olss.memory.store import Indices

__all__ = ["Balanced"]

ORDERS = ("herding", "leverage", "random")


@dataclass(frozen=True)
class Balanced:
    """The same number of rows for each stratum, a task and class, to within one row.

    A stratum with fewer rows than its share keeps them all, and the others share the rest. Real
    targets, several labels a row and rows without target make one stratum a task. Inside a
    stratum rows have a fixed order, given once, when rows first have to go; whenever the share
    shrinks, a prefix of that order stays. So no row is ever scored twice.

    A row's weight is the number of rows seen of its stratum over that of rows kept.

    Parameters
    ----------
    order : {"herding", "leverage", "random"}
        How rows are ordered: by kernel herding (see `olss.core.herding`), so that each prefix looks
        like the stratum; by successive draws in proportion to leverage; or at random. Herding
        compares rows by distance: give columns of like scale, or a feature map that does.

    Notes
    -----
    Rows of one stratum that come in several updates are ordered among those they came with. The
    r-th of n such rows gets the key (r + u) / n, u uniform in [0, 1), and the smallest keys stay;
    so updates get shares in proportion to their rows.
    """

    order: Literal["herding", "leverage", "random"] = "herding"
    mergeable: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InputError(
                f"order must be one of {', '.join(map(repr, ORDERS))}, found {self.order!r}."
            )

    @property
    def looks(self) -> bool:
        """Whether rows are looked at."""
        return self.order != "random"

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Keep the first rows of each stratum."""
        counts = np.bincount(pool.strata)
        if len(counts) > pool.size:
            warnings.warn(
                f"size={pool.size} is smaller than the {len(counts)} strata (tasks x classes), so "
                "some of them are forgotten: no row stands for theirs any more. Make the sketch "
                "larger, or give fewer tasks or classes.",
                OlssWarning,
                stacklevel=4,
            )
        share = _share(counts, pool.size)
        key = self._keys(pool, share, rng)
        rank = _rank(pool.strata, key)
        keep = rank < share
        # The rows left over go to the next in line, at most one a stratum.
        next_in_line = np.flatnonzero(rank == share)
        left_over = pool.size - np.count_nonzero(keep)
        keep[next_in_line[np.argsort(key[next_in_line])[:left_over]]] = True

        rows = np.flatnonzero(keep)
        stratum = pool.strata[rows]
        seen, kept = np.bincount(pool.strata, pool.weight), np.bincount(stratum)
        return Choice(rows, seen[stratum] / kept[stratum], key[rows])

    def _keys(self, pool: Pool, share: int, rng: np.random.Generator) -> Floats:
        """Return the keys of all rows, giving one to those that have none yet."""
        key = pool.order.copy()
        fresh = np.flatnonzero(np.isnan(key))
        jitter = rng.random(len(fresh))
        if self.order == "random" or not len(fresh):
            key[fresh] = jitter
            return key
        stratum = np.unique(pool.strata[fresh], return_inverse=True)[1]
        if self.order == "leverage":
            scores = pool.leverage(rows=fresh)
            with np.errstate(divide="ignore"):
                rank = _rank(stratum, rng.standard_exponential(len(fresh)) / scores)
        else:
            rank = _herding_rank(pool, fresh, stratum, share + 1, rng)
        key[fresh] = (rank + jitter) / np.bincount(stratum)[stratum]
        return key


def _share(counts: Indices, size: int) -> int:
    """Return the largest share s with sum(min(counts, s)) <= size."""
    return bisect_right(range(size + 1), size, key=lambda s: int(np.minimum(counts, s).sum())) - 1


def _rank(group: Indices, key: Floats) -> Indices:
    """Return the place of each row, from 0, among those of its group, by ascending key."""
    order = np.lexsort((key, group))
    first = np.concatenate([[0], np.cumsum(np.bincount(group))[:-1]])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - first[group[order]]
    return rank


def _herding_rank(
    pool: Pool, rows: Indices, stratum: Indices, count: int, rng: np.random.Generator
) -> Indices:
    """Rank rows in their strata: those that herding takes first, the others behind at random."""
    rank = np.empty(len(rows), dtype=np.int64)
    shuffled = rng.permutation(len(rows))
    by_stratum = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    for members in np.split(by_stratum, np.cumsum(np.bincount(stratum))[:-1]):
        herded = herding_order(pool.floats(rows[members[:REFERENCES]]), count)
        others = np.delete(members, herded)
        rank[np.concatenate([members[herded], others])] = np.arange(len(members))
    return rank
