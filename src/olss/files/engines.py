"""Where partitions are processed: here in threads, or on a Dask cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any, Protocol, TypeVar
from warnings import warn

from olss.errors import OlssWarning
from olss.files.chunks import (
    ChunkContext,
    ChunkSample,
    ChunkStats,
    Partition,
    Tick,
    accumulate_partition,
    fold,
    merge_samples,
    sample_partition,
)
from olss.memory.encoder import SeenScorer
from olss.util.dask import ClusterWatch, connect, import_distributed
from olss.util.threads import call_with_one_blas_thread

R = TypeVar("R")

THREADS = 4


class Engine(Protocol):
    """Processes all partitions."""

    def accumulate(self, context: ChunkContext, partitions: Sequence[Partition]) -> ChunkStats:
        """Return counts, moments and the latest time of all partitions."""

    def sample(
        self, context: ChunkContext, scorer: SeenScorer | None, partitions: Sequence[Partition]
    ) -> ChunkSample:
        """Return rows sampled from all partitions."""


def create_engine(
    scheduler: str | None, workers: int | None, tick: Tick
) -> AbstractContextManager[Engine]:
    """Return the engine asked for, for as long as the context lasts."""
    if scheduler is None and workers is None:
        return nullcontext(ThreadEngine(min(THREADS, _count_cores()), tick))
    return _on_cluster(scheduler, workers, tick)


class ThreadEngine:
    """Processes partitions here, a few at a time.

    Parameters
    ----------
    threads : int
    tick : function of bytes done, called from all threads
    """

    def __init__(self, threads: int, tick: Tick) -> None:
        self._threads = threads
        self._report = tick
        self._lock = Lock()
        self._stopped = False

    def accumulate(self, context: ChunkContext, partitions: Sequence[Partition]) -> ChunkStats:
        """Return counts, moments and the latest time of all partitions."""

        def fold_partitions() -> ChunkStats:
            stats = self._map(lambda p: accumulate_partition(context, p, self._tick), partitions)
            return fold(stats, lambda _, a, b: a.then(b, context.config))

        # The threads share the cores: each uses one.
        return call_with_one_blas_thread(fold_partitions, most=1)

    def sample(
        self, context: ChunkContext, scorer: SeenScorer | None, partitions: Sequence[Partition]
    ) -> ChunkSample:
        """Return rows sampled from all partitions."""

        def fold_partitions() -> ChunkSample:
            samples = self._map(
                lambda p: sample_partition(context, scorer, p, self._tick), partitions
            )
            return fold(samples, lambda place, a, b: merge_samples(context, scorer, place, a, b))

        if scorer is None and not context.needs_moments:
            return fold_partitions()  # no matrices: BLAS need not be loaded
        return call_with_one_blas_thread(fold_partitions, most=1)

    def _map(
        self, function: Callable[[Partition], R], partitions: Sequence[Partition]
    ) -> Iterator[R]:
        """Yield function(partition) in order, holding few results."""
        with ThreadPoolExecutor(self._threads) as pool:
            ahead: deque[Future[R]] = deque()
            try:
                for partition in partitions:
                    ahead.append(pool.submit(function, partition))
                    if len(ahead) > self._threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            except BaseException:
                self._stopped = True  # or the pool would wait until its partitions are read
                raise
            finally:
                for future in ahead:
                    future.cancel()

    def _tick(self, size: int) -> None:
        if self._stopped:
            raise InterruptedError("another partition failed, or the run was stopped")
        with self._lock:
            self._report(size)


@contextmanager
def _on_cluster(scheduler: str | None, workers: int | None, tick: Tick) -> Iterator[DaskEngine]:
    """Connect to a scheduler, or start workers on this machine for as long as the context lasts."""
    distributed = import_distributed("working on a cluster")
    if scheduler is None:
        # One core each; memory is constant by construction, so Dask need not watch it.
        options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
        with (
            distributed.LocalCluster(n_workers=workers, **options) as local,
            distributed.Client(local, set_as_default=False) as client,
        ):
            yield DaskEngine(client, tick)
        return
    with connect(scheduler) as client:
        yield DaskEngine(client, tick)


class DaskEngine:
    """Processes partitions on the workers of a Dask client.

    A worker returns statistics or a sample of each partition; these are merged on the cluster.
    Everything a worker computes can be computed again from the description of its task, with the
    same generator and so the same rows: nothing is lost when a worker dies.
    """

    def __init__(self, client: Any, tick: Tick) -> None:
        self._client = client
        self._watch = ClusterWatch(client, partial(warn, category=OlssWarning, stacklevel=2))
        self._report = tick
        self._lock = Lock()
        # Workers load what they need while this process looks at the input.
        self._loading = [
            client.submit(_load, workers=[worker], pure=False) for worker in client.nthreads()
        ]

    def accumulate(self, context: ChunkContext, partitions: Sequence[Partition]) -> ChunkStats:
        """Return counts, moments and the latest time of all partitions."""
        shared = self._share(context)
        leaves = (self._submit(p, accumulate_partition, shared, p) for p in partitions)
        root = fold(leaves, lambda _, a, b: self._client.submit(_then, shared, a, b, pure=False))
        stats: ChunkStats = self._watch.result(root)
        return stats

    def sample(
        self, context: ChunkContext, scorer: SeenScorer | None, partitions: Sequence[Partition]
    ) -> ChunkSample:
        """Return rows sampled from all partitions."""
        shared = self._share((context, scorer))
        leaves = (self._submit(p, _sample_partition, shared, p) for p in partitions)
        root = fold(
            leaves,
            lambda place, a, b: self._client.submit(_merge, shared, place, a, b, pure=False),
        )
        sample: ChunkSample = self._watch.result(root)
        return sample

    def _share(self, value: Any) -> Any:
        """Send a value once. As the result of a task, it is made again if its holders die."""
        return self._client.submit(_itself, value, pure=False)

    def _submit(self, partition: Partition, function: Any, *args: Any) -> Any:
        future = self._client.submit(function, *args, pure=False)
        future.add_done_callback(lambda done: self._tick(done, partition.bytes))
        return future

    def _tick(self, done: Any, size: int) -> None:
        if done.status == "finished":
            with self._lock:
                self._report(size)


def _load() -> None:
    """Load what partitions are read with; to run this, a worker loads this module."""
    import_module("pyarrow.parquet")


def _itself(value: Any) -> Any:
    return value


def _then(context: ChunkContext, a: ChunkStats, b: ChunkStats) -> ChunkStats:
    return a.then(b, context.config)


def _sample_partition(
    shared: tuple[ChunkContext, SeenScorer | None], partition: Partition
) -> ChunkSample:
    return sample_partition(*shared, partition)


def _merge(
    shared: tuple[ChunkContext, SeenScorer | None],
    place: tuple[int, int],
    a: ChunkSample,
    b: ChunkSample,
) -> ChunkSample:
    return merge_samples(*shared, place, a, b)


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
