"""Any policy of olss as the memory of Avalanche's replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from olss.errors import MissingExtraError
from olss.memory.policies import Policy
from olss.memory.rows import Array, Indices
from olss.sketch import Sketch
from olss.util import checks

try:
    import torch
    from avalanche.training.storage_policy import ExemplarsBuffer
    from torch.utils.data import DataLoader
except ModuleNotFoundError as error:
    raise MissingExtraError("avalanche-lib", "avalanche", "olss.adapters.avalanche") from error

__all__ = ["SketchBuffer"]

BATCH = 512  # rows read at a time


class SketchBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """A buffer of exemplars chosen by a policy of olss.

    Give it to Avalanche's replay, or to any strategy that takes a storage policy::

        buffer = SketchBuffer(max_size=500, policy="balanced", seed=0)
        replay = ReplayPlugin(mem_size=500, storage_policy=buffer)

    Rows are scored as their evaluation transforms give them. What is replayed comes from the data
    set itself, so the training transforms apply. An experience counts as a task.

    Parameters
    ----------
    max_size : int
        Rows to keep.
    policy : str or callable
        Which rows stay: "balanced", "weighted", "reservoir", "paper", "recent" or a custom one.
    scores : str or float
        The leverage scores, as for `Sketch`.
    features : callable, optional
        Feature map that is scored instead of the rows, as for `Sketch`.
    seed : int or numpy.random.Generator, optional
        Source of randomness; that of Avalanche is not changed.

    Attributes
    ----------
    sketch : Sketch
        The rows kept, in the order of `buffer`.
    """

    def __init__(
        self,
        max_size: int,
        policy: str | Policy = "balanced",
        *,
        scores: str | float = "auto",
        features: Callable[[Array], Array] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(max_size)
        self._rng = checks.generator(seed)
        self.sketch = Sketch(max_size, policy, scores=scores, features=features, seed=self._rng)

    def post_adapt(self, agent_state: Any, exp: Any) -> None:
        """Update the sketch with the rows of an experience that was learned."""
        self.update_from_dataset(exp.dataset, task=exp.current_experience)

    def update_from_dataset(self, new_data: Any, task: int | str | None = None) -> None:
        """Update the sketch with the rows of a data set."""
        before, seen = self._held_index(), self.sketch.seen
        self.sketch.update(*_read_rows(new_data), task=task).flush()  # a row not held is gone
        new = np.arange(seen, self.sketch.seen)
        self._set_buffer(new_data.concat(self.buffer), np.concatenate([new, before]))

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of rows to keep; of too many, the policy keeps some."""
        before = self._held_index()
        self.max_size = self.sketch.size = new_size
        self._set_buffer(self.buffer, before)

    def _held_index(self) -> Indices:
        return self.sketch.index.copy() if len(self.sketch) else np.arange(0)

    def _set_buffer(self, data: Any, index: Indices) -> None:
        """Make the buffer the rows of `data` the sketch holds, given their places in the stream."""
        order = np.argsort(index)
        places = order[np.searchsorted(index, self.sketch.index, sorter=order)]
        self.buffer = data.subset(places.tolist())


def _read_rows(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Read inputs and labels as the evaluation transforms give them."""
    loader = DataLoader(data.eval(), batch_size=BATCH, collate_fn=getattr(data, "collate_fn", None))
    inputs, labels = zip(*((batch[0], batch[1]) for batch in loader), strict=True)
    return torch.cat(inputs), torch.cat(labels)
