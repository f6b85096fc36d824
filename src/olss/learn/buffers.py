"""What is remembered of past tasks: a sketch, a ring per task, herded exemplars, everything."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

from olss.errors import InputError
from olss.learn.components import imported
from olss.learn.training import Examples, Seeds, as_tensor
from olss.util import checks

__all__ = ["Buffer", "FullBuffer", "HerdingBuffer", "PolicyBuffer", "RingBuffer", "herd"]

Features = Callable[..., Tensor]
"""Returns the features (n, k) of rows, and of which kind, under the net as it is."""


class Buffer:
    """Remembers nothing: the base of what remembers something.

    Attributes
    ----------
    held : Examples or None
        The remembered rows.
    size : int or "task"
        How many there may be; "task": as many as the newest task has.
    keeps_all : bool
        Whether no row is ever dropped.
    """

    held: Examples | None = None
    size: Any = "task"
    keeps_all = False

    def check(self, classes: int) -> None:
        """Say so if the memory is too small for that many classes."""

    def start(self, seeds: Seeds, device: torch.device) -> None:
        """Forget everything and begin a run."""
        self.seeds = seeds
        self.device = device
        self.held = None

    def update(self, new: Examples, task: int, features: Features) -> None:
        """Remember what is worth it of a task's rows; stored outputs stay with their rows."""
        before = self.held
        if before is None or before.outputs is None:
            self.held = self._chosen(new, task, features)
            return
        now = self._chosen(new, task, features)
        if now is not None:
            outputs = _carried(before.index, before.outputs, now.index)
            self.held = dataclasses.replace(now, outputs=outputs)

    def _chosen(self, new: Examples, task: int, features: Features) -> Examples | None:
        """Return what is held after a task's rows came."""
        return None

    def snapshot(self) -> Any:
        """Return what `restore` takes to undo the next `take_in`."""
        return self.held

    def restore(self, snapshot: Any) -> None:
        """Be as at the time of the snapshot."""
        self.held = snapshot

    def store_outputs(self, answer: Callable[[Tensor], Tensor]) -> None:
        """Store what the net answers to the rows that have no stored outputs yet."""
        if self.held is None:
            return
        if self.held.outputs is None:
            outputs = answer(self.held.X)
        else:
            outputs = self.held.outputs
            missing = outputs.isnan().all(1)
            outputs[missing] = answer(self.held.X[missing])
        self.held = dataclasses.replace(self.held, outputs=outputs)

    def counts(self, tasks: int) -> list[int]:
        """Count the remembered rows of each task."""
        if self.held is None:
            return [0] * tasks
        return [int(n) for n in torch.bincount(self.held.task, minlength=tasks)]

    def save(self, folder: Path) -> None:
        """Write what is remembered into a folder."""
        if self.held is not None:
            columns = dataclasses.asdict(self.held)
            kept = {
                name: value.contiguous() for name, value in columns.items() if value is not None
            }
            save_file(kept, folder / "memory.safetensors")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        path = folder / "memory.safetensors"
        self.held = Examples(**load_file(path, str(self.device))) if path.exists() else None


class FullBuffer(Buffer):
    """Remembers every row: what joint training needs."""

    keeps_all = True

    def _chosen(self, new: Examples, task: int, features: Features) -> Examples:
        return new if self.held is None else self.held.join(new)


class RingBuffer(Buffer):
    """The last rows of each task, in a shuffled order: GEM's memory (Lopez-Paz & Ranzato 2017).

    Parameters
    ----------
    gem_rows : int
        Rows kept of each task, so the memory grows with the number of tasks.
    """

    def __init__(self, gem_rows: int = 256) -> None:
        self.gem_rows = checks.integer("gem_rows", gem_rows)

    def _chosen(self, new: Examples, task: int, features: Features) -> Examples:
        # Shuffled, since a task's rows may come sorted by class.
        order = self.seeds.rng("memory", task).permutation(len(new))[-self.gem_rows :]
        last = new.take(as_tensor(order, self.device))
        return last if self.held is None else self.held.join(last)


class HerdingBuffer(Buffer):
    """Herded rows of each class within one budget: iCaRL's memory (Rebuffi et al. 2017).

    Parameters
    ----------
    size : int
        Rows in all; each class seen so far has an equal share of them. Rows of a class are in
        herding order, so a smaller share is a prefix.
    """

    def __init__(self, size: int = 1280) -> None:
        self.size: int = checks.integer("size", size)

    def check(self, classes: int) -> None:
        """Say so if there is not a row for each class."""
        if self.size < classes:
            raise InputError(
                f"size must be at least the number of classes, found {self.size} for {classes} "
                "classes: iCaRL keeps rows of each."
            )

    def _chosen(self, new: Examples, task: int, features: Features) -> Examples:
        pool = new if self.held is None else self.held.join(new)
        fresh = set(torch.unique(new.y).tolist())
        classes = torch.unique(pool.y).tolist()
        quota = self.size // len(classes)
        keep = []
        for label in classes:
            rows = (pool.y == label).nonzero().flatten()
            if label in fresh:
                rows = rows[herd(features(pool.X[rows]), quota)]
            keep.append(rows[:quota])
        return pool.take(torch.cat(keep))


