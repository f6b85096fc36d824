"""Which rows a task is trained on, given what is remembered, and in which steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from olss.errors import InputError
from olss.learn.training import Examples, as_tensor
from olss.util import checks

__all__ = ["REGIMES", "ReplayStrategy", "TrainingSet", "batches", "mix_counts"]

REGIMES = ("task", "sketch", "mix", "replay", "union")
TAKE_IN = ("before", "after")


@dataclass(frozen=True)
class TrainingSet:
    """What a task is trained on.

    Attributes
    ----------
    rows : Examples
        Each is met once an epoch.
    batch : int
        How many of them a step has.
    replay : Examples, optional
        Rows that are drawn from at every step beside them.
    replayed : int, optional
        How many of those a step has; None: as many as it has of the others.
    """

    rows: Examples
    batch: int
    replay: Examples | None = None
    replayed: int | None = None

    @property
    def count(self) -> int:
        """Steps of an epoch."""
        return len(batches(len(self.rows), self.batch))

    def steps(self, epochs: int, rng: np.random.Generator) -> Iterator[tuple[Examples, int]]:
        """Yield the rows of each step, and how many of them, the last, come from `replay`."""
        device = self.rows.y.device
        for _ in range(epochs):
            order = as_tensor(rng.permutation(len(self.rows)), device)
            for start, stop in batches(len(self.rows), self.batch):
                batch = self.rows.take(order[start:stop])
                if self.replay is None:
                    yield batch, 0
                    continue
                replayed = stop - start if self.replayed is None else self.replayed
                drawn = as_tensor(rng.integers(len(self.replay), size=replayed), device)
                yield batch.join(self.replay.take(drawn)), replayed

    def class_shares(
        self, classes: int, weighted: bool = False, beta: float | None = None
    ) -> Tensor:
        """Return what each class is expected to count in the loss of a step, (classes,), in all 1.

        `weighted` and `beta` are those of the loss: whether rows count by their weight, and what
        the replayed ones count together beside the others, which count 1.
        """

        def shares(rows: Examples) -> tuple[Tensor, float]:
            if not weighted or rows.weight is None:
                return torch.bincount(rows.y, minlength=classes) / len(rows), 1.0
            each = torch.bincount(rows.y, rows.weight, classes)
            return each / each.sum(), float(rows.weight.mean())

        own, of_row = shares(self.rows)
        if self.replay is None:
            return own
        past, of_past = shares(self.replay)
        batch = min(self.batch, len(self.rows))
        replayed = batch if self.replayed is None else self.replayed
        a, b = (batch * of_row, replayed * of_past) if beta is None else (1.0, beta)
        return (a * own + b * past) / (a + b)


class ReplayStrategy:
    """How a task's own rows and the remembered rows become a training set.

    Parameters
    ----------
    regime : str
        "sketch": the memory alone, after it took the task in (the paper). "mix": a constant
        number of rows, part from the task and part from the memory of earlier tasks.
        "replay": the task's rows, and at every step remembered rows beside them. Also "task"
        (its own rows alone) and "union" (its own and the remembered rows).
    share : float
        With "mix", the part that comes from the current task.
    replay_rows : int, optional
        With "replay", remembered rows of a step; by default as many as the step has of the task.
    take_in : {"before", "after"}, optional
        When the memory takes a task in: before or after it is trained on. "before" under replay
        makes the task's rows be drawn like the others, and all classes be met alike. By default
        "before" with "sketch" and "after" otherwise.
    """

    def __init__(
        self,
        regime: str = "task",
        share: float = 0.5,
        replay_rows: int | None = None,
        take_in: str | None = None,
    ) -> None:
        self.regime = checks.choice("regime", regime, REGIMES)
        self.share = checks.number("share", share, above=0, maximum=1)
        self.replay_rows = (
            None if replay_rows is None else checks.integer("replay_rows", replay_rows)
        )
        if replay_rows is not None and regime != "replay":
            raise InputError(f"replay_rows is for regime='replay', found {regime!r}.")
        own = "before" if regime == "sketch" else "after"
        self.take_in = own if take_in is None else checks.choice("take_in", take_in, TAKE_IN)
        if self.take_in != own and regime != "replay":
            raise InputError(f"take_in={take_in!r} is for regime='replay', found {regime!r}.")

    @property
    def updates_buffer_first(self) -> bool:
        """Whether the memory takes a task in before it is trained on."""
        return self.take_in == "before"

    def training_set(
        self,
        current: Examples,
        held: Examples | None,
        size: int | str,
        batch: int,
        rng: np.random.Generator,
    ) -> TrainingSet:
        """Return what to train on; `size` is that of the memory."""
        if held is None or self.regime == "task":
            return TrainingSet(self._at_most(current, size, rng), batch)
        if self.regime == "sketch":
            return TrainingSet(held, batch)
        if self.regime == "replay":
            return TrainingSet(current, batch, held, self.replay_rows)
        if self.regime == "union":
            return TrainingSet(current.join(held), batch)
        return TrainingSet(self._mixed(current, held, size, rng), batch)

    def _at_most(self, current: Examples, size: int | str, rng: np.random.Generator) -> Examples:
        return current if self.regime != "mix" else self._mixed(current, None, size, rng)

    def _mixed(
        self, current: Examples, held: Examples | None, size: int | str, rng: np.random.Generator
    ) -> Examples:
        rows = len(current) if size == "task" else int(size)
        past = 0 if held is None else len(held)
        own, remembered = mix_counts(rows, self.share, len(current), past)
        mixed = current.take(as_tensor(_draw(len(current), own, rng), current.y.device))
        if held is None or remembered == 0:
            return mixed
        return mixed.join(held.take(as_tensor(_draw(past, remembered, rng), current.y.device)))


def mix_counts(size: int, share: float, current: int, past: int) -> tuple[int, int]:
    """Return how many rows of a mix come from the current task and how many from the memory.

    Their sum is `size` wherever there are that many rows: what one side cannot give, the
    other does.

    Examples
    --------
    >>> mix_counts(1000, 0.5, current=5000, past=1000)
    (500, 500)
    >>> mix_counts(1000, 0.5, current=200, past=1000)
    (200, 800)
    >>> mix_counts(1000, 0.5, current=5000, past=0)
    (1000, 0)
    """
    remembered = min(size - min(round(share * size), current), past)
    return min(size - remembered, current), remembered


def batches(rows: int, size: int) -> list[tuple[int, int]]:
    """Cut rows into steps; a single row left over joins the step before it.

    Batch normalisation cannot work on one row.

    Examples
    --------
    >>> batches(5, 2)
    [(0, 2), (2, 5)]
    """
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] == 1 and size > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True))


def _draw(
    rows: int, size: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rng.permutation(rows)[:size]
