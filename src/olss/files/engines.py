"""Where parts are worked on: here in threads, or on a Dask cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Protocol, TypeVar

from olss.files.parts import Part, fold
from olss.files.work import (
    Drawn,
    Measured,
    Tick,
    Work,
    draw_part,
    measure_part,
    unite_drawn,
)
from olss.memory.numbers import SeenScorer
from olss.util.threads import call_with_one_blas_thread

__all__ = ["Engine", "Threads", "engine_for"]

R = TypeVar("R")

THREADS = 4


class Engine(Protocol):
    """Does the work on all parts."""

    def measure(self, work: Work, parts: Sequence[Part]) -> Measured:
        """Return what is known of the rows of all parts."""

    def draw(self, work: Work, scorer: SeenScorer | None, parts: Sequence[Part]) -> Drawn:
        """Return rows drawn from all parts."""


def engine_for(
    scheduler: str | None, workers: int | None, tick: Tick
) -> AbstractContextManager[Engine]:
    """Return the engine asked for, for as long as the context lasts."""
    if scheduler is None and workers is None:
        return nullcontext(Threads(min(THREADS, _cores()), tick))
    from olss.files.dask_engine import on_cluster

    return on_cluster(scheduler, workers, tick)


class Threads:
    """Does the work here, a few parts at a time.

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

    def measure(self, work: Work, parts: Sequence[Part]) -> Measured:
        """Return what is known of the rows of all parts."""

        def fold_parts() -> Measured:
            measured = self._map(lambda part: measure_part(work, part, self._tick), parts)
            return fold(measured, lambda _, a, b: a.then(b, work.settings))

        # The threads share the cores: each uses one.
        return call_with_one_blas_thread(fold_parts, most=1)

    def draw(self, work: Work, scorer: SeenScorer | None, parts: Sequence[Part]) -> Drawn:
        """Return rows drawn from all parts."""

        def fold_parts() -> Drawn:
            drawn = self._map(lambda part: draw_part(work, scorer, part, self._tick), parts)
            return fold(drawn, lambda place, a, b: unite_drawn(work, scorer, place, a, b))

        return call_with_one_blas_thread(fold_parts, most=1)

    def _map(self, function: Callable[[Part], R], parts: Sequence[Part]) -> Iterator[R]:
        """Yield function(part) in order, holding few results."""
        with ThreadPoolExecutor(self._threads) as pool:
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


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
