"""The two passes over the pieces of the input, and the tree that unites what they bring.

A pass is a function of a part, a few pieces, and knows nothing of the others: so it runs here, in
threads, or on a cluster. What parts bring is united two by two, in a tree whose shape depends on
the number of parts alone; with one generator for each part and each union, the same seed gives the
same rows wherever they are drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from olss.core.gram import Gram
from olss.files.inputs import Piece
from olss.files.varopt import BY_KEY, ONE_PASS, UNIFORM_SHARE, Draw, Rows, cut, union
from olss.tables.scoring import Scorer, add_batch

__all__ = ["Job", "Part", "Threads", "draw_part", "fold", "gram_part", "parts_of"]

R = TypeVar("R")
Tick = Callable[[int], None]

# An input is cut into about eight parts, so that there is work for some threads, but into more if
# they would be larger than a worker may be made to read twice for another one's death.
PARTS, SMALL_PART_BYTES, PART_BYTES = 8, 32_000_000, 512_000_000
TASK, SOURCE, ROW, WEIGHT = "olss_task", "olss_source", "olss_row", "olss_weight"


@dataclass(frozen=True)
class Job:
    """What every part needs to know.

    Attributes
    ----------
    schema : pyarrow.Schema
    columns : tuple of str
        Columns that are scored.
    task : str or None
        The column that says the task; None for one task a file.
    policy, size, strata
        As for `olss.files.varopt.cut`.
    seed : tuple of int
        Entropy of this run.
    """

    schema: Any
    columns: tuple[str, ...]
    task: str | None
    policy: str
    size: int
    strata: tuple[str, ...]
    seed: tuple[int, ...]

    def rng(self, *place: int) -> np.random.Generator:
        """Return the generator of a part (one number) or of a union (two)."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=place))


@dataclass(frozen=True)
class Part:
    """Pieces that are read one after the other."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Share of the input."""
        return sum(piece.bytes for piece in self.pieces)


