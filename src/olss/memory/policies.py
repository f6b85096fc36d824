"""Which rows stay when a sketch is full, and with which weight.

A policy is a function of the pool (the rows held and the new ones) and a generator. It is asked
only when the pool is larger than the sketch, and answers with the rows to keep:

>>> import numpy as np, olss
>>> from olss.memory import Choice
>>> def longest(pool, rng):
...     "Keep the rows of the largest norm."
...     norms = np.concatenate([np.linalg.norm(part, axis=1) for part in pool.features])
...     return Choice(np.argsort(norms)[-pool.size:])
>>> sketch = olss.Sketch(size=2, policy=longest)
>>> sketch.update(np.array([[1.0], [4.0], [2.0], [3.0]])).X.ravel()
array([4., 3.])

It must keep no state of its own, since a sketch can be saved, copied and gone on with; what it has
to remember of a row goes into `Choice.order` and comes back as `Pool.order`. The same object serves
`Sketch.update`, where the pool is all there is, and `olss.files.compress`, where rows come in
blocks: each block is a pool with what was kept of those before. What a policy says of itself:

mergeable : bool
    Whether two sketches made with it may be united: weights say what rows stand for.
scored : {"seen", "pool"}, optional
    That `Pool.scores` is asked for: leverage in everything seen, with its weights, or in the pool,
    without. Files are then read twice.
looks : bool
    Whether it looks at rows at all, that is, at `Pool.features`; it is taken to if it says nothing.
by_class : bool
    Whether it matters to it what the classes are.
knows_probabilities : bool
    Whether a row's weight is what it came with over the probability that it was kept, so that the
    rows held can answer for everything seen (`estimate`, `drift`, `novelty`).
decays : bool
    Whether rows may come to count for less as time goes by (`half_life`).
waits : bool
    Whether a few rows may wait for others before they are drawn from.
renews : bool
    Whether `Pool.order` is forgotten before each update, or each run over files.
marks, thin, limit : methods, optional
    For a law that can be applied block by block: see `ByProbability` and `ByKey`. Rows of a block
    that cannot stay are then passed over before they are looked at.

A function of your own has none of these: it is used on files block by block, one after the other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np

from olss.core.sampling import inclusion_probabilities, pivotal_sample, threshold_sample
from olss.errors import InputError
from olss.memory.balanced import Balanced
from olss.memory.pool import Candidates, Choice, Floats, Policy, Pool
from olss.memory.store import Indices
from olss.memory.surprise import surprise
from olss.util import checks
from olss.util.checks import suggest
from olss.util.checksums import Metadata

__all__ = [
    "POLICIES",
    "Balanced",
    "Choice",
    "Paper",
    "Policy",
    "Pool",
    "Recent",
    "Reservoir",
    "Weighted",
    "from_json",
    "name_of",
    "named",
    "says",
    "to_json",
]

# NumPy's hypergeometric law takes populations below this.
HYPERGEOMETRIC_LIMIT = 10**9


class ByProbability:
    """Rows stay with probability pi = min(1, q / t), and their weights are divided by it.

    q = w s for a row of weight w and score s, its mark, and t is such that pi sums to the size.
    Rows that came through a draw with pi < 1 have q = t afterwards, so that the sum of q stays
    what it was, and so does the next t: a row's probability after any number of draws and unions
    is min(1, s / t) with the t of a single draw from everything (VarOpt; Cohen et al. 2009).
    Hence blocks can be drawn from apart, in any order, and united.
    """

    mergeable: ClassVar[bool] = True
    knows_probabilities: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    renews: ClassVar[bool] = True

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return the score each row is drawn by."""
        raise NotImplementedError

    def limit(self, weight: Floats, mark: Floats) -> float:
        """Return t, from what came through a draw: rows drawn with pi < 1 have the smallest q."""
        return float((weight * mark).min())

    def thin(
        self, weight: Floats, mark: Floats, limit: float, rng: np.random.Generator
    ) -> tuple[Indices, Floats]:
        """Return the new rows worth holding, and their weights, given the t of a draw before.

        It can only grow, so rows may be drawn from by it at once.
        """
        rows, grown = threshold_sample(weight * mark, limit, rng)
        return rows, weight[rows] * grown

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        mark = _marks(self, pool, rng)
        # Neighbours compete in a pivotal draw: shuffled, but, by scores, for the strata, each of
        # which gets its share within a row. `Sketch.estimate` takes it to be so.
        line = rng.permutation(len(pool))
        if says(self, "scored") is not None:
            strata = pool.strata.astype(np.min_scalar_type(pool.strata.max()))  # these sort fast
            line = line[np.argsort(strata[line], kind="stable")]
        pi = inclusion_probabilities((pool.weight * mark)[line], pool.size)
        drawn = pivotal_sample(pi, rng)
        rows = line[drawn]
        return Choice(rows, pool.weight[rows] / pi[drawn], mark[rows])


