"""Which rows stay when a sketch is full, and with which weight.

A policy is an object with one method, ``choose(pool, rng)``. The pool holds the rows of the sketch
and the new ones; the policy is asked only when the pool is larger than the sketch. A plain
function does, too:

>>> import numpy as np, olss
>>> from olss.memory import Choice
>>> def keep_longest(pool, rng):
...     "Keep the rows of the largest norm."
...     norms = np.concatenate([np.linalg.norm(part, axis=1) for part in pool.features])
...     return Choice(np.argsort(norms)[-pool.size:])
>>> sketch = olss.Sketch(size=2, policy=keep_longest)
>>> sketch.update(np.array([[1.0], [4.0], [2.0], [3.0]])).X.ravel()
array([4., 3.])

A policy is stateless, because a sketch can be saved, copied and continued. What it has to remember
about a row goes into `Choice.priority` and comes back as `Pool.priority`. The same object serves
`olss.Sketch.update` and `olss.compress`, which passes it one chunk of rows after the other.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from olss.core.kernels import REFERENCES, herding_order
from olss.core.residual_scores import rank_classes, residual_scores
from olss.core.sampling import (
    draw_cells,
    hilbert_places,
    inclusion_probabilities,
    pivotal_sample,
    sort_line,
    threshold_sample,
)
from olss.errors import InputError, OlssWarning
from olss.memory.pool import Candidates, Choice, Pool
from olss.memory.rows import Floats, Indices
from olss.memory.strata import StratumShares
from olss.util import checks

__all__ = [
    "POLICIES",
    "Balanced",
    "Paper",
    "Policy",
    "Recent",
    "Reservoir",
    "ThresholdPolicy",
    "Weighted",
    "resolve_policy",
]

# NumPy's hypergeometric law takes populations below this.
HYPERGEOMETRIC_LIMIT = 10**9


class Policy:
    """Base class of policies: what a sketch and `compress` need to know, and one method.

    Attributes
    ----------
    mergeable : bool
        Whether weights say how many rows each row stands for, so that two sketches can be merged.
    knows_probabilities : bool
        Whether a row's weight is what it came with over the probability that it was kept, so that
        the rows held can answer for everything seen (`estimate`, `drift`, `novelty`).
    supports_decay : bool
        Whether rows may count for less as time goes by (``half_life``).
    uses_features : bool
        Whether it looks at `Pool.features` or scores.
    leverage_scope : {"seen", "pool"} or None
        Whether it asks for leverage scores in everything seen, with weights, or in the pool,
        without. `compress` then reads its input twice.
    supports_strata : bool
        Whether strata can have a share of the draw (``strata``).
    by_class : bool
        Whether it treats the classes of the target differently.
    can_buffer : bool
        Whether a few rows may wait for more before the policy is asked.
    resets_priority : bool
        Whether `Pool.priority` is forgotten before each update, or each run over files.
    """

    mergeable: ClassVar[bool] = False
    knows_probabilities: ClassVar[bool] = False
    supports_decay: ClassVar[bool] = False
    leverage_scope: ClassVar[Literal["seen", "pool"] | None] = None
    supports_strata: ClassVar[bool] = False
    by_class: ClassVar[bool] = False
    can_buffer: ClassVar[bool] = False
    resets_priority: ClassVar[bool] = False

    @property
    def uses_features(self) -> bool:
        """Whether it looks at `Pool.features` or scores."""
        return True

    @property
    def name(self) -> str:
        """The name it is registered under, or else that of its class."""
        known = (name for name, policy in POLICIES.items() if policy == self)
        return next(known, type(self).__name__)

    def choose(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Choose at most `pool.size` rows of the pool."""
        raise NotImplementedError(f"{type(self).__name__} must implement choose(pool, rng)")


