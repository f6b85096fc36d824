"""What every part of an input needs to know, and what is done to a part.

Two things are done to the rows of a part: they are *measured* (their spectrum, how many there are,
the latest time), and they are *drawn from*. Policies without scores have them drawn from at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError
from olss.files.parts import Part
from olss.memory.absorbing import pool_of, together
from olss.memory.forgetting import aged, faded_spectrum, forgets, times_of
from olss.memory.numbers import Numbers, SeenScorer
from olss.memory.policies import says
from olss.memory.pool import Floats, checked
from olss.memory.spectrum import Spectrum
from olss.memory.state import Settings, State
from olss.memory.store import Indices, RowStore, take
from olss.tables.arrow_types import as_type, is_number, numpy_array, value_type
from olss.tables.class_labels import check_no_missing
from olss.tables.readers import Piece

__all__ = [
    "PIECE_STEP",
    "Drawn",
    "Measured",
    "Tick",
    "Work",
    "draw_part",
    "measure_part",
    "unite_drawn",
]

Tick = Callable[[int], None]

# A row's place in the stream is known when all rows before it have been counted. Until then it is
# that of its piece, in steps larger than any piece has rows.
PIECE_STEP = 1 << 36


@dataclass(frozen=True)
class Work:
    """What every part needs to know.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the input.
    settings : Settings
        Of the sketch; its size is a number.
    numbers : Numbers
        What is scored of rows.
    target, task : str or None
        The column to be predicted, and the one that says the task; without, a file is a task.
    classes : bool
        Whether targets say a class.
    spectrum : bool
        Whether rows are measured for a spectrum.
    seed : tuple of int
        Entropy of this run.
    seen : int
        Rows seen before.
    starts : dict of int to int
        Rows before each piece, once they have been counted.
    now : float
        What time it is after all rows, once it is known.
    """

    schema: Any
    settings: Settings
    numbers: Numbers
    target: str | None
    task: str | None
    classes: bool
    spectrum: bool
    seed: tuple[int, ...]
    seen: int
    starts: dict[int, int] | None = None
    now: float = 0.0

    @property
    def size(self) -> int:
        """Rows to keep."""
        assert self.settings.size != "task"
        return self.settings.size

    def rng(self, *place: int) -> np.random.Generator:
        """Return the generator of a part (one number) or of a union (two)."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=place))

    def index(self, piece: Piece, rows: Indices) -> Indices:
        """Return the places in the stream of some rows of a piece, numbered as in its file."""
        if self.starts is None:
            return self.seen + piece.number * PIECE_STEP + rows
        return self.seen + self.starts[piece.number] + rows - piece.start

    def store(self, piece: Piece, table: Any, rows: Indices, weight: Floats) -> RowStore:
        """Return rows of a table as a sketch holds them; their task is their file for now."""
        n = len(rows)
        columns = {"X": table if self.target is None else table.drop_columns([self.target])}
        if self.target is not None:
            columns["y"] = table.select([self.target])
        source = np.full(n, piece.source.number, dtype=np.int64)
        task = source if self.task is None else task_values(table.column(self.task))
        return RowStore(
            columns
            | {
                "task": task,
                "weight": weight,
                "base": np.ones(n),
                "index": self.index(piece, rows),
                "order": np.full(n, np.nan),
                "source": source,
                "row": rows,
            }
        )


@dataclass(frozen=True)
class Measured:
    """What is known of some rows once they have been read.

    Attributes
    ----------
    rows : dict of int to int
        How many rows each piece has.
    spectrum : Spectrum or None
    now : float
        The latest time, or how many rows there are.
    """

    rows: dict[int, int]
    spectrum: Spectrum | None
    now: float

    def then(self, later: Measured, settings: Settings) -> Measured:
        """Return what is known of these rows and of others that come after them."""
        now = self.now + later.now if settings.time is None else max(self.now, later.now)
        mine, theirs = self.spectrum, later.spectrum
        if settings.half_life is not None and mine is not None and theirs is not None:
            mine = faded_spectrum(mine, now - self.now, settings.half_life)
            if settings.time is not None:
                theirs = faded_spectrum(theirs, now - later.now, settings.half_life)
        both = mine.merged(theirs) if mine is not None and theirs is not None else mine or theirs
        return Measured(self.rows | later.rows, both, now)


