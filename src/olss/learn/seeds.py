"""Randomness of a run: a generator for each purpose and task, all from one seed."""

from __future__ import annotations

import numpy as np

from olss.util.checks import whole

__all__ = ["Seeds"]

# The numbers are part of what a seed means: never change one, only add.
PURPOSES = {"init": 0, "order": 1, "memory": 2, "net": 3, "parts": 4, "features": 5, "augment": 6}


class Seeds:
    """Generators that depend on the run's seed, the purpose and the task, and on nothing else.

    No state is carried from task to task, so a run that goes on after an interruption draws
    what it would have drawn, and a change in one purpose does not move another.

    Examples
    --------
    >>> seeds = Seeds(0)
    >>> bool((seeds.rng("order", 3).permutation(5) == seeds.rng("order", 3).permutation(5)).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, least=0)

    def rng(self, purpose: str, task: int = 0) -> np.random.Generator:
        """Return the generator for a purpose in a task."""
        key = (PURPOSES[purpose], task)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def number(self, purpose: str, task: int = 0) -> int:
        """Return a seed for something that takes a number."""
        return int(self.rng(purpose, task).integers(2**63))
