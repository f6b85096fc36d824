"""Everything an update changes, as one immutable value, and how it decays.

Rows count 2^(-age / half_life), or nothing beyond a window. Ages are those of the rows: in rows of
the stream, or by a time column. So it does not matter how a stream is cut into updates. A sketch
with such weights is one of the decayed stream: its total weight, its Gram matrix and its estimates
are, without bias, those of sum_i 2^(-age_i / half_life) f(x_i).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np

from olss.core.blocks import is_arrow, to_numpy
from olss.core.gradient_trace import GradientTrace
from olss.errors import DataError, InputError
from olss.memory.buckets import MomentBuckets
from olss.memory.config import Config
from olss.memory.encoder import Encoder
from olss.memory.intake import TableKind
from olss.memory.moments import SeenMoments
from olss.memory.novelty import History
from olss.memory.rows import EXTRA, Floats, RowStore
from olss.memory.strata import Counts, Strata, scale_counts
from olss.util import checks
from olss.util.text import format_duration

IN_TABLE = {"saved": False}  # in the table of a sketch file, not in its metadata


class IngestedFile(TypedDict):
    """A file that `olss.compress` has ingested."""

    address: str
    fingerprint: str
    bytes: int
    modified: int
    inode: int
    rows: int
    run: int


class FileEntry(IngestedFile, total=False):
    """Of a query also how far it was read: a column, and its largest value."""

    since: dict[str, Any]


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
    buckets : MomentBuckets or None
        The moments of everything seen, or of a window; None if they are not kept or not known.
    strata : Strata
        The strata of everything seen: how many rows each has, and where numbers are cut into bins.
    class_counts : dict of str to float, or None
        Rows seen of each class, by their weights, under its key; None where that is not known.
    trace : GradientTrace or None
        The gradient of a logistic or Poisson model over everything seen, if it is followed.
    table : TableKind or None
        What kind of tables come in, if rows are tables.
    files : tuple of FileEntry
        One for each file ingested by `olss.compress`.
    runs : int
        How many times files were ingested.
    removed : int
        How many held rows were removed.
    history : History
        How much past batches differed from what was then remembered.
    candidates : tuple of RowStore
        Rows sampled since the last draw, against its threshold: part of everything known, with
        weights, they compete with the rows held at the next draw.
    threshold : float or None
        The threshold of the last draw, if later rows may be sampled against it.
    pending : tuple of RowStore
        Rows, checked and counted, that wait for more before anything is done with them.
    """

    generator: dict[str, Any]
    rows: RowStore = field(default_factory=RowStore, metadata=IN_TABLE)
    seen: int = 0
    task: int | str = 0
    now: float = 0.0
    has_classes: bool | None = None
    encoder: Encoder = field(default_factory=Encoder)
    buckets: MomentBuckets | None = None
    strata: Strata = field(default_factory=Strata)
    class_counts: Counts | None = None
    trace: GradientTrace | None = None
    table: TableKind | None = None
    files: tuple[FileEntry, ...] = ()
    runs: int = 0
    removed: int = 0
    history: History = field(default_factory=History)
    candidates: tuple[RowStore, ...] = field(default=(), metadata=IN_TABLE)
    threshold: float | None = None
    pending: tuple[RowStore, ...] = field(default=(), metadata=IN_TABLE)

    @property
    def moments(self) -> SeenMoments | None:
        """The moments of everything in `buckets`."""
        return None if self.buckets is None else self.buckets.total

    @property
    def waiting(self) -> tuple[RowStore, ...]:
        """Rows beside those held, in the order they came: candidates, then pending rows."""
        return (*self.candidates, *self.pending)

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


def current_time(config: Config, state: State, new: RowStore) -> float:
    """Return the time after new rows: rows seen, or the latest time of a row."""
    if config.time is None:
        return float(state.seen + len(new))
    latest = float(times_of(config, new).max())
    if state.seen == state.pending_rows:  # no row has set the time yet
        return latest
    if latest < state.now:
        age = state.now - latest
        is_date = _time_values(config, new).dtype.kind == "M"
        late = format_duration(age) if is_date else f"{age:,.6g} units"
        raise DataError(
            f"time: the newest row given is {late} older than the newest row seen. Pass rows in "
            "the order of their time, or merge a sketch of the late ones."
        )
    return latest


def decay_new(config: Config, new: RowStore, now: float) -> RowStore:
    """Return new rows with weights decayed by age, without those beyond the window."""
    if not config.forgets:
        return new
    age = now - row_times(config, new)
    if config.window is not None:
        new, age = new.take(np.flatnonzero(age < config.window)), age[age < config.window]
    return new if config.half_life is None else _scale(new, np.exp2(-age / config.half_life))


def decay(config: Config, state: State, now: float) -> State:
    """Return the state as it counts at a later time: rows, moments, counts and gradient.

    With a window, rows and moments beyond it are gone, and the counts of strata and classes are
    not known.
    """
    rows, strata = state.rows, state.strata
    if config.half_life is not None:
        share = float(np.exp2((state.now - now) / config.half_life))
        rows = _scale(rows, share) if len(rows) else rows
        state = state.replace(
            buckets=None if state.buckets is None else state.buckets.scale(share),
            strata=replace(strata, counts=scale_counts(strata.counts, share)),
            class_counts=scale_counts(state.class_counts, share),
            trace=state.trace.scale(share) if state.trace is not None and share > 0 else None,
        )
    if config.window is not None:
        if len(rows):
            rows = rows.take(np.flatnonzero(now - row_times(config, rows) < config.window))
        state = state.replace(
            buckets=None if state.buckets is None else state.buckets.drop(now),
            strata=replace(strata, counts=None),
            class_counts=None,
        )
    return state.replace(rows=rows, now=now)


def times_of(config: Config, rows: RowStore) -> Floats:
    """Return the time of each row: seconds for dates, numbers as they are."""
    values = _time_values(config, rows)
    is_date = values.dtype.kind == "M"
    if is_date:
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"time: column {config.time!r} must hold dates or numbers, found {values.dtype}."
        )
    if config.uses_dates and not is_date:
        raise InputError(
            f"time: column {config.time!r} holds numbers, but half_life or window is a length of "
            "time. Give it in the units of the column, or convert the column to dates."
        )
    times: Floats = values.astype(np.float64)
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DataError(f"time: column {config.time!r} has no value in row {row}.")
    return times


def row_times(config: Config, rows: RowStore) -> Floats:
    """Return the time of each row by which it ages: its number from 1, or `times_of`."""
    return rows["index"] + 1.0 if config.time is None else times_of(config, rows)


def _scale(rows: RowStore, share: Floats | float) -> RowStore:
    """Return rows with all weights multiplied, without those whose weight vanishes."""
    less = {name: rows[name] * share for name in ("weight", "initial_weight")}
    rows, left = rows.with_columns(less), (less["weight"] > 0) & (less["initial_weight"] > 0)
    return rows if left.all() else rows.take(np.flatnonzero(left))


def _time_values(config: Config, rows: RowStore) -> Any:
    name = config.time
    assert name is not None
    if is_arrow(rows["X"]) and name in rows["X"].schema.names:
        return rows["X"].column(name).to_numpy()
    if EXTRA + name in rows:
        return to_numpy(rows[EXTRA + name])
    raise InputError(
        f"time: there is no column {name!r}. Add it to the table, or pass it as "
        f"update(X, extra={{{name!r}: ...}})."
    )
