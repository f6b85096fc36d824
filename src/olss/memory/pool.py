"""What a policy is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, to_numpy
from olss.core.leverage import pool_scores
from olss.errors import InputError
from olss.memory.own_columns import EXTRA
from olss.memory.store import Array, Indices, RowStore, is_arrow, take
from olss.memory.target_classes import classes_of, numbers_of_target

__all__ = ["Candidates", "Choice", "Floats", "Policy", "Pool", "Scorer", "checked", "strata_of"]

Floats: TypeAlias = NDArray[np.float64]

TABLE_BLOCK = 16_384  # rows of a table made numbers at a time


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
    """A function from a pool to the rows that stay.

    It may also have, as attributes, what `olss.memory.policies` says of them: `mergeable`,
    `scored`, `waits`, `renews`, and the methods `marks`, `thin` and `limit`.
    """

    def __call__(self, pool: Pool, rng: np.random.Generator) -> Choice:
        """Choose at most `pool.size` rows of the pool."""


class Candidates(Protocol):
    """What the marks of rows are made of; a `Pool` is one."""

    @property
    def index(self) -> Indices:
        """(n,) the rows' places in the stream."""

    @property
    def dimension(self) -> float:
        """What the leverage of everything sums to."""

    @property
    def total(self) -> float:
        """The weight of everything."""

    @property
    def target(self) -> Literal["class", "number"] | None:
        """What the targets are that scores should know, if they should know any."""

    def __len__(self) -> int: ...

    def scores(self) -> Floats:
        """Return the leverage of each row in everything."""


class Scorer(Protocol):
    """Leverage in everything the pool stands for."""

    @property
    def dimension(self) -> float:
        """What the leverage of everything sums to."""

    @property
    def total(self) -> float:
        """The weight of everything."""

    def __call__(self, rows: Array) -> Floats:
        """Return the leverage of each row."""