@dataclass(frozen=True)
class Weighted(ByProbability):
    """Draws by leverage that keep the sketch unbiased for everything seen.

    With G = sum w x x' over everything seen, a row's score is its leverage x' G^+ x. By induction
    the weighted sum over the sketch of any function of a row has the sum over everything seen as
    its mean: the Gram matrix, the number of rows of a task or a class, whatever the scores. With
    ``scores="target"`` half of what goes by leverage goes by surprise instead, leverage times what
    a model of the target gets wrong (`olss.memory.surprise`).

    Parameters
    ----------
    uniform_share : float
        The share of the draw that goes to all rows alike. It bounds what one row can stand for (a
        quarter: four times the average), and gives rows of no leverage, which count as rows too,
        their chance. Over 20 tasks a quarter halves the noise of a task's total weight against a
        tenth; the spectral error hardly grows.
    """

    uniform_share: float = 0.25
    scored: ClassVar[str] = "seen"

    def __post_init__(self) -> None:
        checks.fraction("uniform_share", self.uniform_share)

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return a mixture of leverage, surprise and one, each as a share of the whole."""
        scores, dimension, total = pool.scores(), pool.dimension, pool.total
        if not dimension > 0:
            return np.ones(len(scores))
        share, leverage = self.uniform_share, scores / dimension
        mark = (1 - share) * leverage + share / total
        if pool.target is None:
            return mark
        assert isinstance(pool, Pool)
        found = surprise(pool, leverage, mark, rng)
        return mark if found is None else mark + (1 - share) / 2 * (found - leverage)


@dataclass(frozen=True)
class Reservoir(ByProbability):
    """A uniform sample of everything seen: each subset of `size` rows is equally likely.

    How many rows come from the held part, which stands for N rows, and how many from the new
    part, which stands for n, follows the hypergeometric law of a draw from N + n. That needs
    enough rows on both sides. Where a sketch has been made larger, rows were removed, or came with
    weights of their own, rows stay with probability in proportion to their weights, which makes
    all weights equal again as soon as it can be.
    """

    looks: ClassVar[bool] = False

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return ones."""
        return np.ones(len(pool))

    def thin(
        self, weight: Floats, mark: Floats, limit: float, rng: np.random.Generator
    ) -> tuple[Indices, Floats]:
        """Return rows drawn without replacement, where they count alike."""
        if not (weight == 1).all():
            return super().thin(weight, mark, limit, rng)
        whole, rest = divmod(len(weight) / limit, 1)
        rows = rng.choice(len(weight), min(int(whole) + 1, len(weight)), replace=False)
        return rows, (limit * np.append(np.ones(int(whole)), rest))[: len(rows)]

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        held, new = np.split(pool.weight, [pool.kept])
        if not (_is_simple(held, pool.size) and _is_simple(new, pool.size)):
            return super().__call__(pool, rng)
        N, n = round(held.sum()), round(new.sum())
        k = rng.hypergeometric(N, n, pool.size)
        from_held = rng.choice(len(held), k, replace=False, shuffle=False)
        from_new = rng.choice(len(new), pool.size - k, replace=False, shuffle=False)
        rows = np.concatenate([from_held, pool.kept + from_new])
        return Choice(rows, np.full(pool.size, (N + n) / pool.size), np.ones(pool.size))


