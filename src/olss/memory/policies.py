"""Which rows stay when a sketch is full, and with which weight.

A policy is a function of the pool (the rows held and the new ones) and a generator. It is asked
only when the pool is larger than the sketch, and answers with the rows to keep:

>>> import numpy as np, olss
>>> from olss.memory.policies import Choice
>>> def longest(pool, rng):
...     "Keep the rows of the largest norm."
...     norms = np.concatenate([np.linalg.norm(part, axis=1) for part in pool.features])
...     return Choice(np.argsort(norms)[-pool.size:])
>>> sketch = olss.Sketch(size=2, policy=longest)
>>> sketch.update(np.array([[1.0], [4.0], [2.0], [3.0]])).X.ravel()
array([4., 3.])

It must keep no state of its own, since a sketch can be saved, copied and gone on with; what it has
to remember of a row goes into `Choice.order` and comes back as `Pool.order`. Set the attribute
``mergeable = True`` on it if two sketches made with it may be united.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from olss.core.sampling import inclusion, pivotal, successive
from olss.errors import InputError
from olss.memory.balanced import Balanced
from olss.memory.pool import Choice, Floats, Policy, Pool

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
    "name_of",
    "named",
]

# The share of a weighted draw that goes to all rows alike. It bounds what one row can stand for
# (four times the average), and gives rows of no leverage, which count as rows too, their chance.
# Over 20 tasks it halves the noise of a task's total weight against a tenth; the spectral error
# hardly grows.
UNIFORM_SHARE = 0.25

# NumPy's hypergeometric law takes populations below this.
HYPERGEOMETRIC_LIMIT = 10**9


@dataclass(frozen=True)
class Paper:
    """Algorithm 1 of the paper: successive draws in proportion to the leverage in the pool.

    The inclusion probabilities of successive draws are not known, so weights stay 1. Rows of old
    tasks take part in each draw anew: old tasks fade.
    """

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        scores = pool.leverage(auto="exact")
        return Choice(successive(scores if scores.any() else np.ones(len(pool)), pool.size, rng))


@dataclass(frozen=True)
class Weighted:
    """Draws by weighted leverage that keep the sketch unbiased for everything seen.

    With G = sum w x x' over the pool and q = w x' G^+ x, row i stays with probability
    pi_i = min(1, c q_i), sum pi = size, and its weight becomes w / pi. By induction the weighted
    sum over the sketch of any function of a row has the sum over everything seen as its mean: the
    Gram matrix, the number of rows of a task or a class. A quarter of q is spread over all rows
    in proportion to w, so that rows of no leverage keep a chance and no weight explodes.
    """

    mergeable: ClassVar[bool] = True

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        w = pool.weight
        q, uniform = w * pool.leverage(w), w / w.sum()
        q = (1 - UNIFORM_SHARE) * q / q.sum() + UNIFORM_SHARE * uniform if q.any() else uniform
        return _draw(pool, q, rng)


@dataclass(frozen=True)
class Reservoir:
    """A uniform sample of everything seen: each subset of `size` rows is equally likely.

    How many rows come from the held part, which stands for N rows, and how many from the new
    part, which stands for n, follows the hypergeometric law of a draw from N + n. That needs
    enough rows on both sides. Where a sketch has been made larger, or rows were removed, it has
    too few; then rows stay with probability in proportion to their weights, which makes all
    weights equal again as soon as it can be.
    """

    mergeable: ClassVar[bool] = True

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Draw `pool.size` rows."""
        held, new = np.split(pool.weight, [pool.kept])
        if not (_is_simple(held, pool.size) and _is_simple(new, pool.size)):
            return _draw(pool, pool.weight, rng)
        N, n = round(held.sum()), round(new.sum())
        k = rng.hypergeometric(N, n, pool.size)
        from_held = rng.choice(len(held), k, replace=False, shuffle=False)
        from_new = rng.choice(len(new), pool.size - k, replace=False, shuffle=False)
        rows = np.concatenate([from_held, pool.kept + from_new])
        return Choice(rows, np.full(pool.size, (N + n) / pool.size))


@dataclass(frozen=True)
class Recent:
    """The last rows of the stream."""

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Keep the `pool.size` rows that came last."""
        return Choice(np.argpartition(pool.index, -pool.size)[-pool.size :])


def _draw(pool: Pool, q: Floats, rng: np.random.Generator) -> Choice:
    """Keep rows with probability pi = min(1, c q) and divide their weights by it."""
    # Neighbours compete in a pivotal draw: sorted by stratum, each gets its share within a row.
    by_stratum = np.argsort(pool.strata, kind="stable")
    pi = inclusion(q, pool.size)
    rows = by_stratum[pivotal(pi[by_stratum], rng)]
    return Choice(rows, pool.weight[rows] / pi[rows])


def _is_simple(weight: Floats, size: int) -> bool:
    """Whether rows of these weights are a uniform sample from which any `size` can be had."""
    if not len(weight):
        return True
    equal = bool(np.ptp(weight) <= 1e-9 * weight[0])
    whole = abs(weight.sum() - round(weight.sum())) < 1e-6
    enough = len(weight) >= size or abs(weight[0] - 1) < 1e-9
    return equal and whole and enough and weight.sum() < HYPERGEOMETRIC_LIMIT


POLICIES: dict[str, Policy] = {
    "paper": Paper(),
    "weighted": Weighted(),
    "reservoir": Reservoir(),
    "balanced": Balanced(),
    "balanced-leverage": Balanced("leverage"),
    "balanced-random": Balanced("random"),
    "recent": Recent(),
}


def named(policy: Any) -> Policy:
    """Return the policy of this name, or the policy itself."""
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if isinstance(policy, str) or not callable(policy):
        raise InputError(
            f"policy must be one of {', '.join(map(repr, POLICIES))} or a function of "
            f"(pool, rng), found {policy!r}."
        )
    own: Policy = policy
    return own


def name_of(policy: Policy) -> str | None:
    """Return the name `named` knows a policy by, if any."""
    return next((name for name, known in POLICIES.items() if known == policy), None)
