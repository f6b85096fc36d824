"""Everything an update changes, as one immutable value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from olss.memory.encoder import Encoder
from olss.memory.intake import TableKind
from olss.memory.moments import SeenMoments
from olss.memory.rows import RowStore
from olss.util import checks

__all__ = ["State", "create_generator", "restore_generator"]


@dataclass(frozen=True)
class State:
    """What a sketch holds and knows at one moment.

    Attributes
    ----------
    generator : dict
        State of the random number generator.
    rows : RowStore
        The rows kept: X, y, task, weight, initial_weight, index, priority and extra columns.
    seen : int
        Rows seen so far.
    task : int or str
        Task of the last row seen.
    now : float
        The current time, by which old rows decay: rows seen, or the latest time seen.
    has_classes : bool or None
        Whether the target is a class; None before the first one.
    encoder : Encoder
        How rows are encoded to be scored.
    moments : SeenMoments or None
        The Gram matrix of everything seen; None if it is not kept or not known.
    table : TableKind or None
        What kind of tables come in, if rows are tables.
    files : tuple of dict
        One entry for each file ingested by `olss.compress`.
    runs : int
        How many times files were ingested.
    removed : int
        How many held rows were removed.
    pending : tuple of RowStore
        Rows, checked and counted, that wait for more before the policy is asked.
    """

    generator: dict[str, Any]
    rows: RowStore = field(default_factory=RowStore)
    seen: int = 0
    task: int | str = 0
    now: float = 0.0
    has_classes: bool | None = None
    encoder: Encoder = field(default_factory=Encoder)
    moments: SeenMoments | None = None
    table: TableKind | None = None
    files: tuple[dict[str, Any], ...] = ()
    runs: int = 0
    removed: int = 0
    pending: tuple[RowStore, ...] = ()

    @property
    def pending_rows(self) -> int:
        """How many rows are pending."""
        return sum(map(len, self.pending))

    @property
    def template_rows(self) -> RowStore:
        """Rows of the kinds that have come so far."""
        return self.pending[0] if self.pending and "X" not in self.rows else self.rows

    def replace(self, **changes: Any) -> State:
        """Return the state with some fields changed."""
        return replace(self, **changes)


def create_generator(seed: int | np.random.Generator | None) -> dict[str, Any]:
    """Return the state of a PCG64 generator made from a seed, or drawn from a generator."""
    rng = checks.generator(seed)
    if rng is seed:
        rng = np.random.default_rng(rng.integers(0, 2**63, size=4))
    return dict(rng.bit_generator.state)


def restore_generator(state: dict[str, Any]) -> np.random.Generator:
    """Return a new generator in this state."""
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]  # a plain dictionary of its keys
    return np.random.Generator(bits)
