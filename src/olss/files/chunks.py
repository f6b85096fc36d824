"""Chunks of rows: how the input is cut and read, and what every part of it needs to know.

The input is cut into partitions that are read independently, in threads or on a cluster
(`olss.files.engines`), a chunk at a time; `olss.files.passes` is what is done with a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.memory import engine
from olss.memory.buckets import MomentBuckets
from olss.memory.config import Config
from olss.memory.encoder import Encoder, SeenScorer
from olss.memory.holdout import with_keys
from olss.memory.intake import is_missing
from olss.memory.rows import Floats, Indices, RowStore, take
from olss.memory.state import State
from olss.memory.strata import Coded, Strata, stratum_keys
from olss.tables.readers import RowGroup
from olss.tables.schema import as_type, label_array, numpy_array, value_type

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
    known : MomentBuckets or None
        With `one_pass`, the moments of what was seen before this run.
    scorer : SeenScorer or None
        Leverage scores in everything, after a first pass.
    threshold : float or None
        A bound below the threshold of the draw, by which rows are sampled from the start.
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
    known: MomentBuckets | None = None
    scorer: SeenScorer | None = None
    threshold: float | None = None

    @property
    def uses_matrices(self) -> bool:
        """Whether BLAS is needed."""
        return self.needs_moments or self.scorer is not None

    @property
    def size(self) -> int:
        """Rows to keep."""
        assert self.config.size != "task"
        return self.config.size

    def own_column(self, name: str) -> str:
        """Return the name in the input of a column that settings name."""
        return own_column(name, self.schema.names, self.target, self.task)

    def split_target(self, table: Any) -> tuple[Any, Any]:
        """Return columns beside the target, and the target as a table of one, if there is one."""
        if self.target is None:
            return table, None
        return table.drop_columns([self.target]), table.select([self.target])

    def stratum_keys(self, table: Any) -> Coded:
        """Return the stratum of each row of a chunk."""
        return stratum_keys(
            self.config, self.strata.edges, lambda name: table.column(self.own_column(name))
        )

    def with_keys(self, rows: RowStore) -> RowStore:
        """Return rows with the keys that decide their side, if there is a hold-out."""
        group = self.config.group
        if group is None:
            return with_keys(self.config, rows)
        return with_keys(replace(self.config, group=self.own_column(group)), rows)

    def rng(self, *place: int) -> np.random.Generator:
        """Return the generator of a partition (one number) or of a merge (two)."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=place))

    def resample(
        self,
        held: RowStore,
        new: RowStore,
        rng: np.random.Generator,
        buckets: MomentBuckets | None = None,
    ) -> State:
        """Return the state with what the policy keeps of rows sampled so far and new ones.

        Priorities stay what they are in this run, where all were computed from the same moments;
        in a single pass they are computed anew, from the moments of what has been read.
        """
        return engine.step(
            self.config,
            self.create_state(held, buckets),
            new,
            self.size,
            scorer=self.scorer,
            rng=rng,
            keep_priorities=buckets is None,
        )

    def score_seen(self, buckets: MomentBuckets, rng: np.random.Generator) -> SeenScorer | None:
        """Return scores in what a single pass has seen so far, if any number varies there."""
        config, known = self.config, self.create_state(RowStore(), buckets).moments
        if known is None or not self.encoder.can_score(known):
            return None
        spread = engine.spreads(config)
        return self.encoder.scorer(known, config.scores, self.size, rng, spread=spread)

    def create_state(self, rows: RowStore, buckets: MomentBuckets | None = None) -> State:
        """Return the state of a sketch that holds rows of this run.

        Its moments are those given, of this run, and of what was seen before it.
        """
        if buckets is not None and self.known is not None:
            buckets = self.known.merge(buckets)
        return State(
            {},
            rows=rows,
            encoder=self.encoder,
            has_classes=self.has_classes,
            buckets=buckets,
            strata=self.strata,
        )


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


def to_store(
    context: ChunkContext,
    chunk: Chunk,
    chosen: Indices | None = None,
    weight: Floats | None = None,
) -> RowStore:
    """Return rows of a chunk as a sketch holds them: all, of weight 1, or those chosen.

    Where no column holds the task, it is the file for now.
    """
    table = chunk.table
    if chosen is None:
        chosen = np.arange(len(chunk.rows))
    else:  # in an order of their own, even if they are all rows
        table = take(table, chosen)
    n = len(chosen)
    X, y = context.split_target(table)
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
    return context.with_keys(rows)


def own_column(name: str, names: Sequence[str], target: str | None, task: str | None) -> str:
    """Return the name in the input of a column that settings name; "y" is the target."""
    return name if name in names else {"y": target, "task": task}.get(name) or name


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
    enough = min(max(total / PARTITIONS, SMALL_BYTES), LARGE_BYTES)
    count = max(1, round(total / enough))
    parts: dict[int, list[RowGroup]] = {}
    before = 0
    for piece in pieces:
        middle = before + piece.bytes / 2
        parts.setdefault(int(count * middle / max(total, 1)), []).append(piece)
        before += piece.bytes
    return [Partition(number, tuple(part)) for number, part in enumerate(parts.values())]