@dataclass(frozen=True)
class Drawn:
    """Rows drawn from some parts, and how many rows each piece had."""

    rows: dict[int, int]
    kept: RowStore | None


def measure_part(work: Work, part: Part, tick: Tick | None = None) -> Measured:
    """Return what is known of the rows of a part."""
    settings, plan = work.settings, work.numbers.plan
    columns = [column.name for column in plan.used] if work.spectrum and plan is not None else []
    if settings.time is not None and settings.time not in columns:
        columns.append(settings.time)
    known = Measured({}, Spectrum() if work.spectrum else None, -np.inf if settings.time else 0.0)
    for piece in part.pieces:
        # Something must be read to count rows.
        some = columns or [work.schema.names[0]]
        for start, batch in _ticking(piece, piece.read(work.schema, some), tick):
            known = known.then(_measured(work, piece, batch, start, known), settings)
    return known


def _measured(work: Work, piece: Piece, batch: Any, start: int, before: Measured) -> Measured:
    import pyarrow as pa

    n, settings = batch.num_rows, work.settings
    X = pa.Table.from_batches([batch])
    times = times_of(settings, RowStore({"X": X})) if settings.time else np.arange(1.0, n + 1)
    now = float(times.max())
    base = np.ones(n)
    if settings.half_life is not None:
        base = np.exp2((times - now) / settings.half_life)
    spectrum = None
    if work.spectrum:
        spectrum = work.numbers.added(Spectrum(), X, base, piece.place, start)
    return Measured({piece.number: before.rows.get(piece.number, 0) + n}, spectrum, now)


def draw_part(work: Work, scorer: SeenScorer | None, part: Part, tick: Tick | None = None) -> Drawn:
    """Return rows drawn from a part."""
    draw = _Draw(work, scorer, work.rng(part.number))
    for piece in part.pieces:
        for start, batch in _ticking(piece, piece.read(work.schema), tick):
            draw.offer(piece, batch, start)
    return Drawn(draw.rows, draw.finish())


def unite_drawn(
    work: Work, scorer: SeenScorer | None, place: tuple[int, int], a: Drawn, b: Drawn
) -> Drawn:
    """Return rows drawn from what was drawn of two parts."""
    if a.kept is None or b.kept is None:
        return Drawn(a.rows | b.rows, a.kept or b.kept)
    return Drawn(a.rows | b.rows, _cut(work, scorer, a.kept, b.kept, work.rng(*place)))


class _Draw:
    """Draws from blocks of rows as they come, holding at most about twice as many as stay."""

    def __init__(self, work: Work, scorer: SeenScorer | None, rng: np.random.Generator) -> None:
        self._work, self._scorer, self._rng = work, scorer, rng
        self._policy: Any = work.settings.policy
        self._held: RowStore | None = None
        self._waiting: list[RowStore] = []
        self._limit: float | None = None
        self.rows: dict[int, int] = {}

    def offer(self, piece: Piece, batch: Any, start: int) -> None:
        """Take in a block of rows."""
        import pyarrow as pa

        n, work, table = batch.num_rows, self._work, pa.Table.from_batches([batch])
        self.rows[piece.number] = self.rows.get(piece.number, 0) + n
        rows = np.arange(start, start + n)
        place = f"{piece.place}, rows {start:,} to {rows[-1]:,}"
        if work.target is not None:
            check_no_missing(work.target, table.column(work.target), place)
        if work.task is not None:
            check_tasks(work.task, table.column(work.task), place)
        if says(self._policy, "thin") is None or forgets(work.settings):
            store = work.store(piece, table, rows, np.ones(n))
            self._hold(aged(work.settings, store, work.now))
            return
        mark = self._policy.marks(_Block(work, self._scorer, piece, batch, start), self._rng)
        chosen, weight = np.arange(n), np.ones(n)
        if self._limit is not None:
            chosen, weight = self._policy.thin(weight, mark, self._limit, self._rng)
            if not len(chosen):
                return
            table = take(table, chosen)
        store = work.store(piece, table, rows[chosen], weight)
        self._hold(store.with_columns({"order": mark[chosen]}))

    def _hold(self, store: RowStore) -> None:
        self._waiting.append(store)
        if sum(map(len, self._waiting)) >= self._work.size:
            self._settle()

    def finish(self) -> RowStore | None:
        """Return the rows kept, or None if there were none."""
        self._settle()
        return self._held

    def _settle(self) -> None:
        if not self._waiting:
            return
        new, self._waiting = together(tuple(self._waiting)), []
        held = self._held if self._held is not None else RowStore()
        total = len(held) + len(new)
        self._held = kept = _cut(self._work, self._scorer, held, new, self._rng)
        if total > self._work.size and says(self._policy, "limit") is not None:
            self._limit = self._policy.limit(kept["weight"], kept["order"])


