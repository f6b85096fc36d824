"""Merge rows that point in nearly the same direction: the same text twice, by its embedding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import is_arrow, to_numpy
from olss.core.sampling import code_values
from olss.memory.config import Config
from olss.memory.encoder import Encoder
from olss.memory.rows import Array, Indices, RowStore
from olss.memory.state import State
from olss.memory.strata import keys_of
from olss.tables.class_labels import class_codes

COMPARISONS = 1 << 22  # cosines held in memory at a time


def find_leaders(
    vectors: NDArray[np.float32], threshold: float, group: Indices, held: int = 0
) -> Indices:
    """Return for each row the first leader it is near to: itself, if it is a leader.

    The first `held` rows are leaders. Each later one is a leader unless its cosine with an earlier
    leader of its group is at least the threshold.

    Parameters
    ----------
    vectors : (n, d) float32 array
    threshold : float
    group : (n,) int array
        Rows of different groups are never near to each other.
    held : int

    Returns
    -------
    (n,) int array

    Examples
    --------
    >>> vectors = np.array([[1, 0], [0, 1], [2, 0.1], [0, 1]], dtype=np.float32)
    >>> find_leaders(vectors, 0.95, np.array([0, 0, 0, 1]))
    array([0, 1, 0, 3])
    """
    n = len(vectors)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, 1)
    leader = np.arange(n)
    step = max(1, COMPARISONS // max(n, 1))
    for start in range(held, n, step):
        stop = min(start + step, n)
        near = unit[start:stop] @ unit[:stop].T >= threshold
        for row in start + np.flatnonzero(near.sum(axis=1) > 1):
            found = np.flatnonzero(near[row - start, :row])
            found = found[(leader[found] == found) & (group[found] == group[row])]
            if len(found):
                leader[row] = found[0]
    return leader


def merge_near_duplicates(
    config: Config, state: State, held: RowStore, new: RowStore
) -> tuple[RowStore, RowStore]:
    """Return held and new rows without those near to an earlier one, which gets their weight.

    Only rows of the same task, target and stratum are merged, so that counts and means of these
    stay what they were.
    """
    assert config.near_duplicates is not None
    parts = [part for part in (held, new) if len(part)]
    vectors = np.concatenate([_vectors(state.encoder, part["X"]) for part in parts])
    group = _groups(config, state, parts)
    leader = find_leaders(vectors, config.near_duplicates, group, len(held))
    stays = np.flatnonzero(leader == np.arange(len(leader)))
    sums = {
        name: np.bincount(leader, np.concatenate([part[name] for part in parts]))
        for name in ("weight", "initial_weight")
    }
    old, fresh = stays[: len(held)], stays[len(held) :]
    return (
        held.with_columns({name: column[old] for name, column in sums.items()})
        if len(held)
        else held,
        new.take(fresh - len(held)).with_columns({name: c[fresh] for name, c in sums.items()}),
    )


def _vectors(encoder: Encoder, X: Array) -> NDArray[np.float32]:
    """Return what is scored of rows, without the constant."""
    return np.concatenate([block.astype(np.float32) for _, block in encoder.columns(X)])


def _groups(config: Config, state: State, parts: list[RowStore]) -> Indices:
    """Return a number for each combination of task, target and stratum."""
    columns = [code_values(np.concatenate([part["task"] for part in parts]))]
    if "y" in parts[0]:
        columns.append(_code_targets([part["y"] for part in parts]))
    if config.strata is not None:
        columns.append(keys_of(config, state.strata, parts)[0])
    group = columns[0]
    for column in columns[1:]:
        group = code_values(group * (column.max() + 1) + column)
    return group


def _code_targets(targets: list[Array]) -> Indices:
    if is_arrow(targets[0]):
        return class_codes(targets)
    values = np.concatenate([to_numpy(y).reshape(len(y), -1) for y in targets])
    if values.shape[1] == 1:
        return code_values(values[:, 0])
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