class PolicyBuffer(Buffer):
    """An `olss.Sketch` as the memory of a learner.

    Parameters
    ----------
    size : int or "task"
        Rows kept in all; "task" is as many as the newest task has, as in the paper.
    policy : str or callable
        What stays in a full sketch: see `olss.Sketch`; one's own also as "module:Name".
    scores : str or float
        How leverage is computed: see `olss.Sketch`.
    features : str, optional
        Leverage of the rows as the net sees them instead of the rows themselves:
        "penultimate" (what goes into the last layer) or "gradient" (of the last layer).
    """

    def __init__(
        self,
        size: int | str = "task",
        policy: Any = "paper",
        scores: str | float = "auto",
        features: str | None = None,
    ) -> None:
        if size != "task":
            checks.integer("size", size, alternative=" or 'task'")
        if features not in (None, "penultimate", "gradient"):
            raise InputError(
                f"features must be None, 'penultimate' or 'gradient', found {features!r}."
            )
        if isinstance(policy, str) and ":" in policy:
            policy = imported("policy", policy)
        self.size, self.policy, self.scores = size, policy, scores
        self.features = features
        self._sketch(0)  # says at once what is wrong with the other settings

    def _sketch(self, seed: int) -> Any:
        from olss.memory.sketch import Sketch

        features = self._features if self.features else None
        return Sketch(self.size, self.policy, scores=self.scores, features=features, seed=seed)

    def _features(self, X: Any) -> Any:
        return self.net_features(X, self.features).cpu().numpy()

    def start(self, seeds: Seeds, device: torch.device) -> None:
        """Forget everything and begin a run."""
        super().start(seeds, device)
        self.sketch = self._sketch(seeds.number("memory") % 2**32)

    def snapshot(self) -> Any:
        """Return a sketch of the rows held now, and the stored outputs."""
        outputs = None if self.held is None else self.held.outputs
        return copy.copy(self.sketch), outputs

    def restore(self, snapshot: Any) -> None:
        """Be as at the time of the snapshot."""
        self.sketch, outputs = snapshot
        self.held = (
            dataclasses.replace(self._examples(), outputs=outputs) if len(self.sketch) else None
        )

    def _chosen(self, new: Examples, task: int, features: Features) -> Examples:
        self.net_features = features
        self.sketch.update(new.X.cpu().numpy(), new.y.cpu().numpy(), task=task)
        return self._examples()

    def _examples(self) -> Examples:
        sketch = self.sketch
        return Examples(
            X=as_tensor(sketch.X, self.device),
            y=as_tensor(sketch.y, self.device),
            task=as_tensor(sketch.task, self.device),
            index=as_tensor(sketch.index, self.device),
            weight=as_tensor(np.asarray(sketch.weight, np.float32), self.device),
        )

    def save(self, folder: Path) -> None:
        """Write the sketch and the stored outputs into a folder."""
        if self.held is None:
            return
        self.sketch.save(folder / "memory.parquet")
        if self.held.outputs is not None:
            save_file({"outputs": self.held.outputs.contiguous()}, folder / "outputs.safetensors")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        from olss.memory.sketch import Sketch

        self.held = None
        if not (folder / "memory.parquet").exists():
            return
        self.sketch = Sketch.load(folder / "memory.parquet", policy=self.policy)
        if self.features:
            self.sketch.features = self._features
        path = folder / "outputs.safetensors"
        outputs = load_file(path, str(self.device))["outputs"] if path.exists() else None
        self.held = dataclasses.replace(self._examples(), outputs=outputs)


def herd(features: Tensor, size: int) -> Tensor:
    """Order rows so that the mean of each prefix is near the mean of all (Welling 2009).

    Greedy: the k-th row minimises ``|mu - (phi(x) + sum of the chosen) / k|``, which for
    features of length one is the largest ``phi(x)' (k mu - sum)``.

    Returns
    -------
    (min(size, n),) indices in order
    """
    phi = normalize(features.double())
    total = phi.mean(0)
    score = phi @ total
    gap = score.clone()  # phi' (k mu - sum of the chosen), kept up to date
    chosen = []
    for _ in range(min(size, len(phi))):
        best = int(gap.argmax())
        chosen.append(best)
        gap += score - phi @ phi[best]
        gap[chosen] = -torch.inf
    return torch.tensor(chosen, device=features.device)


def _carried(before: Tensor, outputs: Tensor, now: Tensor) -> Tensor:
    """Move stored outputs to where their rows are now; NaN for rows that are new."""
    order = before.argsort()
    place = torch.searchsorted(before[order], now).clamp(max=len(before) - 1)
    old = order[place]
    found = before[old] == now
    return outputs[old].masked_fill(~found[:, None], torch.nan)