@dataclass(frozen=True)
class _PoolScores:
    """Leverage in the pool itself."""

    leverage: Floats
    weight: Floats

    @property
    def dimension(self) -> float:
        return float(self.weight @ self.leverage)

    @property
    def total(self) -> float:
        return float(self.weight.sum())


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
        What scores are taken of: the rows, the numbers a table's columns make, or the rows' images
        under the sketch's feature map.
    """

    def __init__(
        self,
        held: RowStore,
        new: RowStore,
        *,
        size: int,
        features: Callable[[Array], Array],
        scores: str | float = "auto",
        auto: str | None = None,
        scorer: Scorer | None = None,
        classes: bool = True,
        target: Literal["class", "number"] | None = None,
        rng: np.random.Generator,
    ) -> None:
        self._parts = (held, new) if len(held) else (new.take(np.arange(0)), new)
        self._map = features
        self._scores = scores
        self._auto = auto
        self._scorer = scorer
        self._has_classes = classes
        self._target = target
        self._rng = rng
        self.size = size
        self.kept = len(held)
        self.weight: Floats = self.column("weight")
        self.order: Floats = self.column("order")
        self.task: NDArray[Any] = self.column("task")
        self._index: Indices = self.column("index")

    def __len__(self) -> int:
        return len(self._index)

    @property
    def index(self) -> Indices:
        """(n,) the rows' positions in the stream."""
        return self._index

    @property
    def target(self) -> Literal["class", "number"] | None:
        """What the targets are that scores should know, if they should know any."""
        return self._target

    @property
    def target_numbers(self) -> Floats:
        """(n, k) the targets as numbers."""
        return numbers_of_target([part["y"] for part in self._parts if len(part)])

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
    def width(self) -> int:
        """Features of a row."""
        return int(np.prod(self._new_features.shape[1:]))

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """(n,) class of each row, or None if `y` is not given or not a class."""
        if "y" not in self._parts[1] or not self._has_classes:
            return None
        return classes_of([part["y"] for part in self._parts if len(part)])

    @cached_property
    def strata(self) -> Indices:
        """(n,) number of each row's stratum: its task and class, or its task if without class."""
        return strata_of(self.task, self.classes)

    @property
    def dimension(self) -> float:
        """What the leverage of everything the pool stands for sums to."""
        return self._everything.dimension

    @property
    def total(self) -> float:
        """The weight of everything the pool stands for."""
        return self._everything.total

    def scores(self, rows: Indices | None = None) -> Floats:
        """Return the leverage of rows, all by default, in everything the pool stands for.

        Where a sketch keeps no spectrum, that is the pool, with its weights.
        """
        rows = np.arange(len(self)) if rows is None else rows
        if isinstance(self._everything, _PoolScores):
            return self._everything.leverage[rows]
        scores = np.empty(len(rows))
        for part, at, which in self._split(rows, "X"):
            scores[which] = self._everything(_some(part, at))
        return scores

    @cached_property
    def _everything(self) -> Scorer | _PoolScores:
        return self._scorer or _PoolScores(self.leverage(self.weight), self.weight)

    def leverage(
        self,
        weight: Floats | None = None,
        *,
        rows: Indices | None = None,
    ) -> Floats:
        """Return the leverage x' G^+ x of each row, G = sum w x x' over the rows of the pool.

        Parameters
        ----------
        weight : (n,) float array, optional
            The weights w; 1 if not given.
        rows : int array, optional
            Rows of the pool to look at, ascending, if not all. The others are not even read.
        """
        auto = self._auto or ("exact" if self.size >= 2 * self.width else "ridge")
        scores = auto if self._scores == "auto" else self._scores
        split = list(self._split(np.arange(len(self)) if rows is None else rows))
        parts = pool_scores(
            [_some(features, at) for features, at, _ in split],
            method="sketched" if scores == "sketched" else "exact",
            ridge="auto" if scores == "ridge" else None if isinstance(scores, str) else scores,
            weights=None if weight is None else [weight[which] for _, _, which in split],
            size=self.size,
            seed=self._rng,
        )
        return np.concatenate(parts)

    def floats(self, rows: Indices) -> NDArray[np.float32]:
        """Return the features of some rows of the pool, in any order, as one (k, d) array."""
        floats = np.empty((len(rows), self.width), dtype=np.float32)
        for features, at, which in self._split(rows):
            for part, block in _float_blocks(take(features, at)):
                floats[which[part]] = block
        return floats

    def blocks(self, rows: Indices) -> Iterator[tuple[Indices, NDArray[np.float32]]]:
        """Yield (places in `rows`, features of these rows), a block at a time, not to be kept.

        Rows of a table become numbers a block at a time, too: those are more than the rows.
        """
        tables = is_arrow(self._parts[1]["X"])
        for source, at, which in self._split(rows, "X" if tables else "features"):
            step = TABLE_BLOCK if tables else max(len(at), 1)
            for start in range(0, len(at), step):
                some = _some(source, at[start : start + step])
                for part, block in _float_blocks(self._map(some) if tables else some):
                    yield which[start:][part], block

    def _split(
        self, rows: Indices, what: str = "features"
    ) -> Iterator[tuple[Array, Indices, Indices]]:
        """Yield (features or rows of a part, rows of that part, their places in `rows`)."""
        is_new = rows >= self.kept
        for number, mine in enumerate((~is_new, is_new)):
            if mine.any():
                which = np.flatnonzero(mine)
                if what != "features":
                    part = self._parts[number][what]
                else:  # those of the other part are perhaps never asked for
                    part = self._new_features if number else self._held_features
                yield part, rows[which] - number * self.kept, which

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as one array: "y", or one that rides along, by its name."""
        name = name if name in self._parts[1] else EXTRA + name
        if name not in self._parts[1]:
            raise InputError(f"the rows have no column {name.removeprefix(EXTRA)!r}.")
        return np.concatenate([to_numpy(part[name]) for part in self._parts])


def _some(part: Array, rows: Indices) -> Array:
    """Return some rows; without a copy if they are all, in their order."""
    whole = part.num_rows if hasattr(part, "num_rows") else part.shape[0]
    return part if len(rows) == whole and (np.diff(rows) > 0).all() else take(part, rows)


def _float_blocks(features: Array) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    for part, block in Blocks(features).read(np.dtype(np.float32)):
        yield part, block.toarray() if hasattr(block, "toarray") else to_numpy(block)


def strata_of(task: NDArray[Any], classes: NDArray[Any] | None) -> Indices:
    """(n,) number of each row's stratum: its task and class, or its task if without class."""
    stratum = _codes(task)
    if classes is not None and len(classes):
        code = _codes(classes)
        stratum = _codes(stratum * (code.max() + 1) + code)
    return stratum


def _codes(values: NDArray[Any]) -> Indices:
    """Return the place of each value among the different ones, in their order."""
    if len(values) and values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64):
        least, most = int(values.min()), int(values.max())
        if most - least < 4 * len(values):  # a table of all there may be, instead of sorting
            at = values.astype(np.int64) - least
            there = np.zeros(most - least + 1, dtype=np.int64)
            there[at] = 1
            return np.asarray((np.cumsum(there) - 1)[at])
    codes: Indices = np.unique(values, return_inverse=True)[1]
    return codes


def checked(choice: Any, total: int, size: int) -> Choice:
    """Return what a policy answered, by ascending row; or say what is wrong with it."""
    if not isinstance(choice, Choice):
        raise InputError(f"the policy must return a Choice of olss.memory, found {choice!r}.")
    rows, first = np.unique(np.asarray(choice.rows, dtype=np.int64), return_index=True)
    if len(rows) != len(choice.rows) or len(rows) > size:
        raise InputError(
            f"the policy must choose at most {size} different rows, found {len(choice.rows)} "
            f"of which {len(rows)} differ."
        )
    if len(rows) and (rows[0] < 0 or rows[-1] >= total):
        raise InputError(f"the policy must choose rows from 0 to {total - 1}, found {rows}.")
    aligned = {"weight": choice.weight, "order": choice.order}
    for name, values in aligned.items():
        if values is None:
            continue
        if np.shape(values) != rows.shape or (name == "weight" and not np.isfinite(values).all()):
            raise InputError(f"the policy must give a finite {name} for each row it chooses.")
        aligned[name] = np.asarray(values, dtype=np.float64)[first]
    return Choice(rows, **aligned)
