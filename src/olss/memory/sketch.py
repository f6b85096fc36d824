"""The online memory: a constant-size training set of everything seen so far."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from olss.common.uninterrupted import uninterrupted
from olss.core.row_blocks import to_numpy
from olss.errors import FormatError, InputError
from olss.memory import sketch_file
from olss.memory.description import Description
from olss.memory.intake import (
    EXTRA,
    checked_scores,
    checked_size,
    incoming,
    incoming_rows,
    task_column,
)
from olss.memory.novelty import Familiar
from olss.memory.policies import name_of, named
from olss.memory.pool import Choice, Floats, Policy, Pool, checked, classes_of
from olss.memory.store import Array, Indices, Rows, take

__all__ = ["Sketch"]

EMPTY = "the sketch is empty: give it rows with update(X, y) first."
FEATURE_BLOCK = 4096  # rows a feature map gets at a time
FALSE_ALARMS = 1e-3  # share of updates without a change that begin a task under task="auto"


class Sketch:
    """A constant-size training set of everything seen so far.

    Give it the data as they come; it keeps at most `size` rows of them, chosen by a policy. Train
    any model on ``sketch.X, sketch.y``.

    Parameters
    ----------
    size : int or "task"
        Rows to keep. ``"task"``: as many as the update just given has, the paper's setting, where
        each update is one task. ``sketch.size`` may be set between updates; a size that grows
        keeps what there is.
    policy : str or callable
        Which rows stay.

        - ``"weighted"``: by weighted leverage, unbiased for everything seen.
        - ``"paper"``: the paper's Algorithm 1; old tasks fade.
        - ``"reservoir"``: a uniform sample of everything seen.
        - ``"balanced"``: the same number of rows for each task and class, in each those that
          look most like all of it; ``"balanced-leverage"`` and ``"balanced-random"`` choose
          inside by leverage and at random.
        - ``"recent"``: the last rows.
        - or your own; see `olss.memory.policies`.
    scores : {"auto", "exact", "ridge", "sketched"} or float
        The leverage scores used by policies that use any. ``"ridge"`` chooses a ridge that leaves
        an effective dimension of about size/20; a number is a ridge of that value;
        ``"sketched"`` is faster and approximate. ``"auto"`` is exact for ``"paper"`` and wherever
        the sketch has at least twice as many rows as features, else ridge: without one, all rows
        of a small sketch score alike.
    features : callable, optional
        Scores are taken of ``features(X)``, an array (n, k), instead of X: a network's last hidden
        layer, for instance. It is called with at most 4,096 rows at a time, and at each update
        again for the rows held, since networks change.
    pad : tuple of int, optional
        The largest row shape to come; smaller rows are filled up with zeros at the end of each
        dimension. Without it all rows must have one shape.
    pad_y : tuple of int, optional
        The same for the rows of `y`.
    seed : int, numpy.random.Generator or None
        Where the randomness comes from. The same seed and data give the same bytes.

    Attributes
    ----------
    X, y, task, weight, index : arrays of len(sketch) rows
        The rows kept and, aligned with them: their targets (None if there are none), their tasks,
        how many of the rows seen each stands for, and their positions in the stream, counted from
        0. They are views of the sketch's memory: an update changes what they show, so copy what
        must last. Rows are in no particular order: a new row takes the place of one that went.
    extra : dict of str to array
        The other columns that ride along.
    seen : int
        Rows seen so far.

    Examples
    --------
    >>> import numpy as np, olss
    >>> rng = np.random.default_rng(0)
    >>> sketch = olss.Sketch(size=100, seed=0)
    >>> for task in range(3):
    ...     X = rng.standard_normal((1_000, 5)) + task
    ...     _ = sketch.update(X, y=X[:, 0] > task, task=task)
    >>> sketch
    Sketch(size=100, policy='weighted': 100 rows of 3,000 seen, 3 tasks)
    >>> sketch.X.shape, sketch.y.shape
    ((100, 5), (100,))
    """

    def __init__(
        self,
        size: int | Literal["task"],
        policy: str | Policy = "weighted",
        *,
        scores: str | float = "auto",
        features: Callable[[Array], Array] | None = None,
        pad: tuple[int, ...] | None = None,
        pad_y: tuple[int, ...] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        self.size: int | Literal["task"] = "task" if size == "task" else checked_size(size)
        self.policy = named(policy)
        self.scores = checked_scores(scores)
        self.features = features
        self.pad = pad if pad is None else tuple(pad)
        self.pad_y = pad_y if pad_y is None else tuple(pad_y)
        self._rng = np.random.default_rng(seed)
        self._rows = Rows()
        self._seen = 0
        self._task: int | str = 0
        self._familiar: dict[int | str | None, Familiar] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        tasks = len(np.unique(self.task)) if len(self) else 0
        return (
            f"Sketch(size={self.size!r}, policy={_title(self.policy)!r}: {len(self):,} rows of "
            f"{self.seen:,} seen, {tasks} task{'' if tasks == 1 else 's'})"
        )

    @property
    def X(self) -> Array:  # noqa: N802
        """The rows kept, (len, ...)."""
        return self._column("X")

    @property
    def y(self) -> Array | None:
        """Their targets, or None."""
        return self._rows["y"] if "y" in self._rows else None  # noqa: SIM401

    @property
    def task(self) -> NDArray[Any]:
        """Their tasks."""
        tasks: NDArray[Any] = self._column("task")
        return tasks

    @property
    def weight(self) -> NDArray[np.float64]:
        """How many of the rows seen each stands for."""
        weights: NDArray[np.float64] = self._column("weight")
        return weights

    @property
    def index(self) -> Indices:
        """Their positions in the stream."""
        indices: Indices = self._column("index")
        return indices

    @property
    def extra(self) -> dict[str, Array]:
        """The other columns that ride along."""
        return {
            name.removeprefix(EXTRA): self._rows[name]
            for name in self._rows
            if name.startswith(EXTRA)
        }

    @property
    def seen(self) -> int:
        """Rows seen so far."""
        return self._seen

    def update(
        self,
        X: Any,
        y: Any = None,
        task: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Take in rows and keep what the policy chooses of them and of the rows held.

        If it raises, the sketch is as it was before.

        Parameters
        ----------
        X : array (n, ...), NumPy or torch, of any real dtype
            Rows, kept as they are: uint8 images stay uint8, tensors stay on their device.
        y : array (n,) or (n, ...), optional
            Labels (numbers or text), one-hot rows, or real targets of any shape.
        task : int, str or array (n,) of them, optional
            The task the rows belong to. Not given: that of the last update, 0 at the start; so a
            stream without tasks is one task. ``"auto"``: a new task, numbered one higher, begins
            where an update brings rows unlike those held of the current task (see `novelty`).
            Under ``"weighted"`` and ``"reservoir"``, one in a thousand updates that bring nothing
            new is taken for a new task; under ``"paper"`` fewer, under ``"balanced"`` some more.
        extra : mapping of str to array (n, ...), optional
            Columns that ride along with the rows: identifiers, times.

        Returns
        -------
        Sketch
            Itself.
        """
        new = incoming(X, y, extra, held=self._rows, pad=self.pad, pad_y=self.pad_y)
        n = len(new["X"])
        if task is None:
            task = self._task
        elif isinstance(task, str) and task == "auto":
            task = self._detected_task(new["X"])
        new["task"] = task_column(task, n, self._rows)
        new["weight"] = np.ones(n)
        new["index"] = np.arange(self._seen, self._seen + n)
        new["order"] = np.full(n, np.nan)
        size = n if self.size == "task" else checked_size(self.size)
        self._absorb(new, size, seen=n, task=new["task"][-1].item())
        return self

    def merge(self, other: Sketch) -> Self:
        """Take in another sketch, so that this one is a sketch of both histories.

        The other's history counts as coming after this one's: its `index` goes on from `seen`.
        Sketches to be merged should have different seeds. The other sketch stays as it is.

        Not every policy can do it: ``"paper"`` and ``"recent"`` keep no account of what a row
        stands for, so rows of two histories cannot be weighed against each other.
        """
        if not isinstance(other, Sketch):
            raise InputError(f"other must be a Sketch, found {type(other).__name__}.")
        if self.policy != other.policy:
            raise InputError(
                f"sketches of different policies do not merge, found {_title(self.policy)!r} and "
                f"{_title(other.policy)!r}."
            )
        if not getattr(self.policy, "mergeable", False):
            raise InputError(
                f"policy {_title(self.policy)!r} does not say how many rows each row stands for, "
                "so two of its sketches cannot be merged; use 'weighted', 'reservoir' or "
                "'balanced'."
            )
        if len(other):
            new = incoming(
                other.X, other.y, other.extra, held=self._rows, pad=self.pad, pad_y=self.pad_y
            )
            new["task"] = task_column(other.task, len(other), self._rows)
            new["weight"] = other.weight.copy()
            new["index"] = other.index + self._seen
            new["order"] = other._rows["order"].copy()
            size = max(len(self), len(other)) if self.size == "task" else checked_size(self.size)
            self._absorb(new, size, seen=other.seen, task=other._task)
        else:
            self._seen += other.seen
        return self

    def remove(self, index: Any) -> int:
        """Forget rows for good; their memory is overwritten.

        The other rows and their weights stay as they are. Under ``"weighted"`` and
        ``"reservoir"`` they remain an unbiased sketch of all rows seen but those removed.

        Parameters
        ----------
        index : int or array of int
            Positions in the stream, as in ``sketch.index``. Those of rows not held are passed
            over: the sketch has forgotten them already.

        Returns
        -------
        int
            Rows removed.

        Examples
        --------
        >>> sketch = Sketch(size=10).update(np.eye(3), extra={"person": ["ann", "bob", "ann"]})
        >>> sketch.remove(sketch.index[sketch.extra["person"] == "ann"])
        2
        """
        positions = np.atleast_1d(np.asarray(index))
        if positions.size and positions.dtype.kind not in "iu":
            raise InputError(f"index must be whole numbers, found {index!r}.")
        if positions.size and not (positions.min() >= 0 and positions.max() < self._seen):
            raise InputError(
                f"index must be positions in the stream, 0 to {self._seen - 1}, found {index!r}."
            )
        if not len(self):
            return 0
        keep = np.flatnonzero(~np.isin(self.index, positions))
        removed = len(self) - len(keep)
        self._rows.drop(keep)
        self._familiar.clear()
        return removed

    def novelty(self, X: Any, task: int | str | None = None) -> Floats:
        """How unlike everything remembered rows are, from 0 to 1.

        It is the share of remembered rows that are less novel than this row, by ridge leverage
        against the sketch's weighted Gram matrix, each remembered row being judged by the others
        (see `olss.memory.novelty`). Rows like those remembered have values uniform in [0, 1]: one
        in a hundred is above 0.99. With m rows remembered, the values are right to about 1/sqrt(m).

        Parameters
        ----------
        X : array (n, ...)
            Rows as for `update`.
        task : int or str, optional
            Compare with the rows held of this task instead of with all.

        Examples
        --------
        A drift alarm: more rows in the highest 5% than chance allows.

        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((5_000, 10)))
        >>> def drifts(X):
        ...     return np.mean(sketch.novelty(X) > 0.95) > 0.05 + 4 * np.sqrt(0.05 / len(X))
        >>> bool(drifts(rng.standard_normal((200, 10))))
        False
        >>> bool(drifts(rng.standard_normal((200, 10)) * 1.5))
        True
        """
        if not len(self):
            raise InputError(EMPTY)
        X = incoming_rows(X, held=self._rows, pad=self.pad)
        return self._familiar_rows(task).novelty(self._map(X))

    def describe(self) -> Description:
        """Return rows per task and class, weights and effective sample size, as a table to read.

        Examples
        --------
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> Sketch(size=4, policy="reservoir", seed=0).update(X, y=list("aabbab")).describe()
        4 rows of 6 seen
        weights 1.5 to 1.5, mean 1.5; worth 4 rows of equal weight
        task  rows  stand for  a  b
           0     4          6  2  2
        """
        if not len(self):
            raise InputError(EMPTY)
        classes = None if self.y is None else classes_of(self.y)
        return Description.of(self.seen, self.task, classes, self.weight)

    def batches(
        self, size: int, *, shuffle: bool = True, seed: int | np.random.Generator | None = None
    ) -> Iterator[tuple[Array, Array | None]]:
        """Yield copies of the rows as (X, y) batches of `size`, each row once.

        Parameters
        ----------
        size : int
            Rows a batch; the last one may be smaller.
        shuffle : bool
            Whether in random order, rather than in that of ``sketch.X``.
        seed : int or numpy.random.Generator, optional
            For the order. The sketch's own randomness is not touched.
        """
        if size < 1:
            raise InputError(f"size must be a positive whole number, found {size}.")
        order = np.arange(len(self))
        if shuffle:
            np.random.default_rng(seed).shuffle(order)
        for start in range(0, len(self), size):
            rows = order[start : start + size]
            yield take(self.X, rows), None if self.y is None else take(self.y, rows)

    def copy(self) -> Self:
        """Return an independent copy; it shares only the policy and the feature map."""
        other = copy.copy(self)
        other._rows = self._rows.copy()
        other._rng = copy.deepcopy(self._rng)
        other._familiar = {}
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch into one Parquet file, whole or not at all.

        pandas, polars and DuckDB open it as a table of X (a list per row), y, task, weight, index
        and the columns that ride along. `load` reads it and goes on byte for byte as if nothing
        had been in between. A policy or feature map of your own is not saved.
        """
        state = {
            "size": self.size,
            "policy": name_of(self.policy),
            "scores": self.scores,
            "features": self.features is not None,
            "pad": self.pad,
            "pad_y": self.pad_y,
            "seen": self._seen,
            "task": self._task,
            "generator": self._rng.bit_generator.state,
        }
        sketch_file.write(path, self._rows, state)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: str | Policy | None = None,
        features: Callable[[Array], Array] | None = None,
        device: Any = None,
    ) -> Self:
        """Read a sketch that `save` wrote.

        Parameters
        ----------
        path : path
        policy, features : callable, optional
            What the sketch was made with, if that was your own. The rows can be read without;
            an update then says what is missing.
        device : torch device, optional
            Where to put tensors; the host by default.
        """
        own = None if policy is None else named(policy)
        rows, state = sketch_file.read(path, device)
        try:
            sketch = cls(
                state["size"],
                own or state["policy"] or _missing("policy"),
                scores=state["scores"],
                features=features or (_missing("features") if state["features"] else None),
                pad=state["pad"],
                pad_y=state["pad_y"],
                seed=sketch_file.generator(state["generator"]),
            )
            sketch._rows, sketch._seen, sketch._task = rows, int(state["seen"]), state["task"]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} has damaged sketch metadata ({error!r}).") from error
        return sketch

    def _column(self, name: str) -> Any:
        if name not in self._rows:
            raise InputError(EMPTY)
        return self._rows[name]

    def _absorb(self, new: dict[str, Array], size: int, *, seen: int, task: int | str) -> None:
        """Let the policy choose among the rows held and `new`, then put the chosen into place.

        The new rows stand for `seen` rows of the stream, the last of them of this `task`.
        """
        held = {name: self._rows[name] for name in self._rows}
        held = held or {name: column[:0] for name, column in new.items()}
        total = len(self) + len(new["index"])
        state = self._rng.bit_generator.state
        try:
            choice = Choice(np.arange(total))
            if total > size:
                pool = Pool(
                    held, new, size=size, scores=self.scores, features=self._map, rng=self._rng
                )
                choice = checked(self.policy(pool, self._rng), total, size)
            kept = choice.rows[choice.rows < len(self)]
            chosen = choice.rows[choice.rows >= len(self)] - len(self)
            reserve = min(size, 2 * total) if len(self) else 0
            with uninterrupted():
                slots = self._rows.replace(kept, new, chosen, reserve)
                if choice.weight is not None:
                    self._rows["weight"][slots] = choice.weight
                if choice.order is not None:
                    self._rows["order"][slots] = choice.order
                self._familiar.clear()
                self._seen += seen
                self._task = task
                state = self._rng.bit_generator.state
        except BaseException:
            self._rng.bit_generator.state = state
            raise

    def _detected_task(self, X: Array) -> int | str:
        """Return the current task, or the next one if the rows are unlike those held of it."""
        if isinstance(self._task, str):
            raise InputError(
                f"task='auto' numbers tasks, but the last one is called {self._task!r}; "
                "use numbers throughout."
            )
        if not len(self) or not (self.task == self._task).any():
            return self._task
        familiar = self._familiar_rows(self._task)
        if familiar.chance(familiar.novelty(self._map(X))) >= FALSE_ALARMS:
            return self._task
        return max(self._task, int(self.task.max())) + 1

    def _familiar_rows(self, task: int | str | None) -> Familiar:
        """Return what the rows held, or those of a task, look like; worked out once."""
        if task in self._familiar:
            return self._familiar[task]
        X, weight = self.X, self.weight
        if task is not None:
            rows = np.flatnonzero(self.task == task)
            if not len(rows):
                raise InputError(f"no row of task {task!r} is held.")
            X, weight = take(X, rows), weight[rows]
        familiar = Familiar.of(self._map(X), weight)
        if self.features is None:  # a feature map may change at any time
            self._familiar = {task: familiar}
        return familiar

    def _map(self, X: Array) -> Array:
        """Return what scores are taken of, computed a block at a time."""
        if self.features is None:
            return X
        blocks = [
            to_numpy(self.features(X[start : start + FEATURE_BLOCK]))
            for start in range(0, len(X), FEATURE_BLOCK)
        ]
        mapped = np.concatenate(blocks) if blocks else np.empty((0, 1))
        if mapped.ndim < 2 or len(mapped) != len(X):
            raise InputError(
                f"features must return one row for each of the {len(X)} it gets, shape (n, k), "
                f"found shape {mapped.shape}."
            )
        return mapped


def _title(policy: Policy) -> str:
    return name_of(policy) or str(getattr(policy, "__name__", type(policy).__name__))


def _missing(name: str) -> Callable[..., Any]:
    """Stand in for what a file cannot hold."""

    def missing(*_: Any) -> Any:
        raise InputError(
            f"this sketch was saved with {name} of its own, which a file does not hold; "
            f"load it with load(path, {name}=...)."
        )

    return missing
