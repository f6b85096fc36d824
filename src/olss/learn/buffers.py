"""Buffers: the rows kept of past tasks, in a sketch, a ring per task, herded, or all of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

from olss.core.herding import greedy_herding
from olss.errors import InputError
from olss.learn.training import Examples, Seeds, as_tensor
from olss.util import checks

if TYPE_CHECKING:
    from olss.sketch import Sketch

__all__ = ["Buffer", "FullBuffer", "HerdingBuffer", "PolicyBuffer", "RingBuffer"]


Features = Callable[..., Tensor]
"""Returns the features of rows, (n, k), under the net as it is; see `Model.features`."""


class Buffer:
    """A buffer that keeps nothing: the base of those that do."""

    held: Examples | None = None  # the rows it holds
    size: int | Literal["task"] = "task"  # how many; "task": as many as the newest task has
    keeps_all = False  # whether no row is ever dropped

    def start(self, seeds: Seeds, device: torch.device) -> None:
        """Drop everything and begin a run."""
        self.seeds = seeds
        self.device = device
        self.held = None

    def check(self, classes: int) -> None:
        """Raise if the buffer is too small for that many classes."""

    def update(self, new: Examples, task: int, features: Features) -> None:
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
        self.held = Examples(**load_file(path, str(self.device))) if path.exists() else None


class FullBuffer(Buffer):
    """Every row: what joint training needs."""

    keeps_all = True

    def update(self, new: Examples, task: int, features: Features) -> None:
        """Keep all rows."""
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

    def update(self, new: Examples, task: int, features: Features) -> None:
        """Keep some rows of the task, shuffled since they may come sorted by class."""
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
        """Raise unless there is a row for each class."""
        if self.size < classes:
            raise InputError(
                f"size must be at least the number of classes, found {self.size} for {classes} "
                "classes: iCaRL keeps rows of each."
            )

    def update(self, new: Examples, task: int, features: Features) -> None:
        """Herd the classes of the task, and shorten the others."""
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
        Score rows by features of the net instead of the rows themselves: "penultimate" (the input
        of the last layer) or "gradient" (of the last layer).
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
            checks.choice("features", features, ("penultimate", "gradient"))
        self.size, self.policy, self.scores, self.features = size, policy, scores, features
        self._make_sketch(0)  # checks the other settings

    def _make_sketch(self, seed: int) -> Sketch:
        from olss.sketch import Sketch

        features = self._sketch_features if self.features else None
        return Sketch(self.size, self.policy, scores=self.scores, features=features, seed=seed)

    def _sketch_features(self, X: Any) -> NDArray[Any]:
        assert self.features is not None
        return np.asarray(self.net_features(X, self.features).cpu().numpy())

    def start(self, seeds: Seeds, device: torch.device) -> None:
        """Drop everything and begin a run."""
        super().start(seeds, device)
        self.sketch = self._make_sketch(seeds.number("memory") % 2**32)

    def update(self, new: Examples, task: int, features: Features) -> None:
        """Update the sketch with the task's rows."""
        self.net_features = features
        # Flushed, so that a row that is not held never comes back without its outputs.
        self.sketch.update(new.X.cpu().numpy(), new.y.cpu().numpy(), task=task).flush()
        outputs = None if self.held is None else self.held.outputs
        rows = self._rows()
        if self.held is not None and outputs is not None:
            outputs = _move_outputs(self.held.index, outputs, rows.index)
        self.held = dataclasses.replace(rows, outputs=outputs)

    def _rows(self) -> Examples:
        sketch = self.sketch
        return Examples(
            X=as_tensor(sketch.X, self.device),
            y=as_tensor(sketch.y, self.device),
            task=as_tensor(sketch.task, self.device),
            index=as_tensor(sketch.index, self.device),
            weight=as_tensor(np.asarray(sketch.weight, np.float32), self.device),
        )

    def snapshot(self) -> Any:
        """Return a copy of the sketch, and the rows held."""
        return copy.copy(self.sketch), self.held

    def restore(self, snapshot: Any) -> None:
        """Restore the state at the time of the snapshot."""
        self.sketch, self.held = snapshot

    def save(self, folder: Path) -> None:
        """Write the sketch and the stored outputs into a folder."""
        if self.held is None:
            return
        self.sketch.save(folder / "memory.parquet")
        if self.held.outputs is not None:
            save_file({"outputs": self.held.outputs.contiguous()}, folder / "outputs.safetensors")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
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
