"""Chunks of rows of a file, and what is done with them: accumulate moments, and sample.

The input is cut into partitions that are read independently: in threads, or on a cluster. What
they yield is merged two by two, in a tree whose shape depends on the number of partitions alone;
with one random generator for each partition and each merge, the same seed gives the same rows
wherever they are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from olss.core.sampling import draw_cells
from olss.errors import DataError
from olss.memory import engine
from olss.memory.config import Config
from olss.memory.encoder import Encoder, SeenScorer, read_target
from olss.memory.holdout import training_rows, with_keys
from olss.memory.intake import is_missing
from olss.memory.moments import SeenMoments
from olss.memory.policies import ThresholdPolicy
from olss.memory.rows import Floats, Indices, RowStore, take
from olss.memory.state import State, decay_moments, decay_new, times_of
from olss.memory.strata import (
    Counts,
    Strata,
    StratumShares,
    add_class_counts,
    add_counts,
    class_keys,
    count_rows,
    scale_counts,
    stratum_keys,
    stratum_shares,
)
from olss.memory.window_moments import WindowMoments
from olss.tables.class_labels import check_no_missing
from olss.tables.readers import RowGroup
from olss.tables.schema import (
    as_type,
    dictionary_codes,
    is_number,
    label_array,
    numpy_array,
    value_type,
)

R = TypeVar("R")
Tick = Callable[[int], None]

# A row's position in the stream is known when all rows before it have been counted. Until then it
# is that of its piece, in steps larger than any piece has rows.
PIECE_STEP = 1 << 36

# An input is cut into about eight partitions, so that there is work for some threads, but into
# more if they would be larger than a worker should have to read again when another one dies.
PARTITIONS, SMALL_BYTES, LARGE_BYTES = 8, 32_000_000, 512_000_000


@dataclass(frozen=True)
class Partition:
    """Pieces of the input that are read one after the other."""

    number: int
    pieces: tuple[RowGroup, ...]

    @property
    def bytes(self) -> int:
        """Share of the input."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True)