def parts_of(pieces: Sequence[Piece]) -> list[Part]:
    """Gather pieces into parts of about the same size, at most about `PART_BYTES`."""
    total = sum(piece.bytes for piece in pieces)
    enough = min(max(total // PARTS, SMALL_PART_BYTES), PART_BYTES)
    parts: list[Part] = []
    waiting: list[Piece] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.bytes
        if size >= enough:
            parts.append(Part(len(parts), tuple(waiting)))
            waiting, size = [], 0
    if waiting:
        parts.append(Part(len(parts), tuple(waiting)))
    return parts


def gram_part(job: Job, plan: Any, part: Part, tick: Tick | None = None) -> Gram:
    """First pass: the Gram matrix of a part."""
    gram = Gram()
    for piece in part.pieces:
        for start, batch in ticking(piece, piece.read(job.schema, job.columns), tick):
            add_batch(gram, plan, batch, piece.place, start)
    return gram


def draw_part(job: Job, scorer: Scorer | None, part: Part, tick: Tick | None = None) -> Rows | None:
    """Second pass, or the only one: score the rows of a part and draw from them."""
    rng = job.rng(part.number)
    draw = Draw(job.policy, job.size, job.strata, rng)
    for piece in part.pieces:
        for start, batch in ticking(piece, piece.read(job.schema), tick):
            place = np.arange(start, start + batch.num_rows)
            order = (piece.number << 40) + place
            leverage = None if scorer is None else scorer(batch, piece.place, start)
            score = scores(job.policy, leverage, scorer, order, rng)
            rows, weight = draw.offer(score)
            if len(rows):
                chosen = batch if len(rows) == batch.num_rows else batch.take(rows)
                table = with_origin(chosen, job.task, piece.source.address, place[rows])
                draw.hold(Rows(table, weight, score[rows], order[rows], 0))
    return draw.finish()


def scores(policy: str, leverage: Any, scorer: Scorer | None, order: Any, rng: Any) -> Any:
    """Return what rows are drawn by: a share of the probability, or a key."""
    if policy == "recent":
        return -order.astype(np.float64)
    if policy in ONE_PASS or scorer is None:
        return np.ones(len(order))
    if policy in BY_KEY:
        with np.errstate(divide="ignore"):
            return np.log(rng.standard_exponential(len(order))) - np.log(leverage)
    share = (1 - UNIFORM_SHARE) / scorer.dimension
    return share * leverage + UNIFORM_SHARE / scorer.rows


def with_origin(batch: Any, task: str | None, address: str, place: Any) -> Any:
    """Return rows as a table with columns that say their task, file and row."""
    import pyarrow as pa

    source = pa.array(np.full(len(place), 0, dtype=np.int32)) if len(place) else None
    name = pa.DictionaryArray.from_arrays(source, pa.array([address])).cast(pa.string())
    own = name if task is None else batch.column(task)
    table = pa.Table.from_batches([batch])
    table = table.append_column(TASK, own).append_column(SOURCE, name)
    return table.append_column(ROW, pa.array(place))


def merge_grams(a: Gram, b: Gram) -> Gram:
    """Return the sum; neither is changed, for a cluster may hold on to them."""
    return Gram().merge(a).merge(b)


def merge_rows(job: Job, place: tuple[int, int], a: Rows | None, b: Rows | None) -> Rows | None:
    """Draw from what was drawn of two parts."""
    if a is None or b is None:
        return a or b
    return cut(union([a, b]), job.policy, job.size, job.strata, job.rng(*place))


def fold(values: Iterable[R], unite: Callable[[tuple[int, int], R, R], R]) -> R:
    """Unite values two by two as they come, holding no more than log2 of them.

    `unite` gets the numbers of the first value and of the one after the last that go into a union.
    """
    waiting: list[tuple[int, int, R]] = []

    def join() -> None:
        (low, _, a), (_, high, b) = waiting[-2:]
        waiting[-2:] = [(low, high, unite((low, high), a, b))]

    for number, value in enumerate(values):
        waiting.append((number, number + 1, value))
        while len(waiting) > 1 and _span(waiting[-2]) == _span(waiting[-1]):
            join()
    while len(waiting) > 1:
        join()
    return waiting[0][2]


def _span(entry: tuple[int, int, Any]) -> int:
    return entry[1] - entry[0]


class Threads:
    """Runs the passes here, a few parts at a time.

    Parameters
    ----------
    threads : int
    tick : function of bytes done, called from all threads
    """

    def __init__(self, threads: int, tick: Tick) -> None:
        self._threads = threads
        self._tell = tick
        self._lock = Lock()
        self._stopped = False

    def gram(self, job: Job, plan: Any, parts: Sequence[Part]) -> Gram:
        """Return the Gram matrix of all parts."""
        grams = self._map(lambda part: gram_part(job, plan, part, self._tick), parts)
        return fold(grams, lambda _, a, b: merge_grams(a, b))

    def rows(self, job: Job, scorer: Scorer | None, parts: Sequence[Part]) -> Rows | None:
        """Return the rows drawn from all parts."""
        drawn = self._map(lambda part: draw_part(job, scorer, part, self._tick), parts)
        return fold(drawn, lambda place, a, b: merge_rows(job, place, a, b))

    def _map(self, function: Callable[[Part], R], parts: Sequence[Part]) -> Iterator[R]:
        """Yield function(part) in order, holding few results."""
        with one_blas_thread(), ThreadPoolExecutor(self._threads) as pool:
            ahead: deque[Future[R]] = deque()
            try:
                for part in parts:
                    ahead.append(pool.submit(function, part))
                    if len(ahead) > self._threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            except BaseException:
                self._stopped = True  # or the pool would wait for its parts to be read to the end
                raise
            finally:
                for future in ahead:
                    future.cancel()

    def _tick(self, size: int) -> None:
        if self._stopped:
            raise InterruptedError("another part failed, or the run was stopped")
        with self._lock:
            self._tell(size)


def one_blas_thread() -> Any:
    """Return a context in which matrix products use one core each: the threads share the cores."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")


def ticking(piece: Piece, blocks: Iterator[Any], tick: Tick | None) -> Iterator[Any]:
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
