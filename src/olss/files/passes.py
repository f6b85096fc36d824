"""The two passes over the partitions of the input: accumulate moments, then sample.

The first returns a `ChunkStats` of each partition, the second a `ChunkSample`; two of a kind are
merged into one. A single pass samples by what it has read so far, and returns both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from olss.core.sampling import draw_cells
from olss.errors import DataError
from olss.files.chunks import (
    Chunk,
    ChunkContext,
    Partition,
    Tick,
    read_chunks,
    to_store,
)
from olss.memory.buckets import MomentBuckets
from olss.memory.config import Config
from olss.memory.encoder import SeenScorer
from olss.memory.policies import ThresholdPolicy, VarOptPolicy
from olss.memory.rows import Floats, Indices, RowStore
from olss.memory.state import decay_new, times_of
from olss.memory.strata import (
    Counts,
    StratumShares,
    add_class_counts,
    add_counts,
    class_keys,
    count_rows,
    scale_counts,
    stratum_shares,
)
from olss.memory.totals import accumulate
from olss.tables.class_labels import check_no_missing
from olss.tables.schema import dictionary_codes, is_number, value_type
from olss.util.threads import cached_property


@dataclass(frozen=True)
class ChunkStats:
    """What is known of some rows once they have been read.

    Attributes
    ----------
    rows : dict of int to int
        How many rows each piece has.
    now : float
        The latest time, or how many rows there are.
    buckets : MomentBuckets or None
        Their moments, by times that begin with these rows; None if they are not needed.
    strata : dict of str to float
        Rows of each stratum, by their weights, if there are strata.
    """

    rows: dict[int, int]
    now: float = 0.0
    buckets: MomentBuckets | None = None
    strata: Counts = field(default_factory=dict)

    def append(self, later: ChunkStats, config: Config) -> ChunkStats:
        """Return what is known of these rows and of others that come after them."""
        now = self.now + later.now if config.time is None else max(self.now, later.now)
        a, b = self._decay(now, config), later
        if config.time is not None:
            b = later._decay(now, config)
        elif b.buckets is not None:  # by rows, they are as old as before
            b = replace(b, buckets=b.buckets.shift(self.now))
        buckets = None
        if a.buckets is not None and b.buckets is not None:
            buckets = a.buckets.merge(b.buckets).drop(now)
        return ChunkStats(a.rows | b.rows, now, buckets, add_counts(a.strata, b.strata))

    def _decay(self, now: float, config: Config) -> ChunkStats:
        """Return what is known of these rows as they count at a later time."""
        if config.half_life is None:
            return self
        share = float(np.exp2((self.now - now) / config.half_life))
        return replace(
            self,
            buckets=None if self.buckets is None else self.buckets.scale(share),
            strata=scale_counts(self.strata, share) or {},
        )


@dataclass(frozen=True)
class ChunkSample:
    """Rows sampled from some partitions, how many rows each piece had, and each class.

    After a single pass, also the moments of all rows of these partitions.
    """

    rows: dict[int, int]
    kept: RowStore | None
    classes: Counts | None = field(default_factory=dict)
    buckets: MomentBuckets | None = None

    @property
    def stats(self) -> ChunkStats:
        """What is known of these rows after a single pass."""
        return ChunkStats(self.rows, float(sum(self.rows.values())), self.buckets)


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
    wanted += [context.own_column(name) for name in config.strata or ()]
    columns += dict.fromkeys(name for name in wanted if name is not None and name not in columns)
    columns = columns or [context.schema.names[0]]  # something must be read to count rows
    if config.holdout is not None:  # the side of a row depends on all of it
        columns = None
    buckets = MomentBuckets(config.window) if context.needs_moments else None
    stats = ChunkStats({}, -np.inf if config.time else 0.0, buckets)
    for piece in partition.pieces:
        for chunk in read_chunks(context, piece, columns, tick):
            stats = stats.append(_accumulate(context, chunk, stats), config)
    return stats


def _accumulate(context: ChunkContext, chunk: Chunk, before: ChunkStats) -> ChunkStats:
    n, config, X = len(chunk.rows), context.config, chunk.table
    times = times_of(config, RowStore({"X": X})) if config.time else np.arange(1.0, n + 1)
    now = float(times.max())
    buckets = None
    if context.needs_moments:
        buckets = _add_moments(context, chunk, MomentBuckets(config.window), now)
    counts: Counts = {}
    if config.strata is not None:
        weight = np.ones(n)
        if config.half_life is not None:
            weight = np.exp2((times - now) / config.half_life)
        counts = count_rows(context.stratum_keys(X), weight)
    number = chunk.piece.number
    return ChunkStats({number: before.rows.get(number, 0) + n}, now, buckets, counts)


def _add_moments(
    context: ChunkContext, chunk: Chunk, known: MomentBuckets, now: float = 0.0
) -> MomentBuckets:
    """Return moments with the rows of a chunk added, as they count now."""
    (X, y), ones = context.split_target(chunk.table), np.ones(len(chunk.rows))
    columns = {"X": X, "weight": ones, "initial_weight": ones, "index": np.arange(len(ones))}
    rows = context.with_keys(RowStore(columns if y is None else columns | {"y": y}))
    return accumulate(
        context.config,
        context.encoder,
        known,
        decay_new(context.config, rows, now),
        is_class=context.has_classes,
        place=chunk.piece.place,
        start=int(chunk.rows[0]),
    )


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
    return ChunkSample(rows, kept if len(kept) else None, sampler.classes, sampler.buckets)


def merge_samples(
    context: ChunkContext, place: tuple[int, ...], a: ChunkSample, b: ChunkSample
) -> ChunkSample:
    """Return rows sampled from what was sampled of two partitions."""
    classes = add_class_counts(a.classes, b.classes)
    rows, buckets = a.rows | b.rows, None
    if a.buckets is not None and b.buckets is not None:
        buckets = a.buckets.merge(b.buckets)
    if a.kept is None or b.kept is None:
        return ChunkSample(rows, a.kept or b.kept, classes, buckets)
    kept = context.resample(a.kept, b.kept, context.rng(*place), buckets).rows
    return ChunkSample(rows, kept, classes, buckets)


class _ChunkSampler:
    """Samples from chunks as they come, holding at most about twice as many rows as stay."""

    buckets: MomentBuckets | None = None  # of a single pass

    def __init__(self, context: ChunkContext, rng: np.random.Generator) -> None:
        self._context, self._rng = context, rng
        self._held = RowStore()
        self._pending: list[RowStore] = []
        self._threshold = context.threshold
        self.classes: Counts | None = {} if context.has_classes else None

    def offer(self, chunk: Chunk) -> None:
        """Ingest a chunk."""
        context, policy, n = self._context, self._context.config.policy, len(chunk.rows)
        if not isinstance(policy, ThresholdPolicy) or not self._samples_chunks():
            store = decay_new(context.config, to_store(context, chunk), context.now)
            self._count_classes(store.get("y"), store["initial_weight"])
            self._enqueue(store)
            return
        self._count_classes(context.split_target(chunk.table)[1], np.ones(n))
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
            store = to_store(context, chunk, chosen, weight)
            if not context.one_pass:  # else they are computed anew in each draw
                store = store.with_columns({"priority": priority[chosen]})
            self._enqueue(store)

    def finish(self) -> RowStore:
        """Return the rows kept."""
        self._flush()
        return self._held

    def _samples_chunks(self) -> bool:
        """Return whether rows are scored, and sampled, before they are held."""
        config = self._context.config
        return not config.forgets and config.holdout is None

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
        new, self._pending = RowStore.concat(self._pending), []
        state = self._context.resample(self._held, new, self._rng, self.buckets)
        self._held = state.rows
        if state.threshold is not None:
            self._threshold = state.threshold


class _OnePassSampler(_ChunkSampler):
    """Samples from chunks as they come, scored against what has been seen so far.

    Whatever the scores, a weight is one over the probability by which a row was kept. Scores need a
    factor of the Gram matrix, so chunks of wide rows are gathered until that is worth it.
    """

    buckets: MomentBuckets

    def __init__(self, context: ChunkContext, rng: np.random.Generator) -> None:
        super().__init__(context, rng)
        self.buckets = MomentBuckets()
        self._waiting: list[Chunk] = []

    def offer(self, chunk: Chunk) -> None:
        """Ingest a chunk."""
        self.buckets = _add_moments(self._context, chunk, self.buckets)
        self._waiting.append(chunk)
        if sum(len(chunk.rows) for chunk in self._waiting) >= self.buckets.total.columns:
            self._score_waiting()

    def finish(self) -> RowStore:
        """Return the rows kept."""
        self._score_waiting()
        return super().finish()

    def _score_waiting(self) -> None:
        context, waiting, self._waiting = self._context, self._waiting, []
        scorer = None if self._threshold is None else context.score_seen(self.buckets, self._rng)
        self._context = replace(context, scorer=scorer)
        for chunk in waiting:
            super().offer(chunk)

    def _samples_chunks(self) -> bool:
        # Other policies than VarOpt cannot compare priorities by different moments.
        is_varopt = isinstance(self._context.config.policy, VarOptPolicy)
        return is_varopt and self._context.scorer is not None and super()._samples_chunks()


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
        coded = context.stratum_keys(self.chunk.table)
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