class ChunkContext:
    """What every partition needs to know.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the input.
    config : Config
        Settings of the sketch; its size is a number.
    target, task : str or None
        The target column, and the one with the task; without, each file is a task.
    has_classes : bool
        Whether the target is a class.
    strata : Strata
        The strata: of everything, once they have been counted.
    needs_moments : bool
        Whether a first pass accumulates moments.
    seed : tuple of int
        Entropy of this run.
    seen : int
        Rows seen before.
    starts : dict of int to int
        Rows before each piece, once they have been counted.
    now : float
        The time after all rows, once it is known.
    one_pass : bool
        Whether rows are scored against what has been seen so far, instead of everything.
    known : SeenMoments or None
        With `one_pass`, the moments of what was seen before this run.
    scorer : SeenScorer or None
        Leverage scores in everything, after a first pass.
    """

    schema: Any
    config: Config
    encoder: Encoder
    target: str | None
    task: str | None
    has_classes: bool
    needs_moments: bool
    seed: tuple[int, ...]
    seen: int
    starts: dict[int, int] | None = None
    now: float = 0.0
    strata: Strata = field(default_factory=Strata)
    one_pass: bool = False
    known: SeenMoments | None = None
    scorer: SeenScorer | None = None

    @property
    def uses_matrices(self) -> bool:
        """Whether BLAS is needed."""
        return self.needs_moments or self.scorer is not None

    @property
    def size(self) -> int:
        """Rows to keep."""
        assert self.config.size != "task"
        return self.config.size

    def rng(self, *place: int) -> np.random.Generator:
        """Return the generator of a partition (one number) or of a merge (two)."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=place))

    def resample(
        self,
        held: RowStore,
        new: RowStore,
        rng: np.random.Generator,
        moments: SeenMoments | None = None,
    ) -> RowStore:
        """Return what the policy keeps of rows sampled so far and new ones.

        Priorities stay what they are in this run, where all were computed from the same moments;
        in a single pass they are computed anew, from the moments of what has been read.
        """
        return engine.step(
            self.config,
            self.create_state(held, moments),
            new,
            self.size,
            scorer=self.scorer,
            rng=rng,
            keep_priorities=moments is None,
        ).rows

    def create_state(self, rows: RowStore, moments: SeenMoments | None = None) -> State:
        """Return the state of a sketch that holds rows of this run.

        Its moments are those given, of this run, and of what was seen before it.
        """
        if moments is not None and self.known is not None:
            moments = self.known.merge(moments)
        return State(
            {},
            rows=rows,
            encoder=self.encoder,
            has_classes=self.has_classes,
            moments=moments,
            strata=self.strata,
        )


Merge: TypeAlias = Callable[[ChunkContext, tuple[int, ...], R, R], R]


@dataclass(frozen=True)
class Chunk:
    """Some rows of a piece.

    Attributes
    ----------
    table : pyarrow.Table
    rows : (n,) int array
        Their numbers in the file.
    offset : int
        How many rows of the piece came before.
    """

    piece: RowGroup
    table: Any
    rows: Indices
    offset: int

    @property
    def place(self) -> str:
        """File and rows, for messages."""
        return f"{self.piece.place}, rows {self.rows[0]:,} to {self.rows[-1]:,}"

    def index(self, context: ChunkContext) -> Indices:
        """Return the positions of the rows in the stream."""
        number = self.piece.number
        start = number * PIECE_STEP if context.starts is None else context.starts[number]
        return context.seen + start + self.offset + np.arange(len(self.rows))


def read_chunks(
    context: ChunkContext, piece: RowGroup, columns: Sequence[str] | None, tick: Tick | None
) -> Iterator[Chunk]:
    """Yield the rows of a piece, without those that have no target if these are to be dropped.

    Reports how many bytes of the input each chunk stands for.
    """
    import pyarrow as pa

    drops = context.target if context.config.missing_target == "drop" else None
    if columns is not None and drops is not None and drops not in columns:
        columns = [*columns, drops]
    offset = done = 0
    for start, batch in piece.read(context.schema, columns):
        table, rows = pa.Table.from_batches([batch]), np.arange(start, start + batch.num_rows)
        if drops is not None:
            there = np.flatnonzero(~is_missing(table.select([drops])))
            if len(there) < len(rows):
                table, rows = take(table, there), rows[there]
        if len(rows):
            yield Chunk(piece, table, rows, offset)
            offset += len(rows)
        if tick is not None and piece.rows:
            now = piece.bytes * (start + batch.num_rows - piece.start) // piece.rows
            tick(now - done)
            done = now
    if tick is not None:
        tick(piece.bytes - done)


@dataclass(frozen=True)
class ChunkStats:
    """What is known of some rows once they have been read.

    Attributes
    ----------
    rows : dict of int to int
        How many rows each piece has.
    now : float
        The latest time, or how many rows there are.
    window : WindowMoments or None
        With a window, its moments, by times that begin with these rows.
    strata : dict of str to float
        Rows of each stratum, by their weights, if there are strata.
    """

    rows: dict[int, int]
    moments: SeenMoments | None
    now: float
    strata: Counts = field(default_factory=dict)
    window: WindowMoments | None = None

    @property
    def known(self) -> SeenMoments | None:
        """The moments of these rows, or of those in the window."""
        return self.moments if self.window is None else self.window.total

    def append(self, later: ChunkStats, config: Config) -> ChunkStats:
        """Return what is known of these rows and of others that come after them."""
        now = self.now + later.now if config.time is None else max(self.now, later.now)
        a = self._at(now, config)
        if config.time is not None:
            b = later._at(now, config)
        elif later.window is not None:  # by rows, they are as old as before
            b = replace(later, window=later.window.shift(self.now))
        else:
            b = later
        return ChunkStats(
            a.rows | b.rows,
            a.moments.merge(b.moments) if a.moments and b.moments else a.moments or b.moments,
            now,
            add_counts(a.strata, b.strata),
            None if a.window is None or b.window is None else a.window.merge(b.window).drop(now),
        )

    def _at(self, now: float, config: Config) -> ChunkStats:
        """Return what is known of these rows as they count at a later time."""
        if config.half_life is None:
            return self
        elapsed = now - self.now
        decay = partial(decay_moments, elapsed=elapsed, half_life=config.half_life)
        return replace(
            self,
            moments=None if self.moments is None else decay(self.moments),
            strata=scale_counts(self.strata, float(np.exp2(-elapsed / config.half_life))),
            window=None if self.window is None else self.window.map(decay),
        )


@dataclass(frozen=True)
class ChunkSample:
    """Rows sampled from some partitions, how many rows each piece had, and each class.

    After a single pass, also the moments of all rows of these partitions.
    """

    rows: dict[int, int]
    kept: RowStore | None
    classes: Counts | None = field(default_factory=dict)
    moments: SeenMoments | None = None

    @property
    def stats(self) -> ChunkStats:
        """What is known of these rows after a single pass."""
        return ChunkStats(self.rows, self.moments, float(sum(self.rows.values())))


def merge_stats(
    context: ChunkContext, place: tuple[int, ...], a: ChunkStats, b: ChunkStats
) -> ChunkStats:
    """Return what is known of two partitions."""
    return a.append(b, context.config)


def accumulate_partition(
    context: ChunkContext, partition: Partition, tick: Tick | None = None
) -> ChunkStats:
    """Return the number of rows, the moments and the latest time of a partition."""
    config, plan = context.config, context.encoder.plan
    columns: list[str] | None
    columns = [c.name for c in plan.used] if context.needs_moments and plan is not None else []
    wanted = [config.time, context.target if context.needs_moments else None]
    wanted += [stratum_column(context, name) for name in config.strata or ()]
    columns += dict.fromkeys(name for name in wanted if name is not None and name not in columns)
    columns = columns or [context.schema.names[0]]  # something must be read to count rows
    if config.holdout is not None:  # the side of a row depends on all of it
        columns = None
    sums = context.needs_moments
    stats = ChunkStats(
        {},
        SeenMoments() if sums and config.window is None else None,
        -np.inf if config.time else 0.0,
        window=WindowMoments(config.window) if sums and config.window is not None else None,
    )
    for piece in partition.pieces:
        for chunk in read_chunks(context, piece, columns, tick):
            stats = stats.append(_accumulate(context, chunk, stats), config)
    return stats


def _accumulate(context: ChunkContext, chunk: Chunk, before: ChunkStats) -> ChunkStats:
    n, config, X = len(chunk.rows), context.config, chunk.table
    times = times_of(config, RowStore({"X": X})) if config.time else np.arange(1.0, n + 1)
    now = float(times.max())
    weight = np.ones(n)
    if config.half_life is not None:
        weight = np.exp2((times - now) / config.half_life)
    moments = window = None
    if context.needs_moments and config.window is None:
        moments = _add_moments(context, chunk, SeenMoments(), weight)
    elif context.needs_moments and config.window is not None:
        inside = np.flatnonzero(now - times < config.window)

        def add(moments: SeenMoments, at: Indices) -> SeenMoments:
            some = replace(chunk, table=take(X, inside[at]), rows=chunk.rows[inside[at]])
            return _add_moments(context, some, moments, weight[inside[at]])

        window = WindowMoments(config.window).update(times[inside], add)
    counts: Counts = {}
    if config.strata is not None:
        counts = count_rows(_to_keys(context, X), weight)
    number = chunk.piece.number
    return ChunkStats({number: before.rows.get(number, 0) + n}, moments, now, counts, window)


def _add_moments(
    context: ChunkContext, chunk: Chunk, moments: SeenMoments, weight: Floats
) -> SeenMoments:
    """Return moments with the rows of a chunk, and their targets, added."""
    place, first = chunk.piece.place, int(chunk.rows[0])
    X, y = _split_target(context, chunk.table)
    if context.config.holdout is not None:  # models are fitted by moments
        columns = {"X": X, "weight": weight} | ({} if y is None else {"y": y})
        rows = training_rows(context.config, _with_keys(context, RowStore(columns)))
        X, y, weight = rows["X"], rows.get("y"), rows["weight"]
        if not len(rows):
            return moments
    target = read_target(y, is_class=context.has_classes)
    return context.encoder.accumulate(moments, X, weight, place, first, target=target)


def _split_target(context: ChunkContext, table: Any) -> tuple[Any, Any]:
    """Return the columns beside the target, and the target as a table of one, if there is one."""
    if context.target is None:
        return table, None
    return table.drop_columns([context.target]), table.select([context.target])


def sample_partition(
    context: ChunkContext, partition: Partition, tick: Tick | None = None
) -> ChunkSample:
    """Return rows sampled from a partition."""
    rng, rows = context.rng(partition.number), dict[int, int]()
    sampler = _OnePassSampler(context, rng) if context.one_pass else _ChunkSampler(context, rng)
    for piece in partition.pieces:
        for chunk in read_chunks(context, piece, None, tick):
            _check_chunk(context, chunk)
            rows[piece.number] = rows.get(piece.number, 0) + len(chunk.rows)
            sampler.offer(chunk)
    kept = sampler.finish()
    return ChunkSample(rows, kept if len(kept) else None, sampler.classes, sampler.moments)


def merge_samples(
    context: ChunkContext, place: tuple[int, ...], a: ChunkSample, b: ChunkSample
) -> ChunkSample:
    """Return rows sampled from what was sampled of two partitions."""
    classes = add_class_counts(a.classes, b.classes)
    rows, moments = a.rows | b.rows, None
    if a.moments is not None and b.moments is not None:
        moments = a.moments.merge(b.moments)
    if a.kept is None or b.kept is None:
        return ChunkSample(rows, a.kept or b.kept, classes, moments)
    kept = context.resample(a.kept, b.kept, context.rng(*place), moments)
    return ChunkSample(rows, kept, classes, moments)


class _ChunkSampler:
    """Samples from chunks as they come, holding at most about twice as many rows as stay."""

    moments: SeenMoments | None = None

    def __init__(self, context: ChunkContext, rng: np.random.Generator) -> None:
        self._context, self._rng = context, rng
        self._held = RowStore()
        self._pending: list[RowStore] = []
        self._threshold: float | None = None
        self.classes: Counts | None = {} if context.has_classes else None

    def offer(self, chunk: Chunk) -> None:
        """Ingest a chunk."""
        context, policy, n = self._context, self._context.config.policy, len(chunk.rows)
        needs_rows = context.config.forgets or context.config.holdout is not None
        if not isinstance(policy, ThresholdPolicy) or needs_rows:
            store = decay_new(context.config, _to_store(context, chunk), context.now)
            self._count_classes(store.get("y"), store["initial_weight"])
            self._enqueue(store)
            return
        self._count_classes(_split_target(context, chunk.table)[1], np.ones(n))
        candidates = _Candidates(context, chunk)
        priority = policy.priorities(candidates, self._rng)
        chosen, weight = np.arange(n), np.ones(n)
        if self._threshold is not None:
            shares = candidates.shares
            cells = draw_cells(
                _to_strata(context, chunk.table) if policy.leverage_scope is not None else None,
                None if shares is None else shares.codes,
            )
            places = policy.places(candidates, priority)
            chosen, weight = policy.threshold_sample(
                weight, priority, self._threshold, self._rng, cells, places
            )
        if len(chosen):
            store = _to_store(context, chunk, chosen, weight)
            self._enqueue(store.with_columns({"priority": priority[chosen]}))

    def finish(self) -> RowStore:
        """Return the rows kept."""
        self._flush()
        return self._held

    def _count_classes(self, y: Any, weight: Floats) -> None:
        if self.classes is not None and y is not None and len(weight):
            self.classes = add_class_counts(self.classes, count_rows(class_keys(y), weight))

    def _enqueue(self, store: RowStore) -> None:
        self._pending.append(store)
        if sum(map(len, self._pending)) >= self._context.size:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        context, policy = self._context, self._context.config.policy
        new, self._pending = RowStore.concat(self._pending), []
        overflows = len(self._held) + len(new) > context.size
        self._held = kept = context.resample(self._held, new, self._rng)
        if overflows and isinstance(policy, ThresholdPolicy):
            self._threshold = policy.threshold(kept["weight"], kept["priority"])


class _OnePassSampler(_ChunkSampler):
    """Samples from chunks as they come, scored against what has been seen so far.

    It is what updates of a sketch with the same chunks would do. Scores need a factor of the Gram
    matrix, so chunks of wide rows are gathered until that is worth it.
    """

    moments: SeenMoments

    def __init__(self, context: ChunkContext, rng: np.random.Generator) -> None:
        super().__init__(context, rng)
        self.moments = SeenMoments()
        generator = dict(rng.bit_generator.state)
        self._state = context.create_state(RowStore()).replace(generator=generator)

    def offer(self, chunk: Chunk) -> None:
        """Ingest a chunk."""
        ones = np.ones(len(chunk.rows))
        self.moments = _add_moments(self._context, chunk, self.moments, ones)
        self._count_classes(_split_target(self._context, chunk.table)[1], ones)
        self._pending.append(_to_store(self._context, chunk))
        if sum(map(len, self._pending)) >= self.moments.columns:
            self._flush()

    def finish(self) -> RowStore:
        """Return the rows kept."""
        self._flush()
        return engine.flush(self._context.config, self._state).rows

    def _flush(self) -> None:
        if not self._pending:
            return
        context, new = self._context, RowStore.concat(self._pending)
        known = context.create_state(RowStore(), self.moments).moments
        state = self._state.replace(moments=known)
        self._state, self._pending = engine.offer(context.config, state, new, context.size, 1.0), []


@dataclass(frozen=True)
class _Candidates:
    """The rows of a chunk, for their priorities; a `olss.memory.pool.Candidates`."""

    context: ChunkContext
    chunk: Chunk

    def __len__(self) -> int:
        return len(self.chunk.rows)

    @property
    def index(self) -> Indices:
        return self.chunk.index(self.context)

    @property
    def dimension(self) -> float:
        return self._scorer.dimension

    @property
    def total(self) -> float:
        return self._scorer.total

    @property
    def target(self) -> None:
        return None

    @cached_property
    def shares(self) -> StratumShares | None:
        context = self.context
        if context.config.strata is None:
            return None
        coded = _to_keys(context, self.chunk.table)
        return stratum_shares(
            context.config, context.strata, coded, np.ones(len(self)), context.size
        )

    def scores(self) -> Floats:
        return self._scored[0]

    @property
    def coordinates(self) -> Floats | None:
        return self._scored[1]

    @cached_property
    def _scored(self) -> tuple[Floats, Floats | None]:
        chunk = self.chunk
        return self._scorer(chunk.table, chunk.piece.place, int(chunk.rows[0]))

    @property
    def _scorer(self) -> SeenScorer:
        assert self.context.scorer is not None
        return self.context.scorer


def _to_store(
    context: ChunkContext,
    chunk: Chunk,
    chosen: Indices | None = None,
    weight: Floats | None = None,
) -> RowStore:
    """Return rows of a chunk as a sketch holds them: all, of weight 1, or those chosen.

    Where no column holds the task, it is the file for now.
    """
    chosen = np.arange(len(chunk.rows)) if chosen is None else chosen
    n, table = len(chosen), chunk.table
    if n < len(chunk.rows):
        table = take(table, chosen)
    X, y = _split_target(context, table)
    columns = {"X": X} if y is None else {"X": X, "y": y}
    source = np.full(n, chunk.piece.source.number, dtype=np.int64)
    task = source if context.task is None else _to_tasks(table.column(context.task))
    rows = RowStore(
        columns
        | {
            "task": task,
            "weight": np.ones(n) if weight is None else weight,
            "initial_weight": np.ones(n),
            "index": chunk.index(context)[chosen],
            "priority": np.full(n, np.nan),
            "source": source,
            "row": chunk.rows[chosen],
        }
    )
    return _with_keys(context, rows)


def _with_keys(context: ChunkContext, rows: RowStore) -> RowStore:
    """Return rows with the keys that decide their side, if there is a hold-out."""
    group = context.config.group
    if group is None:
        return with_keys(context.config, rows)
    return with_keys(replace(context.config, group=stratum_column(context, group)), rows)


def stratum_column(context: ChunkContext, name: str) -> str:
    """Return the name in the input of a column of the strata; "y" is the target."""
    if name not in context.schema.names and name in ("y", "task"):
        name = (context.target if name == "y" else context.task) or name
    return name


def _to_keys(context: ChunkContext, table: Any) -> tuple[Indices, list[str]]:
    """Return the stratum of each row of a chunk."""
    return stratum_keys(
        context.config,
        context.strata.edges,
        lambda name: table.column(stratum_column(context, name)),
    )


def _to_strata(context: ChunkContext, table: Any) -> Indices | None:
    """Return the number of each row's stratum in a chunk: its task and class."""
    names = [context.task] if context.task is not None else []
    names += [context.target] if context.target is not None and context.has_classes else []
    strata: Indices | None = None
    for name in names:
        column = table.column(name).combine_chunks()
        coded = column if hasattr(column, "indices") else column.dictionary_encode()
        codes = dictionary_codes(coded) + 1
        strata = codes if strata is None else strata * (codes.max() + 1) + codes
    return strata