def _cut(
    work: Work, scorer: SeenScorer | None, held: RowStore, new: RowStore, rng: np.random.Generator
) -> RowStore:
    """Return what the policy chooses of rows kept before and new ones, with their marks."""
    if len(held) + len(new) <= work.size:
        return held.gathered(np.arange(len(held)), new, np.arange(len(new)))
    state = State({}, rows=held, numbers=work.numbers, classes=work.classes)
    # Marks are those of this run: none is made anew.
    pool = pool_of(work.settings, state, new, work.size, rng, scorer, renew=False)
    choice = checked(work.settings.policy(pool, rng), len(pool), work.size)
    kept = choice.rows[choice.rows < len(held)]
    rows = held.gathered(kept, new, choice.rows[len(kept) :] - len(held))
    changed = {"weight": choice.weight, "order": choice.order}
    return rows.with_columns({name: c for name, c in changed.items() if c is not None})


@dataclass(frozen=True)
class _Block:
    """The rows of a batch, for their marks; see `olss.memory.pool.Candidates`."""

    work: Work
    scorer: SeenScorer | None
    piece: Piece
    batch: Any
    start: int

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def index(self) -> Indices:
        return self.work.index(self.piece, np.arange(self.start, self.start + len(self)))

    @property
    def dimension(self) -> float:
        assert self.scorer is not None
        return self.scorer.dimension

    @property
    def total(self) -> float:
        assert self.scorer is not None
        return self.scorer.total

    @property
    def target(self) -> None:
        return None

    def scores(self) -> Floats:
        assert self.scorer is not None
        return self.scorer(self.batch, self.piece.place, self.start)


def check_tasks(name: str, column: Any, place: str) -> None:
    """Raise `DataError` if a column of numbers does not say the task of some rows of a place."""
    if is_number(value_type(column.type)) and column.null_count:
        raise DataError(
            f"{place}: the task {name!r} is missing in {column.null_count:,} of {len(column):,} "
            "rows, and no number says so. Fill the gaps, or make the column text, of which a gap "
            "is a task of its own."
        )


def task_values(column: Any) -> NDArray[Any]:
    """Return a column as tasks: whole numbers, or text; a missing text is a task of its own."""
    import pyarrow as pa
    import pyarrow.types as kinds

    column = as_type(column, value_type(column.type))
    if kinds.is_integer(column.type):
        return numpy_array(column).astype(np.int64)
    text = column.cast(pa.large_string()).fill_null("(missing)")
    return np.asarray(text.to_pylist(), dtype=np.str_)


def _ticking(piece: Piece, blocks: Iterator[Any], tick: Tick | None) -> Iterator[Any]:
    """Pass blocks on, saying how many bytes of the input each stands for."""
    done = 0
    for start, batch in blocks:
        yield start, batch
        if tick is not None and piece.rows:
            now = piece.bytes * (start + batch.num_rows - piece.start) // piece.rows
            tick(now - done)
            done = now
    if tick is not None:
        tick(piece.bytes - done)
