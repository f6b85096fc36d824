"""The work on parts, on a Dask cluster: only spectra and chosen rows travel.

Each part of the input is read by one worker, and what parts bring is united in a tree on the
workers; this process gets one spectrum and one set of rows. Everything a worker makes can be made
again from the description of its task, so what a worker that dies has held is lost to no one: Dask
has it made anew elsewhere, with the same generator and so the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any
from warnings import warn

from olss.errors import OlssWarning
from olss.files.parts import Part, fold
from olss.files.work import Drawn, Measured, Work, draw_part, measure_part, unite_drawn
from olss.memory.numbers import SeenScorer
from olss.util.dask import ClusterWatch, connect, import_distributed

__all__ = ["DaskEngine", "on_cluster"]


@contextmanager
def on_cluster(
    scheduler: str | None, workers: int | None, tick: Callable[[int], None]
) -> Iterator[DaskEngine]:
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
    """Does the work on the workers of a Dask client."""

    def __init__(self, client: Any, tick: Callable[[int], None]) -> None:
        self._client = client
        self._watch = ClusterWatch(client, partial(warn, category=OlssWarning, stacklevel=2))
        self._tell = tick
        self._lock = Lock()
        # Workers load what they need while this process looks at the input.
        self._loading = [
            client.submit(_load, workers=[worker], pure=False) for worker in client.nthreads()
        ]

    def measure(self, work: Work, parts: Sequence[Part]) -> Measured:
        """Return what is known of the rows of all parts."""
        shared = self._share(work)
        leaves = (self._submit(part, measure_part, shared, part) for part in parts)
        root = fold(leaves, lambda _, a, b: self._client.submit(_then, shared, a, b, pure=False))
        measured: Measured = self._watch.result(root)
        return measured

    def draw(self, work: Work, scorer: SeenScorer | None, parts: Sequence[Part]) -> Drawn:
        """Return rows drawn from all parts."""
        shared = self._share((work, scorer))
        leaves = (self._submit(part, _draw_part, shared, part) for part in parts)
        root = fold(
            leaves,
            lambda place, a, b: self._client.submit(_unite, shared, place, a, b, pure=False),
        )
        drawn: Drawn = self._watch.result(root)
        return drawn

    def _share(self, value: Any) -> Any:
        """Send a value once. As the result of a task, it is made again if its holders die."""
        return self._client.submit(_itself, value, pure=False)

    def _submit(self, part: Part, function: Any, *args: Any) -> Any:
        future = self._client.submit(function, *args, pure=False)
        future.add_done_callback(lambda done: self._tick(done, part.bytes))
        return future

    def _tick(self, done: Any, size: int) -> None:
        if done.status == "finished":
            with self._lock:
                self._tell(size)


def _load() -> None:
    """Load what parts are read with; to be asked for it, a worker loads this module."""
    import_module("pyarrow.parquet")


def _itself(value: Any) -> Any:
    return value


def _then(work: Work, a: Measured, b: Measured) -> Measured:
    return a.then(b, work.settings)


def _draw_part(shared: tuple[Work, SeenScorer | None], part: Part) -> Drawn:
    return draw_part(*shared, part)


def _unite(
    shared: tuple[Work, SeenScorer | None], place: tuple[int, int], a: Drawn, b: Drawn
) -> Drawn:
    return unite_drawn(*shared, place, a, b)
