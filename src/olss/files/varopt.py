"""Drawing rows from a stream of blocks into a few that stand for all, in one pass.

Every row has a fixed score s and a weight w, the number of rows it stands for (1 when it comes).
Two kinds of draw:

- by probability ("weighted", "reservoir", "balanced"): q = w s, pi = min(1, q / t) with the t that
  gives the size wanted, w <- w / pi. Rows that came through a draw with pi < 1 have q = t, so that
  sum q stays what it was, and so does the next t: a row's probability after any number of draws
  and unions is min(1, s / t) with the t of a single draw from everything (VarOpt; Cohen et al.
  2009). Hence parts of the data can be drawn from apart, in any order, and united.
- by key ("paper", "recent"): the rows of the smallest keys stay. With keys Exp(1) / leverage this
  is the law of successive draws in proportion to leverage.

Before a draw, the rows of a block are thinned by the t of the last draw: it can only grow. So the
draws themselves are rare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.sampling import inclusion, pivotal

__all__ = ["BY_KEY", "ONE_PASS", "POLICIES", "Draw", "Rows", "cut", "strata_of", "union"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

POLICIES = ("weighted", "paper", "reservoir", "balanced", "recent")
ONE_PASS = ("reservoir", "balanced", "recent")
BY_KEY = ("paper", "recent")

# Shares of a weighted draw that go to all rows alike, as in `olss.memory.policies`.
UNIFORM_SHARE = 0.25


@dataclass(frozen=True)
class Rows:
    """Some rows on their way into the result.

    Attributes
    ----------
    table : pyarrow.Table
        Their columns, task, source and row included.
    weight, score : (n,) float64
        What they stand for; score or key.
    order : (n,) int64
        Their places in the order of arrival.
    seen : int
        Rows they were drawn from.
    """

    table: Any
    weight: Floats
    score: Floats
    order: Indices
    seen: int

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, rows: Indices, weight: Floats | None = None) -> Rows:
        """Return some of the rows, with other weights if given."""
        kept = self.weight[rows] if weight is None else weight
        table = self.table.take(rows)
        return replace(
            self, table=table, weight=kept, score=self.score[rows], order=self.order[rows]
        )


def union(parts: list[Rows]) -> Rows:
    """Return the rows of all parts."""
    import pyarrow as pa

    return Rows(
        pa.concat_tables([part.table for part in parts]),
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.order for part in parts]),
        sum(part.seen for part in parts),
    )


def cut(rows: Rows, policy: str, size: int, strata: tuple[str, ...], rng: Any) -> Rows:
    """Draw `size` of the rows; `strata` names the columns that say which belong together."""
    if len(rows) <= size:
        return rows
    if policy in BY_KEY:
        return rows.take(np.sort(np.argpartition(rows.score, size - 1)[:size]))
    group = strata_of(rows.table, strata)
    if policy != "balanced":
        chosen, weight = _draw(rows, np.arange(len(rows)), size, group, rng)
        return rows.take(chosen, weight)
    drawn = [
        _draw(rows, members, int(quota), np.zeros(len(members)), rng)
        for members, quota in _quotas(group, size, rng)
        if quota
    ]
    chosen = np.concatenate([part[0] for part in drawn])
    weight = np.concatenate([part[1] for part in drawn])
    return rows.take(chosen, weight)


def _draw(
    rows: Rows, members: Indices, size: int, group: NDArray[Any], rng: Any
) -> tuple[Indices, Floats]:
    """Draw `size` of some rows by probability. Neighbours compete: those of a group do first."""
    weight = rows.weight[members]
    if len(members) <= size:
        return members, weight
    shuffled = rng.permutation(len(members))
    line = shuffled[np.argsort(group[shuffled], kind="stable")]
    pi = inclusion((weight * rows.score[members])[line], size)
    drawn = pivotal(pi, rng)
    return members[line[drawn]], weight[line[drawn]] / pi[drawn]


def _quotas(group: Indices, size: int, rng: Any) -> list[tuple[Indices, int]]:
    """Return (rows, how many to keep) of each group: equal shares, what one lacks for others."""
    counts = np.bincount(group)
    low, high = 0, size
    while low < high:  # the largest share with sum(min(counts, share)) <= size
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if np.minimum(counts, middle).sum() <= size else (low, middle - 1)
        )
    quota = np.minimum(counts, low)
    more = rng.permutation(np.flatnonzero(counts > low))[: size - quota.sum()]
    quota[more] += 1
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
    return list(zip(members, quota.tolist(), strict=True))


def strata_of(table: Any, columns: tuple[str, ...]) -> Indices:
    """(n,) number of each row's stratum, the combination of values in some columns."""
    code = np.zeros(table.num_rows, dtype=np.int64)
    for name in columns:
        column = table.column(name).combine_chunks()
        if not hasattr(column, "indices"):
            column = column.dictionary_encode()
        value = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        code = np.unique(code * (len(column.dictionary) + 1) + value, return_inverse=True)[1]
    return code


