"""Replay strategies: which rows a task is trained on, given the buffer, and in which steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from olss.errors import InputError
from olss.learn.training import Examples, as_tensor
from olss.util import checks

__all__ = ["ReplayStrategy", "TrainingSet"]


@dataclass(frozen=True)
class TrainingSet:
    """What a task is trained on."""

    rows: Examples  # visited once an epoch
    batch: int  # how many of them a step has
    replay: Examples | None = None  # rows that every step samples from in addition
    replayed: int | None = None  # how many of those a step has; None: as many as of `rows`

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(batch_bounds(len(self.rows), self.batch))

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[tuple[Examples, int]]:
        """Yield the rows of each step and how many of them, the last ones, come from `replay`."""
        device = self.rows.y.device
        for _ in range(epochs):
            order = as_tensor(rng.permutation(len(self.rows)), device)
            for start, stop in batch_bounds(len(self.rows), self.batch):
                batch = self.rows.take(order[start:stop])
                if self.replay is None:
                    yield batch, 0
                    continue
                replayed = stop - start if self.replayed is None else self.replayed
                sampled = as_tensor(rng.integers(len(self.replay), size=replayed), device)
                yield batch.join(self.replay.take(sampled)), replayed

    def class_shares(
        self, classes: int, weighted: bool = False, beta: float | None = None
    ) -> Tensor:
        """Return the expected share of each class in the loss of a step, (classes,).

        `weighted` and `beta` are those of the loss: whether rows count by their weight, and what
        the replayed rows count together beside the others, which count 1.
        """

        def shares(rows: Examples) -> tuple[Tensor, float]:
            if not weighted or rows.weight is None:
                return torch.bincount(rows.y, minlength=classes) / len(rows), 1.0
            each = torch.bincount(rows.y, rows.weight, classes)
            return each / each.sum(), float(rows.weight.mean())

        new, row_weight = shares(self.rows)
        if self.replay is None:
            return new
        past, past_weight = shares(self.replay)
        batch = min(self.batch, len(self.rows))
        replayed = batch if self.replayed is None else self.replayed
        a, b = (batch * row_weight, replayed * past_weight) if beta is None else (1.0, beta)
        return (a * new + b * past) / (a + b)


class ReplayStrategy:
    """How a task's own rows and the rows of the buffer become a training set.

    Parameters
    ----------
    regime : str
        "sketch": the buffer alone, after the task was added to it (the paper). "mix": a constant
        number of rows, some from the task and some from the buffer of earlier tasks.
        "replay": the task's rows, and in every step rows of the buffer beside them. Also "task"
        (its own rows alone) and "union" (its own rows and the buffer's).
    share : float
        With "mix", the fraction that comes from the current task.
    replay_rows : int, optional
        With "replay", rows of the buffer in a step; by default as many as the step has of the task.
    take_in : {"before", "after"}, optional
        Whether the task is added to the buffer before or after it is trained on. With "replay",
        "before" samples the task's rows like the others, so that all classes are met alike. By
        default "before" with "sketch" and "after" otherwise.
    """

    def __init__(
        self,
        regime: str = "task",
        share: float = 0.5,
        replay_rows: int | None = None,
        take_in: str | None = None,
    ) -> None:
        self.regime = checks.choice("regime", regime, ("task", "sketch", "mix", "replay", "union"))
        self.share = checks.number("share", share, above=0, maximum=1)
        if replay_rows is not None:
            checks.integer("replay_rows", replay_rows)
            if regime != "replay":
                raise InputError(f"replay_rows requires regime='replay', found {regime!r}.")
        self.replay_rows = replay_rows
        default = "before" if regime == "sketch" else "after"
        when = default if take_in is None else take_in
        checks.choice("take_in", when, ("before", "after"))
        if when != default and regime != "replay":
            raise InputError(f"take_in={take_in!r} requires regime='replay', found {regime!r}.")
        self.updates_buffer_first = when == "before"

    def training_set(
        self,
        current: Examples,
        held: Examples | None,
        size: int | str,
        batch: int,
        rng: np.random.Generator,
    ) -> TrainingSet:
        """Return what to train on, given the task's rows and those of a buffer of `size`."""
        if self.regime == "mix":
            return TrainingSet(self._mix(current, held, size, rng), batch)
        if held is None or self.regime == "task":
            return TrainingSet(current, batch)
        if self.regime == "replay":
            return TrainingSet(current, batch, held, self.replay_rows)
        return TrainingSet(held if self.regime == "sketch" else current.join(held), batch)

    def _mix(
        self, current: Examples, held: Examples | None, size: int | str, rng: np.random.Generator
    ) -> Examples:
        rows = len(current) if size == "task" else int(size)
        past = 0 if held is None else len(held)
        own, replayed = mix_counts(rows, self.share, len(current), past)
        device = current.y.device
        mixed = current.take(as_tensor(rng.permutation(len(current))[:own], device))
        if held is None or replayed == 0:
            return mixed
        return mixed.join(held.take(as_tensor(rng.permutation(past)[:replayed], device)))


def mix_counts(size: int, share: float, current: int, past: int) -> tuple[int, int]:
    """Return how many rows of a mix come from the current task and how many from the buffer.

    They sum to `size` wherever there are that many rows: what one side lacks, the other gives.

    Examples
    --------
    >>> mix_counts(1000, 0.5, current=5000, past=1000)
    (500, 500)
    >>> mix_counts(1000, 0.5, current=200, past=1000)
    (200, 800)
    """
    replayed = min(size - min(round(share * size), current), past)
    return min(size - replayed, current), replayed


def batch_bounds(rows: int, size: int) -> list[tuple[int, int]]:
    """Cut rows into steps; a single row left over joins the step before it.

    Batch normalization cannot work on one row.

    Examples
    --------
    >>> batch_bounds(5, 2)
    [(0, 2), (2, 5)]
    """
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] == 1 and size > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True))
