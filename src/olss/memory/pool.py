"""What a policy is given, the pool, and what it returns, a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, is_arrow, to_numpy
from olss.core.leverage import pool_scores
from olss.core.sampling import code_values, combine_codes
from olss.errors import InputError
from olss.memory.rows import EXTRA, Array, Floats, Indices, RowStore, length_of, take
from olss.memory.strata import StratumShares
from olss.tables.class_labels import class_codes, class_labels, target_numbers
from olss.util.threads import cached_property

TABLE_BLOCK = 16_384  # rows of a table encoded at a time


@dataclass(frozen=True)
class Choice:
    """What a policy returns.

    Parameters
    ----------
    rows : (k,) int array, k <= pool.size
        Rows of the pool to keep, each once.
    weight : (k,) float array, optional
        Their weights from now on: how many of the rows seen each stands for. Unchanged if not
        given.
    priority : (k,) float array, optional
        A number to remember with each row; the pool gives it back as `Pool.priority`.
    """

    rows: Indices
    weight: Floats | None = None
    priority: Floats | None = None

    def check(self, total: int, size: int) -> Choice:
        """Return the choice by ascending row, or raise if it is not one of a pool of `total`."""
        chosen = np.asarray(self.rows, dtype=np.int64)
        order = np.argsort(chosen)
        rows = chosen[order]
        repeated = int((rows[1:] == rows[:-1]).sum())
        if repeated or len(rows) > size:
            raise InputError(
                f"policy must choose at most {size} different rows, found {len(rows)} of "
                f"which {len(rows) - repeated} differ."
            )
        if len(rows) and (rows[0] < 0 or rows[-1] >= total):
            raise InputError(f"policy must choose rows from 0 to {total - 1}, found {rows}.")
        aligned = {"weight": self.weight, "priority": self.priority}
        for name, values in aligned.items():
            if values is None:
                continue
            finite = name != "weight" or np.isfinite(values).all()
            if np.shape(values) != rows.shape or not finite:
                raise InputError(f"policy must give a finite {name} for each row it chooses.")
            aligned[name] = np.asarray(values, dtype=np.float64)[order]
        return Choice(rows, **aligned)


class Scorer(Protocol):
    """Leverage scores in everything the pool stands for."""

    @property
    def dimension(self) -> float:
        """The sum of the leverage of everything."""

    @property
    def total(self) -> float:
        """The weight of everything."""

    def __call__(self, rows: Array) -> tuple[Floats, Floats | None]:
        """Return the leverage of each row, and coordinates along which to spread a sample."""


class Candidates(Protocol):
    """What priorities are computed from: a `Pool`, or a chunk of a file."""

    @property
    def index(self) -> Indices:
        """(n,) positions in the stream."""

    @property
    def dimension(self) -> float:
        """The sum of the leverage of everything."""

    @property
    def total(self) -> float:
        """The weight of everything."""

    @property
    def target(self) -> Literal["class", "number"] | None:
        """The kind of target that scores should use, if any."""

    @property
    def shares(self) -> StratumShares | None:
        """The part of the strata in priorities, if the sketch has strata."""

    @property
    def coordinates(self) -> Floats | None:
        """(k, n) coordinates along a few principal directions of everything, if known."""

    def __len__(self) -> int: ...

    def scores(self) -> Floats:
        """Return the leverage of each row in everything."""


class Pool:
    """The rows a policy chooses from: the first `kept` ones are held, the others are new.

    Attributes
    ----------
    size : int
        Rows that may stay.
    kept : int
        Rows held so far; they come first in each of the arrays below.
    weight, priority : (n,) float arrays
        Weight of each row (1 if new), and what the policy remembered with it (NaN if nothing).
    task : (n,) int or str array
    index : (n,) int array
        Positions in the stream.
    features : list of two arrays (held, ...) and (new, ...)
        What is scored: the rows, the encoded columns of a table, or the rows under the sketch's
        feature map.
    target : {"class", "number"} or None
        The kind of target that scores should use, if any.
    """

    def __init__(
        self,
        held: RowStore,
        new: RowStore,
        *,
        size: int,
        encode: Callable[[Array], Array],
        scores: str | float = "auto",
        scorer: Scorer | None = None,
        has_classes: bool = True,
        target: Literal["class", "number"] | None = None,
        shares: Callable[[list[RowStore], Floats], StratumShares] | None = None,
        rng: np.random.Generator,
    ) -> None:
        self._parts = (held, new) if len(held) else (new.take(np.arange(0)), new)
        self._encode = encode
        self._scores = scores
        self._scorer = scorer
        self._scored: list[tuple[Floats, Floats | None]] = []
        self._has_classes = has_classes
        self._shares = shares
        self._rng = rng
        self.target = target
        self.size = size
        self.kept = len(held)
        self.weight: Floats = self.column("weight")
        self.priority: Floats = self.column("priority")
        self.task: NDArray[Any] = self.column("task")
        self.index: Indices = self.column("index")

    def __len__(self) -> int:
        return len(self.index)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as one array: "y", or an extra column, by its name."""
        name = name if name in self._parts[1] else EXTRA + name
        if name not in self._parts[1]:
            raise InputError(f"the rows have no column {name.removeprefix(EXTRA)!r}.")
        return np.concatenate([to_numpy(part[name]) for part in self._parts])

    @property
    def features(self) -> list[Array]:
        """What is scored, of the held and of the new rows; joining them would copy everything."""
        return [self._held_features, self._new_features]

    @cached_property
    def _held_features(self) -> Array:
        return self._encode(self._parts[0]["X"])

    @cached_property
    def _new_features(self) -> Array:
        return self._encode(self._parts[1]["X"])

    @property
    def width(self) -> int:
        """Features of a row."""
        return int(np.prod(self._new_features.shape[1:]))

    @property
    def target_numbers(self) -> Floats:
        """(n, k) the targets as numbers."""
        return target_numbers([part["y"] for part in self._parts if len(part)])

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """(n,) class of each row, or None if there is no `y` or it is not a class."""
        if "y" not in self._parts[1] or not self._has_classes:
            return None
        return class_labels([part["y"] for part in self._parts if len(part)])

    @cached_property
    def strata(self) -> Indices:
        """(n,) number of each row's stratum: its task and class, or its task if without class."""
        targets = [part["y"] for part in self._parts if "y" in part and len(part)]
        return strata_of(self.task, targets if self._has_classes else [])

    @cached_property
    def shares(self) -> StratumShares | None:
        """The part of the sketch's strata in priorities; None if it has none.

        These are the strata named by the sketch's setting, not the tasks and classes of `strata`.
        """
        return None if self._shares is None else self._shares(list(self._parts), self.weight)

    @property
    def dimension(self) -> float:
        """The sum of the leverage of everything the pool stands for."""
        if self._scorer is not None:
            return self._scorer.dimension
        return float(self.weight @ self._own_leverage)

    @property
    def total(self) -> float:
        """The weight of everything the pool stands for."""
        return self._scorer.total if self._scorer is not None else float(self.weight.sum())

    def scores(self) -> Floats:
        """Return the leverage of the rows in everything the pool stands for.

        Where the sketch keeps no moments, that is the pool itself, with its weights.
        """
        if self._scorer is None:
            return self._own_leverage
        if not self._scored:
            for part in self._parts:
                if len(part):
                    self._scored.append(self._scorer(part["X"]))
        return np.concatenate([scores for scores, _ in self._scored])

    @property
    def coordinates(self) -> Floats | None:
        """(k, n) coordinates along a few principal directions of everything, if known."""
        self.scores()
        found = [coordinates for _, coordinates in self._scored if coordinates is not None]
        return np.concatenate(found, axis=1) if found else None

    @cached_property
    def _own_leverage(self) -> Floats:
        return self.leverage(self.weight)

    def leverage(self, weight: Floats | None = None, *, rows: Indices | None = None) -> Floats:
        """Return the leverage x' G^+ x of each row, G = sum w x x' over the rows of the pool.

        Parameters
        ----------
        weight : (n,) float array, optional
            The weights w; 1 if not given.
        rows : int array, optional
            Rows of the pool to look at, ascending, if not all. The others are not even read.
        """
        scores = self._scores
        if scores == "auto":
            scores = "exact" if self.size >= 2 * self.width else "ridge"
        split = list(self._split(np.arange(len(self)) if rows is None else rows))
        parts = pool_scores(
            [_take_some(features, at) for features, at, _ in split],
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
            for part, block in _read_floats(take(features, at)):
                floats[which[part]] = block
        return floats

    def blocks(self, rows: Indices) -> Iterator[tuple[Indices, NDArray[np.float32]]]:
        """Yield (places in `rows`, features of these rows), a block at a time, not to be kept.

        Tables are encoded a block at a time: encoded rows are larger than the rows.
        """
        is_table = is_arrow(self._parts[1]["X"])
        for source, at, which in self._split(rows, encoded=not is_table):
            step = TABLE_BLOCK if is_table else max(len(at), 1)
            for start in range(0, len(at), step):
                some = _take_some(source, at[start : start + step])
                for part, block in _read_floats(self._encode(some) if is_table else some):
                    yield which[start:][part], block

    def _split(
        self, rows: Indices, *, encoded: bool = True
    ) -> Iterator[tuple[Array, Indices, Indices]]:
        """Yield (features or X of a part, rows of that part, their places in `rows`)."""
        is_new = rows >= self.kept
        for number, mine in enumerate((~is_new, is_new)):
            if not mine.any():
                continue
            which = np.flatnonzero(mine)
            if not encoded:
                part = self._parts[number]["X"]
            else:  # not both: the features of the other part may never be needed
                part = self._new_features if number else self._held_features
            yield part, rows[which] - number * self.kept, which


def strata_of(task: NDArray[Any], targets: Sequence[Array]) -> Indices:
    """(n,) number of each row's stratum: its task and class, or its task if without class."""
    stratum = code_values(task)
    return combine_codes(stratum, class_codes(targets)) if targets else stratum


def _take_some(part: Array, rows: Indices) -> Array:
    """Return some rows; without a copy if they are all, in their order."""
    is_all = len(rows) == length_of(part) and (np.diff(rows) > 0).all()
    return part if is_all else take(part, rows)


def _read_floats(features: Array) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    for part, block in Blocks(features).read(np.dtype(np.float32)):
        yield part, block.toarray() if hasattr(block, "toarray") else to_numpy(block)
