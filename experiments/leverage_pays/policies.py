"""Policies compared that the package does not have: other uniform shares, and the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from olss.core.sampling import inclusion, pivotal
from olss.memory.pool import Choice, Pool

from .models import linear, logistic
from .tables import Floats

Policy = Callable[[Pool, np.random.Generator], Choice]


def leverage(uniform: float) -> Policy:
    """Return the policy "weighted" with a share of the draw for all rows alike."""

    def policy(pool: Pool, rng: np.random.Generator) -> Choice:
        return _drawn(
            pool, [(1 - uniform, pool.leverage(pool.weight)), (uniform, _ones(pool))], rng
        )

    return policy


def target(uniform: float, kind: str) -> Policy:
    """Return a policy by |y - p(x)| ||x||, p a pilot model on the sketch, with half leverage.

    Wang, Zhu & Ma (2018). `kind` is "number" or "class"; ||x|| is the root of the leverage.
    """

    def policy(pool: Pool, rng: np.random.Generator) -> Choice:
        scores = pool.leverage(pool.weight)
        X = np.concatenate(pool.features)
        y = pool.column("y" if kind == "class" else "value")
        some = np.arange(pool.kept)
        if pool.kept < pool.size:  # the first rows: a pilot on some of them
            some = rng.choice(len(pool), min(pool.size, len(pool)), replace=False)
        if kind == "class":
            p = logistic(X[some], y[some], pool.weight[some] / pool.weight[some].mean())(X)
            p[np.arange(len(p)), y] -= 1
            off = np.linalg.norm(p, axis=1)
        else:
            off = np.abs(y - X @ linear(X[some], y[some], pool.weight[some], ridge=0.01))
        rest = (1 - uniform) / 2
        surprising = off * np.sqrt(scores)
        return _drawn(pool, [(rest, scores), (rest, surprising), (uniform, _ones(pool))], rng)

    return policy


def _ones(pool: Pool) -> Floats:
    return np.ones(len(pool))


def _drawn(pool: Pool, mixture: list[tuple[float, Any]], rng: np.random.Generator) -> Choice:
    """Draw in proportion to a mixture of scores, each normalised; weights are divided by it."""
    w = pool.weight
    q = sum(share * w * scores / (w * scores).sum() for share, scores in mixture)
    line = rng.permutation(len(pool))
    pi = inclusion(q[line], pool.size)
    kept = pivotal(pi, rng)
    return Choice(line[kept], w[line[kept]] / pi[kept])
