"""Buffers and replay: the rows kept of past tasks, and the rows that a task trains on.

A buffer keeps rows in a sketch, in a ring per task, by herding, or all of them. The replay strategy
chooses which of them a task trains on, and how often.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

from olss.core.kernels import greedy_herding
from olss.errors import InputError
from olss.learn.training import Batch, Seeds, as_tensor
from olss.util import checks

if TYPE_CHECKING:
    from olss.sketch import Sketch

__all__ = [
    "Buffer",
    "FullBuffer",
    "HerdingBuffer",
    "PolicyBuffer",
    "ReplayStrategy",
    "RingBuffer",
    "TrainingSet",
]

Features = Callable[[Any], Tensor]
"""Returns the features of rows, (n, k), under the net as it is; see `Model.features`."""


class Buffer:
    """A buffer that keeps no rows: the base of all buffers."""

    held: Batch | None = None  # the rows it holds
    size: int | Literal["task"] = "task"  # how many; "task": as many as the newest task has
    keeps_all = False  # whether no row is ever dropped

    def start(self, seeds: Seeds, device: torch.device) -> None:
        """Drop everything and begin a run."""
        self.seeds = seeds
        self.device = device
        self.held = None

    def check(self, classes: int) -> None:
        """Raise if the buffer is too small for that many classes."""

    def update(self, new: Batch, task: int, features: Features) -> None:
        """Keep rows of a task, and the stored outputs of rows that stay."""

    def snapshot(self) -> Any:
        """Return what `restore` takes to undo the next `update`."""
        return self.held

    def restore(self, snapshot: Any) -> None:
        """Restore the state at the time of the snapshot."""
        self.held = snapshot

    def store_outputs(self, outputs_of: Callable[[Tensor], Tensor]) -> None:
        """Store the net's outputs for the rows that have none stored yet."""
        if self.held is None:
            return
        if self.held.outputs is None:
            outputs = outputs_of(self.held.X)
        else:
            outputs = self.held.outputs
            missing = outputs.isnan().all(1)
            outputs[missing] = outputs_of(self.held.X[missing])
        self.held = dataclasses.replace(self.held, outputs=outputs)

    def count_by_task(self, tasks: int) -> list[int]:
        """Count the rows held of each task."""
        if self.held is None:
            return [0] * tasks
        return [int(n) for n in torch.bincount(self.held.task, minlength=tasks)]

    def save(self, folder: Path) -> None:
        """Write the rows into a folder."""
        if self.held is not None:
            columns = {name: value.contiguous() for name, value in self.held.columns().items()}
            save_file(columns, folder / "memory.safetensors")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        path = folder / "memory.safetensors"
        self.held = Batch(**load_file(path, str(self.device))) if path.exists() else None


class FullBuffer(Buffer):
    """Every row: what joint training needs."""

    keeps_all = True

    def update(self, new: Batch, task: int, features: Features) -> None:
        self.held = new if self.held is None else self.held.join(new)


class RingBuffer(Buffer):
    """The last rows of each task, in a shuffled order: GEM's buffer (Lopez-Paz & Ranzato 2017).

    Parameters
    ----------
    gem_rows : int
        Rows kept of each task, so the buffer grows with the number of tasks.
    """

    def __init__(self, gem_rows: int = 256) -> None:
        self.gem_rows = checks.integer("gem_rows", gem_rows)

    def update(self, new: Batch, task: int, features: Features) -> None:
        order = self.seeds.rng("memory", task).permutation(len(new))[-self.gem_rows :]
        last = new.take(as_tensor(order, self.device))
        self.held = last if self.held is None else self.held.join(last)


class HerdingBuffer(Buffer):
    """Herded rows of each class within one budget: iCaRL's exemplars (Rebuffi et al. 2017).

    Parameters
    ----------
    size : int
        Rows in total; each class seen so far has an equal share of them. Rows of a class are in
        herding order, so a smaller share is a prefix.
    """

    def __init__(self, size: int = 1280) -> None:
        self.size: int = checks.integer("size", size)

    def check(self, classes: int) -> None:
        if self.size < classes:
            raise InputError(
                f"size must be at least the number of classes, found {self.size} for {classes} "
                "classes: iCaRL keeps rows of each."
            )

    def update(self, new: Batch, task: int, features: Features) -> None:
        pool = new if self.held is None else self.held.join(new)
        arrived = set(torch.unique(new.y).tolist())
        classes = torch.unique(pool.y).tolist()
        quota = self.size // len(classes)
        keep = []
        for label in classes:
            rows = (pool.y == label).nonzero().flatten()
            if label in arrived:
                order = herd(features(pool.X[rows]), quota)
                rows = rows[as_tensor(order, self.device)]
            keep.append(rows[:quota])
        self.held = pool.take(torch.cat(keep))


