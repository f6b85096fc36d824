"""The online memory: a constant-size training set of everything seen so far."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from olss.balanced import Balanced
from olss.blocks import to_numpy
from olss.errors import InputError
from olss.gram import check_number
from olss.intake import EXTRA, incoming, task_column
from olss.policies import Choice, Paper, Policy, Pool, Recent, Reservoir, Weighted
from olss.rows import Array, Indices, Rows, take

__all__ = ["POLICIES", "Sketch"]

POLICIES: dict[str, Policy] = {
    "paper": Paper(),
    "weighted": Weighted(),
    "reservoir": Reservoir(),
    "balanced": Balanced(),
    "balanced-leverage": Balanced("leverage"),
    "balanced-random": Balanced("random"),
    "recent": Recent(),
}
SCORES = ("auto", "exact", "ridge", "sketched")
FEATURE_BLOCK = 4096  # rows a feature map gets at a time


class Sketch:
    """A constant-size training set of everything seen so far.

    Give it the data as they come; it keeps at most `size` rows of them, chosen by a policy. Train
    any model on ``sketch.X, sketch.y``.

    Parameters
    ----------
    size : int or "task"
        Rows to keep. ``"task"``: as many as the update just given has, the paper's setting, where
        each update is one task. A size that grows keeps what there is.
    policy : str or callable
        Which rows stay.

        - ``"weighted"``: by weighted leverage, unbiased for everything seen.
        - ``"paper"``: the paper's Algorithm 1; old tasks fade.
        - ``"reservoir"``: a uniform sample of everything seen.
        - ``"balanced"``: the same number of rows for each task and class, in each those that
          look most like all of it; ``"balanced-leverage"`` and ``"balanced-random"`` choose
          inside by leverage and at random.
        - ``"recent"``: the last rows.
        - or your own; see `olss.policies`.
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
    >>> import numpy as np
    >>> from olss.sketch import Sketch
    >>> rng = np.random.default_rng(0)
    >>> sketch = Sketch(size=100, seed=0)
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
        self.size = _checked_size(size)
        self.policy = _checked_policy(policy)
        self.scores = _checked_scores(scores)
        self.features = features
        self.pad = pad if pad is None else tuple(pad)
        self.pad_y = pad_y if pad_y is None else tuple(pad_y)
        self._rng = np.random.default_rng(seed)
        self._rows = Rows()
        self._seen = 0
        self._task: int | str = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        tasks = len(np.unique(self.task)) if len(self) else 0
        return (
            f"Sketch(size={self.size!r}, policy={_policy_name(self.policy)!r}: {len(self):,} rows "
            f"of {self.seen:,} seen, {tasks} task{'' if tasks == 1 else 's'})"
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
            stream without tasks is one task.
        extra : mapping of str to array (n, ...), optional
            Columns that ride along with the rows: identifiers, times.

        Returns
        -------
        Sketch
            Itself.
        """
        new = incoming(X, y, extra, held=self._rows, pad=self.pad, pad_y=self.pad_y)
        n = len(new["X"])
        new["task"] = task_column(self._task if task is None else task, n, self._rows)
        new["weight"] = np.ones(n)
        new["index"] = np.arange(self._seen, self._seen + n)
        new["order"] = np.full(n, np.nan)
        self._absorb(new, n if self.size == "task" else int(self.size))
        self._seen += n
        self._task = new["task"][-1].item()
        return self

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
        return other

    def _column(self, name: str) -> Any:
        if name not in self._rows:
            raise InputError("the sketch is empty: give it rows with update(X, y) first.")
        return self._rows[name]

    def _absorb(self, new: dict[str, Array], size: int) -> None:
        """Let the policy choose among the rows held and `new`, then put the chosen into place."""
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
                choice = _checked_choice(self.policy(pool, self._rng), total, size)
            kept = choice.rows[choice.rows < len(self)]
            chosen = choice.rows[choice.rows >= len(self)] - len(self)
            reserve = min(size, 2 * total) if len(self) else 0
            slots = self._rows.replace(kept, new, chosen, reserve)
        except BaseException:
            self._rng.bit_generator.state = state
            raise
        if choice.weight is not None:
            self._rows["weight"][slots] = choice.weight
        if choice.order is not None:
            self._rows["order"][slots] = choice.order

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


def _checked_size(size: Any) -> int | Literal["task"]:
    if size == "task":
        return "task"
    if isinstance(size, bool | np.bool_) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size must be a positive whole number or 'task', found {size!r}.")
    return int(size)


def _checked_policy(policy: Any) -> Policy:
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if isinstance(policy, str) or not callable(policy):
        raise InputError(
            f"policy must be one of {', '.join(map(repr, POLICIES))} or a function of "
            f"(pool, rng), found {policy!r}."
        )
    return policy  # type: ignore[no-any-return]


def _checked_scores(scores: Any) -> str | float:
    if isinstance(scores, str) and scores in SCORES:
        return scores
    if isinstance(scores, int | float | np.number) and not isinstance(scores, bool):
        check_number("scores, as a ridge,", scores)
        return float(scores)
    raise InputError(
        f"scores must be one of {', '.join(map(repr, SCORES))} or a number, the ridge, "
        f"found {scores!r}."
    )


def _checked_choice(choice: Any, total: int, size: int) -> Choice:
    """Return what a policy answered, by ascending row; or say what is wrong with it."""
    if not isinstance(choice, Choice):
        raise InputError(f"the policy must return an olss.policies.Choice, found {choice!r}.")
    rows, first = np.unique(np.asarray(choice.rows, dtype=np.int64), return_index=True)
    if len(rows) != len(choice.rows) or len(rows) > size:
        raise InputError(
            f"the policy must choose at most {size} different rows, found {len(choice.rows)} "
            f"of which {len(rows)} differ."
        )
    if len(rows) and (rows[0] < 0 or rows[-1] >= total):
        raise InputError(f"the policy must choose rows from 0 to {total - 1}, found {rows}.")
    aligned: dict[str, NDArray[np.float64] | None] = {
        "weight": choice.weight,
        "order": choice.order,
    }
    for name, values in aligned.items():
        if values is None:
            continue
        if np.shape(values) != rows.shape or (name == "weight" and not np.isfinite(values).all()):
            raise InputError(f"the policy must give a finite {name} for each row it chooses.")
        aligned[name] = np.asarray(values, dtype=np.float64)[first]
    return Choice(rows, **aligned)


def _policy_name(policy: Policy) -> str:
    names = [name for name, known in POLICIES.items() if known == policy]
    return names[0] if names else getattr(policy, "__name__", type(policy).__name__)