@dataclass(frozen=True)
class FunctionPolicy(Policy):
    """A plain function of (pool, rng) as a policy."""

    function: Callable[[Pool, np.random.Generator], Choice]

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def choose(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Call the function."""
        return self.function(pool, rng)


class ThresholdPolicy(Policy):
    """A policy that can reject rows of a chunk before they are looked at any further.

    Each row gets a priority, a pure function of the row and what is known of everything; a draw
    leaves a threshold, and later rows are sampled against it at once. Of a policy that scores by
    everything seen, the mean priority of all rows is one, so that thresholds grow with the rows
    seen, and priorities of later rows can be compared with earlier thresholds.
    """

    resets_priority = True

    @property
    def least_priority(self) -> float:
        """A bound below the priority of any row; 0 if there is none."""
        return 0.0

    def priorities(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return the priority of each row."""
        raise NotImplementedError

    def places(self, pool: Candidates, priority: Floats) -> NDArray[np.uint16] | None:
        """Return where rows stand on a line on which neighbours compete, if not at random."""
        return None

    def threshold(self, weight: Floats, priority: Floats) -> float:
        """Return the threshold that the rows kept by a draw imply."""
        raise NotImplementedError

    def threshold_sample(
        self,
        weight: Floats,
        priority: Floats,
        threshold: float,
        rng: np.random.Generator,
        strata: Indices | None = None,
        places: NDArray[np.uint16] | None = None,
    ) -> tuple[Indices, Floats]:
        """Return the new rows worth holding, and their weights, given an earlier threshold."""
        raise NotImplementedError

    def choose(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Sample by the priorities of all rows, computed for those that have none yet."""
        priority, missing = pool.priority, np.isnan(pool.priority)
        if missing.any():
            priority = np.where(missing, self.priorities(pool, rng), priority)
        return self._sample(pool, priority, rng)

    def _sample(self, pool: Pool, priority: Floats, rng: np.random.Generator) -> Choice:
        """Choose at most `pool.size` rows of the pool by their priorities."""
        raise NotImplementedError


class VarOptPolicy(ThresholdPolicy):
    """Rows stay with probability pi = min(1, q / t), and their weights are divided by it.

    q = w s for a row of weight w and priority s, and t is such that pi sums to the size. Rows
    that survived a draw with pi < 1 have q = t afterwards, so that the sum of q stays what it was,
    and so does the next t: a row's probability after any number of draws and merges is
    min(1, s / t) with the t of a single draw from everything (VarOpt; Cohen et al. 2009). Hence
    chunks can be sampled separately, in any order, and merged.
    """

    mergeable = True
    knows_probabilities = True
    supports_decay = True
    supports_strata = True
    can_buffer = True

    def threshold(self, weight: Floats, priority: Floats) -> float:
        """Return t: rows that were drawn with pi < 1 have the smallest q."""
        return float((weight * priority).min())

    def threshold_sample(
        self,
        weight: Floats,
        priority: Floats,
        threshold: float,
        rng: np.random.Generator,
        strata: Indices | None = None,
        places: NDArray[np.uint16] | None = None,
    ) -> tuple[Indices, Floats]:
        """Sample by an earlier t, which can only grow."""
        rows, factor = threshold_sample(weight * priority, threshold, rng, strata, places)
        return rows, weight[rows] * factor

    def _sample(self, pool: Pool, priority: Floats, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        # Neighbours compete in a pivotal draw: with scores they are ordered inside strata, each of
        # which gets its share within a row. `Sketch.estimate` relies on it.
        shares = pool.shares
        if shares is not None:
            _warn_of_many_strata(shares, pool.size)
        cells = draw_cells(
            None if self.leverage_scope is None else pool.strata,
            None if shares is None else shares.codes,
        )
        line = sort_line(rng.permutation(len(pool)), cells, self.places(pool, priority))
        pi = inclusion_probabilities((pool.weight * priority)[line], pool.size)
        drawn = pivotal_sample(pi, rng)
        rows = line[drawn]
        return Choice(rows, pool.weight[rows] / pi[drawn], priority[rows])


@dataclass(frozen=True)
class Weighted(VarOptPolicy):
    """Leverage score sampling that keeps the sketch unbiased for everything seen.

    With G = sum w x x' over everything seen, a row's score is its leverage x' G^+ x. By induction
    the weighted sum over the sketch of any function of a row has the sum over everything seen as
    its mean: the Gram matrix, the number of rows of a task or a class, whatever the scores. With
    ``scores="target"`` half of the leverage share goes by residual scores instead, leverage times
    the error of a pilot model of the target (`olss.core.residual_scores`).

    Parameters
    ----------
    uniform_share : float
        The share of the draw that goes to all rows alike. It bounds what one row can stand for (a
        quarter: four times the average) and gives rows of no leverage, which count as rows too,
        their chance. Over 20 tasks a quarter halves the noise of a task's total weight against a
        tenth; the spectral error hardly grows.
    spread : bool
        Whether rows that are alike compete with each other, so that the sample is spread evenly
        over feature space (see `olss.core.sampling.hilbert_places`): the same probabilities, and
        smaller errors of totals and of the Gram matrix. It needs the moments of everything seen,
        and up to 4,096 columns; else rows compete at random. ``Weighted(uniform_share=1.0)`` is a
        reservoir that is spread.
    """

    uniform_share: float = 0.25
    spread: bool = True
    leverage_scope = "seen"

    def __post_init__(self) -> None:
        checks.fraction("uniform_share", self.uniform_share)
        checks.boolean("spread", self.spread)

    @property
    def least_priority(self) -> float:
        """A bound below the priority of any row, unless there are strata."""
        return self.uniform_share

    def places(self, pool: Candidates, priority: Floats) -> NDArray[np.uint16] | None:
        """Return places on a curve through scores and principal directions, if it spreads."""
        coordinates = pool.coordinates if self.spread else None
        return None if coordinates is None else curve_places(priority, coordinates)

    def priorities(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return a mixture of leverage, residual scores, one and strata, with a mean of one."""
        scores, dimension = pool.scores(), pool.dimension
        if not dimension > 0:
            return _with_strata(pool, np.ones(len(scores)))
        priority = self._mix_priority(pool, scores / dimension, rng)
        mixed = priority if pool.shares is None else pool.shares.mix(priority)
        return mixed * pool.total

    def _mix_priority(self, pool: Candidates, leverage: Floats, rng: np.random.Generator) -> Floats:
        share = self.uniform_share
        priority = (1 - share) * leverage + share / pool.total
        if pool.target is None:
            return priority
        assert isinstance(pool, Pool)
        if pool.target == "number":
            y: Floats | Indices = pool.target_numbers
        else:
            assert pool.classes is not None
            y = rank_classes(pool.classes, pool.weight)
        found = residual_scores(pool.blocks, y, pool.weight, leverage, priority, rng)
        return priority if found is None else priority + (1 - share) / 2 * (found - leverage)


@dataclass(frozen=True)
class Reservoir(VarOptPolicy):
    """A uniform sample of everything seen: each subset of `size` rows is equally likely.

    How many rows come from the held part, which stands for N rows, and how many from the new
    part, which stands for n, follows the hypergeometric law of a draw from N + n. That needs
    enough rows on both sides. Where a sketch was made larger, rows were removed or came with
    weights, rows stay with probability in proportion to their weights, which makes all weights
    equal again as soon as possible.
    """

    @property
    def uses_features(self) -> bool:
        """Whether it looks at rows: it does not."""
        return False

    @property
    def least_priority(self) -> float:
        """The priority of any row, unless there are strata."""
        return 1.0

    def priorities(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return ones; with strata, a mixture of one and the rows' strata."""
        return _with_strata(pool, np.ones(len(pool)))

    def threshold_sample(
        self,
        weight: Floats,
        priority: Floats,
        threshold: float,
        rng: np.random.Generator,
        strata: Indices | None = None,
        places: NDArray[np.uint16] | None = None,
    ) -> tuple[Indices, Floats]:
        """Sample without replacement where all rows have weight 1."""
        if not ((weight == 1).all() and (priority == 1).all()):
            return super().threshold_sample(weight, priority, threshold, rng, strata, places)
        whole, rest = divmod(len(weight) / threshold, 1)
        rows = rng.choice(len(weight), min(int(whole) + 1, len(weight)), replace=False)
        return rows, (threshold * np.append(np.ones(int(whole)), rest))[: len(rows)]

    def choose(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        held, new = np.split(pool.weight, [pool.kept])
        if pool.shares is not None or not (
            _is_simple(held, pool.size) and _is_simple(new, pool.size)
        ):
            return super().choose(pool, rng)
        N, n = round(held.sum()), round(new.sum())
        k = rng.hypergeometric(N, n, pool.size)
        from_held = rng.choice(len(held), k, replace=False, shuffle=False)
        from_new = rng.choice(len(new), pool.size - k, replace=False, shuffle=False)
        rows = np.concatenate([from_held, pool.kept + from_new])
        return Choice(rows, np.full(pool.size, (N + n) / pool.size), np.ones(pool.size))


def curve_places(relative_priority: Floats, coordinates: Floats) -> NDArray[np.uint16]:
    """Return the places of rows on a curve through their priorities, 1 on average, and coordinates.

    Rows of a like priority get a like weight; so the sum of weights varies less, too.
    """
    first = np.log(np.maximum(relative_priority, np.finfo(np.float64).tiny))
    return hilbert_places([first, *coordinates])


class SmallestKeys(ThresholdPolicy):
    """The rows of the smallest keys stay; a row's key is its priority."""

    def threshold(self, weight: Floats, priority: Floats) -> float:
        """Return the largest key that stayed."""
        return float(priority.max())

    def threshold_sample(
        self,
        weight: Floats,
        priority: Floats,
        threshold: float,
        rng: np.random.Generator,
        strata: Indices | None = None,
        places: NDArray[np.uint16] | None = None,
    ) -> tuple[Indices, Floats]:
        """Return the rows whose keys are small enough."""
        rows = np.flatnonzero(priority <= threshold)
        return rows, weight[rows]

    def _sample(self, pool: Pool, priority: Floats, rng: np.random.Generator) -> Choice:
        """Keep the `pool.size` rows of the smallest keys."""
        rows = np.sort(np.argpartition(priority, pool.size - 1)[: pool.size])
        return Choice(rows, priority=priority[rows])


@dataclass(frozen=True)
class Paper(SmallestKeys):
    """Algorithm 1 of the paper: successive draws in proportion to the leverage in the pool.

    With keys Exp(1) / leverage, the rows of the smallest keys are a successive draw (Efraimidis &
    Spirakis 2006); rows of no leverage come last, at random. The inclusion probabilities of
    successive draws are not known, so weights stay 1. Rows of old tasks take part in each draw
    anew: old tasks fade.
    """

    leverage_scope = "pool"

    def priorities(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return the logarithms of the keys, which may span the whole range of float64."""
        draws = np.maximum(rng.standard_exponential(len(pool)), np.finfo(np.float64).tiny)
        tiny = np.finfo(np.float64).smallest_subnormal
        return np.log(draws) - np.log(np.maximum(pool.scores(), tiny))


@dataclass(frozen=True)
class Recent(SmallestKeys):
    """The last rows of the stream."""

    can_buffer = True

    @property
    def uses_features(self) -> bool:
        """Whether it looks at rows: it does not."""
        return False

    def priorities(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return how long ago rows came, counted backwards."""
        return -pool.index.astype(np.float64)


@dataclass(frozen=True)
class Balanced(Policy):
    """The same number of rows for each task and class, to within one row.

    A stratum with fewer rows than its share keeps them all, and the others share the rest. Real
    targets, several labels a row and rows without target make one stratum a task. Inside a
    stratum rows have a fixed order, set once, when rows first have to go; whenever the share
    shrinks, a prefix of that order stays. So no row is ever scored twice.

    A row's weight is the number of rows seen of its stratum over that of rows kept.

    Parameters
    ----------
    order : {"herding", "leverage", "random"}
        How rows are ordered: by kernel herding (see `olss.core.kernels`), so that each prefix looks
        like the stratum; by successive draws in proportion to leverage; or at random. Herding
        compares rows by distance: use columns of similar scale, or a feature map that does.

    Notes
    -----
    Rows of one stratum that come in several updates are ordered among those they came with. The
    r-th of n such rows gets the key (r + u) / n, u uniform in [0, 1), and the smallest keys stay;
    so updates get shares in proportion to their rows.
    """

    order: Literal["herding", "leverage", "random"] = "herding"
    mergeable = True
    can_buffer = True
    by_class = True

    def __post_init__(self) -> None:
        checks.choice("order", self.order, ("herding", "leverage", "random"))

    @property
    def uses_features(self) -> bool:
        """Whether it looks at rows."""
        return self.order != "random"

    def choose(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Keep the first rows of each stratum."""
        counts = np.bincount(pool.strata)
        if len(counts) > pool.size:
            warnings.warn(
                f"size={pool.size} is smaller than the {len(counts)} strata (tasks x classes), so "
                "some strata keep no row. Use a larger size, or fewer tasks or classes.",
                OlssWarning,
                stacklevel=4,
            )
        share = _share(counts, pool.size)
        key = self._keys(pool, share, rng)
        rank = _rank(pool.strata, key)
        keep = rank < share
        # The remaining places go to the next in line, at most one a stratum.
        next_in_line = np.flatnonzero(rank == share)
        left_over = pool.size - np.count_nonzero(keep)
        keep[next_in_line[np.argsort(key[next_in_line])[:left_over]]] = True

        rows = np.flatnonzero(keep)
        stratum = pool.strata[rows]
        seen, kept = np.bincount(pool.strata, pool.weight), np.bincount(stratum)
        return Choice(rows, seen[stratum] / kept[stratum], key[rows])

    def _keys(self, pool: Pool, share: int, rng: np.random.Generator) -> Floats:
        """Return the keys of all rows, computed for those that have none yet."""
        key = pool.priority.copy()
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
    """Rank rows in their strata: those herding takes first, then the others, shuffled."""
    rank = np.empty(len(rows), dtype=np.int64)
    shuffled = rng.permutation(len(rows))
    by_stratum = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    for members in np.split(by_stratum, np.cumsum(np.bincount(stratum))[:-1]):
        herded = herding_order(pool.floats(rows[members[:REFERENCES]]), count)
        others = np.delete(members, herded)
        rank[np.concatenate([members[herded], others])] = np.arange(len(members))
    return rank


def _with_strata(pool: Candidates, alike: Floats) -> Floats:
    """Return the priorities of rows that are alike but for their strata, if there are any."""
    return alike if pool.shares is None else pool.shares.mix(alike / pool.shares.total)


def _warn_of_many_strata(shares: StratumShares, size: int) -> None:
    each = shares.share * size / shares.count
    if each >= max(1, shares.min_rows):
        return
    # Rounded, so that Python shows it a few times, and not at each update that brings new strata.
    unit = 10 ** (len(str(shares.count)) - 1)
    many = shares.count // unit * unit
    what = "one row" if each < 1 else f"min_rows={shares.min_rows}"
    warnings.warn(
        f"strata: {shares.share:.0%} of size={size:,} is less than {what} for each of the "
        f"{many:,} strata or more{', so some keep none' if each < 1 else ''}. Use a larger size, "
        f"fewer strata{', or a larger strata_share' if shares.share < 1 else ''}.",
        OlssWarning,
        stacklevel=4,
    )


def _is_simple(weight: Floats, size: int) -> bool:
    """Return whether rows of these weights are a uniform sample that can fill any `size`."""
    if not len(weight):
        return True
    equal = bool(np.ptp(weight) <= 1e-9 * weight[0])
    whole = abs(weight.sum() - round(weight.sum())) < 1e-6
    enough = len(weight) >= size or abs(weight[0] - 1) < 1e-9
    return equal and whole and enough and weight.sum() < HYPERGEOMETRIC_LIMIT


POLICIES: dict[str, Policy] = {
    "weighted": Weighted(),
    "balanced": Balanced(),
    "balanced-leverage": Balanced("leverage"),
    "balanced-random": Balanced("random"),
    "reservoir": Reservoir(),
    "paper": Paper(),
    "recent": Recent(),
}


def resolve_policy(policy: str | Policy | Callable[[Pool, np.random.Generator], Choice]) -> Policy:
    """Return a policy: the one of this name, the object given, or a function wrapped as one."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if isinstance(policy, str | type) or not callable(policy):
        raise InputError(
            f"policy must be one of {', '.join(map(repr, POLICIES))}, a Policy, or a function of "
            f"(pool, rng), found {policy!r}. {checks.suggest(str(policy), POLICIES)}"
        )
    return FunctionPolicy(policy)
