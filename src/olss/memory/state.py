"""Everything an update changes, as one value that is replaced whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from olss.memory.numbers import Numbers
from olss.memory.pool import Policy
from olss.memory.spectrum import Spectrum
from olss.memory.store import Array, RowStore
from olss.memory.table_intake import TableKind
from olss.util import checks

__all__ = ["BLURRED", "Settings", "State", "generator", "new_generator"]

BLURRED = (
    "This sketch was merged with one that began with other rows, and did not tell apart all values "
    "or mark all gaps that this one does; so what all rows seen sum to is known nearly, and not "
    "exactly. Begin all sketches that are to be merged with some of the same rows, or leave such "
    "columns out of the scores with exclude."
)


@dataclass(frozen=True)
class Settings:
    """What a sketch was made with; see `olss.Sketch`."""

    size: int | Literal["task"]
    policy: Policy
    scores: str | float = "auto"
    features: Callable[[Array], Array] | None = None
    pad: tuple[int, ...] | None = None
    pad_y: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    intercept: bool = False
    new_columns: bool = False
    keep_index: bool = False
    half_life: float | None = None
    time: str | None = None
    by_dates: bool = False  # half_life or last was given as a length of time
    last: float | None = None
    spectrum: bool | None = None

    @property
    def knows_target(self) -> bool:
        """Whether rows are drawn by what is to be predicted, too."""
        return self.scores in ("target", "target-number")

    @property
    def leverage(self) -> str | float:
        """How leverage is scored."""
        return "auto" if self.knows_target else self.scores


@dataclass(frozen=True)
class State:
    """What a sketch holds and knows at one moment.

    Attributes
    ----------
    generator : dict
        State of the random bits.
    rows : RowStore
        The rows kept: X, y, task, weight, index, order, base, and what rides along.
    seen : int
        Rows seen so far.
    task : int or str
        That of the last row seen.
    now : float
        What time it is, by which old rows count less: rows seen, or the latest time seen.
    classes : bool or None
        Whether targets say a class; None before the first.
    numbers : Numbers
        What is scored of rows.
    spectrum : Spectrum or None
        What is known of everything seen; see `olss.memory.absorbing.keeps_spectrum`.
    blurred : bool
        Whether a sketch merged into this one did not tell apart what this one does, so that the
        spectrum is not that of everything seen to the digit.
    table : TableKind or None
        What tables are given, if rows are tables.
    files : tuple of dict
        A line a file taken in, by `olss.files.compress`.
    runs : int
        How many times files were taken in.
    removed : int
        How many rows held were removed.
    waiting : tuple of RowStore
        Rows that wait for others before they are drawn from; all have been checked and counted.
    waiting_rows : int
        How many these are.
    """

    generator: dict[str, Any]
    rows: RowStore = field(default_factory=RowStore)
    seen: int = 0
    task: int | str = 0
    now: float = 0.0
    classes: bool | None = None
    numbers: Numbers = field(default_factory=Numbers)
    spectrum: Spectrum | None = None
    blurred: bool = False
    table: TableKind | None = None
    files: tuple[dict[str, Any], ...] = ()
    runs: int = 0
    removed: int = 0
    waiting: tuple[RowStore, ...] = ()
    waiting_rows: int = 0

    @property
    def like(self) -> RowStore:
        """Rows of the kinds that have come so far."""
        return self.waiting[0] if self.waiting and "X" not in self.rows else self.rows

    def with_(self, **changes: Any) -> State:
        """Return a state in which some things are different."""
        return replace(self, **changes)


def new_generator(seed: Any) -> dict[str, Any]:
    """Return the state of a PCG64 generator: of a seed, or drawn from a generator given."""
    rng = checks.generator(seed)
    if rng is seed:
        rng = np.random.default_rng(seed.integers(0, 2**63, size=4))
    return dict(rng.bit_generator.state)


def generator(state: dict[str, Any]) -> np.random.Generator:
    """Return a generator in this state, of its own."""
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]  # a plain dictionary of its keys
    return np.random.Generator(bits)
