"""Where partitions are processed: here in threads, or on a Dask cluster.

What partitions yield is merged two by two, in a tree whose shape depends on their number alone.
With one random generator for each partition and each merge, the same seed gives the same rows
wherever they are sampled.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar
from warnings import warn

import numpy as np

from olss.errors import OlssWarning
from olss.files.chunks import ChunkContext, Partition, Tick
from olss.util.dask import ClusterWatch, connect, import_distributed
from olss.util.threads import call_with_one_blas_thread

R = TypeVar("R")
Merge: TypeAlias = Callable[[ChunkContext, tuple[int, ...], R, R], R]

THREADS = 4
FREED_BYTES = 31 << 20


class Engine(Protocol):
    """Processes all partitions."""

    def reduce(
        self,
        work: Callable[..., R],
        merge: Merge[R],
        context: ChunkContext,
        partitions: Sequence[Partition],
    ) -> R:
        """Return what `work` finds in each partition, merged two by two in their order.

        `work` gets the context, a partition, and perhaps a function to report bytes done to;
        `merge` gets the context, and the place of the merge in the tree for its random numbers.
        """


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
    tick : function of bytes done, called from all threads
    """

    def __init__(self, threads: int, tick: Tick) -> None:
        keep_freed_memory()
        self._threads = threads
        self._report = tick
        self._lock = Lock()
        self._stopped = False

    def reduce(
        self,
        work: Callable[..., R],
        merge: Merge[R],
        context: ChunkContext,
        partitions: Sequence[Partition],
    ) -> R:
        """Return what `work` finds in each partition, merged; see `Engine`."""

        def fold_partitions() -> R:
            found = self._map(lambda partition: work(context, partition, self._tick), partitions)
            return fold(found, partial(merge, context))

        if not context.uses_matrices:
            return fold_partitions()  # BLAS need not be loaded
        # The threads share the cores: each uses one.
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

    def reduce(
        self,
        work: Callable[..., R],
        merge: Merge[R],
        context: ChunkContext,
        partitions: Sequence[Partition],
    ) -> R:
        """Return what `work` finds in each partition, merged; see `Engine`."""
        submit = partial(self._client.submit, pure=False)
        shared = submit(_itself, context)  # a task's result is made again if its holders die

        def start(partition: Partition) -> Any:
            future = submit(work, shared, partition)
            future.add_done_callback(lambda done: self._tick(done, partition.bytes))
            return future

        root = fold(map(start, partitions), lambda place, a, b: submit(merge, shared, place, a, b))
        result: R = self._watch.result(root)
        return result

    def _tick(self, done: Any, size: int) -> None:
        if done.status == "finished":
            with self._lock:
                self._report(size)


def _load() -> None:
    """Load what partitions are read with; to run this, a worker loads this module."""
    keep_freed_memory()
    import_module("pyarrow.parquet")


def keep_freed_memory() -> None:
    """Let the memory of freed arrays be used for the next ones, by an idiom of glibc.

    It gives arrays beyond a limit back to the system, which clears the same pages again for each
    chunk of rows. The limit rises, to 32 MB at most, to the size of a block that is freed; pages
    of a block that nobody writes to take no memory.
    """
    np.empty(FREED_BYTES, dtype=np.uint8)


def _itself(value: Any) -> Any:
    return value


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
