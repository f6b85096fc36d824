"""Random choices of a stream: one generator for each purpose and task, and draws of rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw", "stratified", "task_generator"]

# The numbers are part of what a seed means: never change one, only add.
PURPOSES: Final = {
    "angle": 0,
    "permutation": 1,
    "train rows": 2,
    "test rows": 3,
    "class order": 4,
    "split": 5,
    "label noise": 6,
    "outliers": 7,
    "imbalance": 8,
    "sizes": 9,
    "interleaving": 10,
    "validation": 11,
}


def task_generator(seed: int, purpose: str, task: int = 0) -> np.random.Generator:
    """Return the generator for one purpose and task.

    Each has its own stream of numbers, so that asking for more rows does not change the
    permutations, and task 7 is the same whether or not tasks 1 to 6 were made before.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES[purpose], task)))


def draw(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `size` of the rows, drawn without replacement, in random order."""
    return rng.permutation(rows)[:size]


def stratified(
    y: NDArray[Any] | None, rows: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return `size` of the rows, drawn so that each class has its share, up to one row.

    Rows are laid out class by class, shuffled inside a class, and taken at equal distances
    from a random start (systematic sampling): every row has the same chance of size / n.

    Parameters
    ----------
    y : array or None
        Labels, one for each entry of `rows`; None draws without strata.
    rows : array of int
        What to draw from.
    size : int
        How many.
    rng : numpy.random.Generator
        Source of the draw.

    Returns
    -------
    array of int, sorted
    """
    order = rng.permutation(len(rows))
    if y is not None:
        order = order[np.argsort(y[order], kind="stable")]
    start = int(rng.integers(len(rows)))
    picked = (np.arange(size) * len(rows) + start) // max(1, size)
    return np.sort(rows[order[picked]])