def _thin(q: Floats, limit: float, rng: Any) -> tuple[Indices, Floats]:
    """Return (rows, weights) of new rows of which those with q < limit are drawn.

    Laid end to end in random order, these are cut into stretches of length `limit` and a last,
    shorter one. In each, at the same place, a row is picked, whose q becomes the stretch's length:
    each q is right on average, and their sum is exactly what it was.
    """
    big = np.flatnonzero(q >= limit)
    line = rng.permutation(np.flatnonzero(q < limit))
    if not len(line):
        return big, np.ones(len(big))
    ends = np.cumsum(q[line]) / limit
    whole, rest = divmod(float(ends[-1]), 1)
    length = np.append(np.ones(int(whole)), rest)
    picked = np.searchsorted(ends, np.arange(len(length)) + rng.random() * length, side="right")
    rows, which = np.unique(line[np.minimum(picked, len(line) - 1)], return_inverse=True)
    weight = limit * np.bincount(which, length) / q[rows]
    return np.concatenate([big, rows]), np.concatenate([np.ones(len(big)), weight])


class Draw:
    """Draws from blocks of rows as they come.

    Parameters
    ----------
    policy, size, strata, rng
        As for `cut`.
    """

    def __init__(self, policy: str, size: int, strata: tuple[str, ...], rng: Any) -> None:
        self._settings = (policy, size, strata, rng)
        self._held: list[Rows] = []
        self._waiting = 0
        self._limit = np.inf if policy in BY_KEY else 0.0
        self.seen = 0

    def offer(self, score: Floats) -> tuple[Indices, Floats]:
        """Return the rows of a block worth holding, by their scores, with their weights."""
        policy, _, _, rng = self._settings
        self.seen += len(score)
        if policy in BY_KEY:
            rows = np.flatnonzero(score <= self._limit)
            return rows, np.ones(len(rows))
        if not self._limit:
            return np.arange(len(score)), np.ones(len(score))
        if policy == "reservoir":
            whole, rest = divmod(len(score) / self._limit, 1)
            rows = rng.choice(len(score), int(whole) + 1, replace=False)
            return rows, self._limit * np.append(np.ones(int(whole)), rest)
        return _thin(score, self._limit, rng)

    def hold(self, rows: Rows) -> None:
        """Take in rows, and draw when as many wait as are to be kept."""
        self._held.append(rows)
        self._waiting += len(rows)
        if self._waiting >= 2 * self._settings[1]:
            self._cut()

    def finish(self) -> Rows | None:
        """Return the rows kept, or None if there were none."""
        if not self._held:
            return None
        self._cut()
        return replace(self._held[0], seen=self.seen)

    def _cut(self) -> None:
        policy, size, strata, rng = self._settings
        pool = union(self._held)
        kept = cut(pool, policy, size, strata, rng)
        self._held, self._waiting = [kept], len(kept)
        if len(pool) <= size:
            return
        if policy in BY_KEY:
            self._limit = float(kept.score.max())
        elif policy != "balanced":
            q = kept.weight * kept.score
            # Rows drawn with pi < 1 all have the smallest q.
            self._limit = float(q.min())
