"""Which rows stay when a sketch is full, and with which weight.

A policy is a function of the pool (the rows held and the new ones) and a generator. It is asked
only when the pool is larger than the sketch, and answers with the rows to keep:

>>> import numpy as np
>>> from olss.policies import Choice
>>> from olss.sketch import Sketch
>>> def longest(pool, rng):
...     "Keep the rows of the largest norm."
...     norms = np.concatenate([np.linalg.norm(part, axis=1) for part in pool.features])
...     return Choice(np.argsort(norms)[-pool.size:])
>>> sketch = Sketch(size=2, policy=longest)
>>> sketch.update(np.array([[1.0], [4.0], [2.0], [3.0]])).X.ravel()
array([4., 3.])

It must keep no state of its own, since a sketch can be saved, copied and gone on with; what it has
to remember of a row goes into `Choice.order` and comes back as `Pool.order`. Set the attribute
``mergeable = True`` on it if two sketches made with it may be united.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.blocks import Blocks, to_numpy
from olss.leverage import pool_scores
from olss.rows import Array, Indices, take
from olss.sampling import inclusion, pivotal, successive

__all__ = ["Choice", "Paper", "Policy", "Pool", "Recent", "Reservoir", "Weighted"]

Floats: TypeAlias = NDArray[np.float64]

# The share of a weighted draw that goes to all rows alike. It bounds what one row can stand for
# (ten times the average), and gives rows of no leverage, which count as rows too, their chance.
UNIFORM_SHARE = 0.1

# NumPy's hypergeometric law takes populations below this.
HYPERGEOMETRIC_LIMIT = 10**9


@dataclass(frozen=True)
class Choice:
    """What a policy answers.

    Parameters
    ----------
    rows : (k,) int array, k <= pool.size
        Rows of the pool to keep, each once.
    weight : (k,) float array, optional
        Their weights from now on: how many of the rows seen each stands for. They stay as they
        are if not given.
    order : (k,) float array, optional
        A number to remember with each row; the pool gives it back as `Pool.order`.
    """

    rows: Indices
    weight: Floats | None = None
    order: Floats | None = None


class Policy(Protocol):
    """A function from a pool to the rows that stay."""

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Choose at most `pool.size` rows of the pool."""


class Pool:
    """The rows a policy chooses from: the `kept` first ones are held, the others are new.

    Attributes
    ----------
    size : int
        Rows that may stay.
    kept : int
        Rows held so far; they come first in each of the arrays below.
    weight, order : (n,) float arrays
        Weight of each row (1 if new), and what the policy remembered with it (NaN if nothing).
    task : (n,) int or str array
    index : (n,) int array
        The rows' positions in the stream.
    features : list of two arrays (held, ...) and (new, ...)
        What scores are taken of: the rows, or their images under the sketch's feature map.
    """

    def __init__(
        self,
        held: Mapping[str, Array],
        new: Mapping[str, Array],
        *,
        size: int,
        scores: str | float,
        features: Callable[[Array], Array],
        rng: np.random.Generator,
    ) -> None:
        self._parts = (held, new)
        self._map = features
        self._scores = scores
        self._rng = rng
        self.size = size
        self.kept = len(held["index"])
        self.weight: Floats = self._column("weight")
        self.order: Floats = self._column("order")
        self.task: NDArray[Any] = self._column("task")
        self.index: Indices = self._column("index")

    def __len__(self) -> int:
        return len(self.index)

    @property
    def features(self) -> list[Array]:
        """The rows to score, held and new; not one array, for that would be a copy of all."""
        return [self._held_features, self._new_features]

    @cached_property
    def _held_features(self) -> Array:
        return self._map(self._parts[0]["X"])

    @cached_property
    def _new_features(self) -> Array:
        return self._map(self._parts[1]["X"])

    @property
    def columns(self) -> int:
        """Features of a row."""
        return int(np.prod(self._new_features.shape[1:]))

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """(n,) class of each row, or None if `y` is not given or not a class."""
        if "y" not in self._parts[1]:
            return None
        labels = [_classes(to_numpy(part["y"])) for part in self._parts if len(part["index"])]
        known = [part for part in labels if part is not None]
        return np.concatenate(known) if len(known) == len(labels) else None

    @cached_property
    def strata(self) -> Indices:
        """(n,) number of each row's stratum: its task and class, or its task if without class."""
        stratum: Indices = np.unique(self.task, return_inverse=True)[1]
        if self.classes is not None:
            labels, code = np.unique(self.classes, return_inverse=True)
            stratum = np.unique(stratum * len(labels) + code, return_inverse=True)[1]
        return stratum

    def leverage(
        self,
        weight: Floats | None = None,
        *,
        rows: Indices | None = None,
        auto: str | None = None,
    ) -> Floats:
        """Leverage x' G^+ x of each row, G = sum w x x' over the rows.

        Parameters
        ----------
        weight : (n,) float array, optional
            The weights w; 1 if not given.
        rows : int array, optional
            Rows of the pool to look at, ascending, if not all. The others are not even read.
        auto : {"exact", "ridge", "sketched"}, optional
            How to score if the sketch was told ``scores="auto"``. By default exactly, but with a
            ridge if the sketch has fewer than twice as many rows as features.
        """
        auto = auto or ("exact" if self.size >= 2 * self.columns else "ridge")
        scores = auto if self._scores == "auto" else self._scores
        split = list(self._split(np.arange(len(self)) if rows is None else rows))
        parts = pool_scores(
            [
                features if len(at) == len(features) else take(features, at)
                for features, at, _ in split
            ],
            method="sketched" if scores == "sketched" else "exact",
            ridge="auto" if scores == "ridge" else None if isinstance(scores, str) else scores,
            weights=None if weight is None else [weight[which] for _, _, which in split],
            size=self.size,
            seed=self._rng,
        )
        return np.concatenate(parts)

    def floats(self, rows: Indices) -> NDArray[np.float32]:
        """Return the features of some rows of the pool, in any order, as one (k, d) array."""
        floats = np.empty((len(rows), self.columns), dtype=np.float32)
        for features, at, which in self._split(rows):
            for part, block in Blocks(take(features, at)).read(np.dtype(np.float32)):
                floats[which[part]] = to_numpy(block)
        return floats

    def _split(self, rows: Indices) -> Iterator[tuple[Array, Indices, Indices]]:
        """Yield (features of a part, rows of that part, their places in `rows`)."""
        is_new = rows >= self.kept
        if not is_new.all():
            which = np.flatnonzero(~is_new)
            yield self._held_features, rows[which], which
        if is_new.any():
            which = np.flatnonzero(is_new)
            yield self._new_features, rows[which] - self.kept, which

    def _column(self, name: str) -> Any:
        return np.concatenate([to_numpy(part[name]) for part in self._parts])


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
    Gram matrix, the number of rows of a task or a class. One tenth of q is spread over all rows
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


def _classes(y: NDArray[Any]) -> NDArray[Any] | None:
    """(n,) classes of labels or one-hot rows; None for real targets and several labels a row."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        return None if y.dtype.kind == "f" else y
    if y.ndim == 2 and np.all((y == 0) | (y == 1)) and np.all(y.sum(axis=1) == 1):
        classes: Indices = np.argmax(y, axis=1)
        return classes
    return None