def _check_chunk(context: ChunkContext, chunk: Chunk) -> None:
    """Raise `DataError` if the target or the task of a row is missing and must not be."""
    if context.target is not None and context.config.missing_target == "error":
        check_no_missing(context.target, chunk.table.column(context.target), chunk.place)
    if context.task is not None:
        _check_tasks(context.task, chunk.table.column(context.task), chunk.place)


def _check_tasks(name: str, column: Any, place: str) -> None:
    """Raise `DataError` if a column of numbers has no task for some rows."""
    if is_number(value_type(column.type)) and column.null_count:
        raise DataError(
            f"{place}: task column {name!r} has {column.null_count:,} missing values. Fill them, "
            "or cast the column to string (missing becomes its own task)."
        )


def _to_tasks(column: Any) -> NDArray[Any]:
    """Return a column as tasks: integers, or strings; a missing string is a task of its own."""
    import pyarrow.types as kinds

    column = as_type(column, value_type(column.type))
    if kinds.is_integer(column.type):
        return numpy_array(column).astype(np.int64)
    return label_array(column)


def partition_pieces(pieces: Sequence[RowGroup], *, single: bool = False) -> list[Partition]:
    """Return pieces gathered into partitions of about the same size.

    With `single`, all are one partition: for a policy that takes rows in their order.
    """
    if single:
        return [Partition(0, tuple(pieces))]
    total = sum(piece.bytes for piece in pieces)
    enough = min(max(total // PARTITIONS, SMALL_BYTES), LARGE_BYTES)
    partitions: list[Partition] = []
    gathered: list[RowGroup] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += piece.bytes
        if size >= enough:
            partitions.append(Partition(len(partitions), tuple(gathered)))
            gathered, size = [], 0
    if gathered:
        partitions.append(Partition(len(partitions), tuple(gathered)))
    return partitions


def fold(values: Iterable[R], merge: Callable[[tuple[int, int], R, R], R]) -> R:
    """Return values merged two by two as they come, holding no more than log2 of them.

    `merge` gets the numbers of the first value and of the one after the last that it merges.
    """
    stack: list[tuple[int, int, R]] = []

    def join() -> None:
        (low, _, a), (_, high, b) = stack[-2:]
        stack[-2:] = [(low, high, merge((low, high), a, b))]

    for number, value in enumerate(values):
        stack.append((number, number + 1, value))
        while len(stack) > 1 and _span(stack[-2]) == _span(stack[-1]):
            join()
    while len(stack) > 1:
        join()
    return stack[0][2]


def _span(entry: tuple[int, int, Any]) -> int:
    return entry[1] - entry[0]