class PolicyBuffer(Buffer):
    """An `olss.Sketch` as the buffer of a learner.

    Parameters
    ----------
    size : int or "task"
        Rows kept in total; "task" is as many as the newest task has, as in the paper.
    policy : str or callable
        Which rows stay in a full sketch: see `olss.Sketch`.
    scores : str or float
        How leverage is computed: see `olss.Sketch`.
    features : str, optional
        "penultimate": score rows by the input of the net's last layer instead of the rows.
    """

    sketch: Sketch
    net_features: Features

    def __init__(
        self,
        size: int | Literal["task"] = "task",
        policy: Any = "paper",
        scores: str | float = "auto",
        features: str | None = None,
    ) -> None:
        if size != "task":
            checks.integer("size", size, alternative=" or 'task'")
        if features is not None:
            checks.choice("features", features, ["penultimate"])
        self.size, self.policy, self.scores, self.features = size, policy, scores, features
        self._make_sketch(0)  # checks the other settings

    def _make_sketch(self, seed: int) -> Sketch:
        from olss.sketch import Sketch

        features = self._sketch_features if self.features else None
        return Sketch(self.size, self.policy, scores=self.scores, features=features, seed=seed)

    def _sketch_features(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.net_features(X).cpu().numpy())

    def start(self, seeds: Seeds, device: torch.device) -> None:
        super().start(seeds, device)
        self.sketch = self._make_sketch(seeds.number("memory") % 2**32)

    def update(self, new: Batch, task: int, features: Features) -> None:
        self.net_features = features
        # Flushed: a row that was dropped must not return later without its outputs.
        self.sketch.update(new.X.cpu().numpy(), new.y.cpu().numpy(), task=task).flush()
        outputs = None if self.held is None else self.held.outputs
        rows = self._rows()
        if self.held is not None and outputs is not None:
            outputs = _move_outputs(self.held.index, outputs, rows.index)
        self.held = dataclasses.replace(rows, outputs=outputs)

    def _rows(self) -> Batch:
        sketch = self.sketch
        return Batch(
            X=as_tensor(sketch.X, self.device),
            y=as_tensor(sketch.y, self.device),
            task=as_tensor(sketch.task, self.device),
            index=as_tensor(sketch.index, self.device),
            weight=as_tensor(np.asarray(sketch.weight, np.float32), self.device),
        )

    def snapshot(self) -> Any:
        return copy.copy(self.sketch), self.held

    def restore(self, snapshot: Any) -> None:
        self.sketch, self.held = snapshot

    def save(self, folder: Path) -> None:
        if self.held is None:
            return
        self.sketch.save(folder / "memory.parquet")
        if self.held.outputs is not None:
            save_file({"outputs": self.held.outputs.contiguous()}, folder / "outputs.safetensors")

    def load(self, folder: Path) -> None:
        from olss.sketch import Sketch

        self.held = None
        if not (folder / "memory.parquet").exists():
            return
        self.sketch = Sketch.load(folder / "memory.parquet", policy=self.policy)
        if self.features:
            self.sketch.features = self._sketch_features
        path = folder / "outputs.safetensors"
        outputs = load_file(path, str(self.device))["outputs"] if path.exists() else None
        self.held = dataclasses.replace(self._rows(), outputs=outputs)


def herd(features: Tensor, count: int) -> NDArray[np.int64]:
    """Order rows so that the mean of each prefix is near the mean of all (Welling 2009).

    Features are scaled to length one, and the kernel is their inner product.
    """
    unit = np.asarray(normalize(features.double()).cpu().numpy())
    return greedy_herding(unit @ unit.mean(0), lambda row: unit @ unit[row], count)


def _move_outputs(before: Tensor, outputs: Tensor, now: Tensor) -> Tensor:
    """Move stored outputs to where their rows are now; NaN for rows that are new."""
    order = before.argsort()
    place = torch.searchsorted(before[order], now).clamp(max=len(before) - 1)
    old = order[place]
    found = before[old] == now
    return outputs[old].masked_fill(~found[:, None], torch.nan)


@dataclass(frozen=True)
class TrainingSet:
    """What a task is trained on."""

    rows: Batch  # visited once an epoch
    batch: int  # how many of them a step has
    replay: Batch | None = None  # rows that every step samples from in addition
    replayed: int | None = None  # how many of those a step has; None: as many as of `rows`

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(batch_bounds(len(self.rows), self.batch))

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[tuple[Batch, int]]:
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

        def shares(rows: Batch) -> tuple[Tensor, float]:
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
        current: Batch,
        held: Batch | None,
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
        self, current: Batch, held: Batch | None, size: int | str, rng: np.random.Generator
    ) -> Batch:
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