class ByKey:
    """The rows of the smallest keys stay; a row's key is its mark."""

    mergeable: ClassVar[bool] = False
    renews: ClassVar[bool] = True

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return the key of each row."""
        raise NotImplementedError

    def limit(self, weight: Floats, mark: Floats) -> float:
        """Return the largest key that stayed."""
        return float(mark.max())

    def thin(
        self, weight: Floats, mark: Floats, limit: float, rng: np.random.Generator
    ) -> tuple[Indices, Floats]:
        """Return the rows whose keys are not too large."""
        rows = np.flatnonzero(mark <= limit)
        return rows, weight[rows]

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Keep the `pool.size` rows of the smallest keys."""
        mark = _marks(self, pool, rng)
        rows = np.sort(np.argpartition(mark, pool.size - 1)[: pool.size])
        return Choice(rows, order=mark[rows])


@dataclass(frozen=True)
class Paper(ByKey):
    """Algorithm 1 of the paper: successive draws in proportion to the leverage in the pool.

    With keys Exp(1) / leverage, the rows of the smallest keys are a successive draw (Efraimidis &
    Spirakis 2006); rows of no leverage come last, at random. The inclusion probabilities of
    successive draws are not known, so weights stay 1. Rows of old tasks take part in each draw
    anew: old tasks fade.
    """

    scored: ClassVar[str] = "pool"

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return the logarithms of the keys, which may span the whole range of float64."""
        draws = np.maximum(rng.standard_exponential(len(pool)), np.finfo(np.float64).tiny)
        tiny = np.finfo(np.float64).smallest_subnormal
        return np.log(draws) - np.log(np.maximum(pool.scores(), tiny))


@dataclass(frozen=True)
class Recent(ByKey):
    """The last rows of the stream."""

    looks: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def marks(self, pool: Candidates, rng: np.random.Generator) -> Floats:
        """Return how long ago rows came, counted backwards."""
        return -pool.index.astype(np.float64)


def _marks(policy: ByProbability | ByKey, pool: Pool, rng: np.random.Generator) -> Floats:
    """Return the marks of all rows, made for those that have none yet."""
    if not np.isnan(pool.order).any():
        return pool.order
    fresh = policy.marks(pool, rng)
    return np.where(np.isnan(pool.order), fresh, pool.order)


def _is_simple(weight: Floats, size: int) -> bool:
    """Whether rows of these weights are a uniform sample from which any `size` can be had."""
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


def named(policy: Any) -> Policy:
    """Return the policy of this name, or the policy itself."""
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if isinstance(policy, str | type) or not callable(policy):
        raise InputError(
            f"policy must be one of {', '.join(map(repr, POLICIES))} or a function of "
            f"(pool, rng), found {policy!r}. {suggest(str(policy), POLICIES)}"
        )
    own: Policy = policy
    return own


def name_of(policy: Policy) -> str | None:
    """Return the name `named` knows a policy by, if any."""
    return next((name for name, known in POLICIES.items() if known == policy), None)


def to_json(policy: Policy) -> dict[str, Any] | None:
    """Return what `from_json` makes a policy of; None of one that is not olss's own."""
    name = next((name for name, known in POLICIES.items() if type(known) is type(policy)), None)
    name = name_of(policy) or name
    if name is None or not is_dataclass(policy) or isinstance(policy, type):
        return None
    return {"name": name, "with": asdict(policy)}


def from_json(state: Metadata) -> Policy:
    """Return the policy that `to_json` wrote, or raise `FormatError`."""
    known = POLICIES[state.string("name", POLICIES)]
    try:
        return replace(known, **state.value("with"))  # type: ignore[type-var]
    except (TypeError, InputError) as error:
        raise state.error(f"a policy was made with {state.value('with')!r:.80}") from error


def says(policy: Policy, attribute: str) -> Any:
    """Return what a policy says of itself; nothing, if it says nothing."""
    return getattr(policy, attribute, None)
