"""The passes on a Dask cluster: only Gram matrices and chosen rows travel.

Each part of the input is read by one worker, and what parts bring is united in a tree on the
workers; this process gets one (d, d) matrix and one set of rows. Everything a worker makes can be
made again from the description of its task, so what a worker that dies has held is lost to no one:
Dask has it made anew elsewhere, with the same generator and so the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any
from warnings import warn

from olss.common.dask_client import ClusterWatch, connect, load_distributed
from olss.core.gram import Gram
from olss.errors import OlssWarning
from olss.files.parts import Job, Part, draw_part, fold, gram_part, merge_grams, merge_rows
from olss.files.varopt import Rows
from olss.tables.scoring import Scorer

__all__ = ["Cluster", "on_cluster"]


@contextmanager
def on_cluster(
    scheduler: str | None, workers: int | None, tick: Callable[[int], None]
) -> Iterator[Cluster]:
    """Connect to a scheduler, or start workers on this machine for as long as the context lasts."""
    distributed = load_distributed("working on a cluster")
    if scheduler is None:
        # One core each; memory is constant by construction, so Dask need not watch it.
        options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
        with (
            distributed.LocalCluster(n_workers=workers, **options) as local,
            distributed.Client(local, set_as_default=False) as client,
        ):
            yield Cluster(client, tick)
        return
    with connect(scheduler) as client:
        yield Cluster(client, tick)


class Cluster:
    """Runs the passes on the workers of a Dask client."""

    def __init__(self, client: Any, tick: Callable[[int], None]) -> None:
        self._client = client
        self._watch = ClusterWatch(client, partial(warn, category=OlssWarning, stacklevel=2))
        self._tell = tick
        self._lock = Lock()

    def gram(self, job: Job, plan: Any, parts: Sequence[Part]) -> Gram:
        """Return the Gram matrix of all parts."""
        shared = self._share((job, plan))
        leaves = (self._submit(part, _gram_part, shared, part) for part in parts)
        root = fold(leaves, lambda _, a, b: self._client.submit(merge_grams, a, b, pure=False))
        gram: Gram = self._watch.result(root)
        return gram

    def rows(self, job: Job, scorer: Scorer | None, parts: Sequence[Part]) -> Rows | None:
        """Return the rows drawn from all parts."""
        shared = self._share((job, scorer))
        leaves = (self._submit(part, _draw_part, shared, part) for part in parts)
        root = fold(
            leaves,
            lambda place, a, b: self._client.submit(_merge_rows, shared, place, a, b, pure=False),
        )
        rows: Rows | None = self._watch.result(root)
        return rows

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


def _itself(value: Any) -> Any:
    return value


def _gram_part(shared: tuple[Job, Any], part: Part) -> Gram:
    return gram_part(*shared, part)


def _draw_part(shared: tuple[Job, Scorer | None], part: Part) -> Rows | None:
    return draw_part(*shared, part)


def _merge_rows(
    shared: tuple[Job, Any], place: tuple[int, int], a: Rows | None, b: Rows | None
) -> Rows | None:
    return merge_rows(shared[0], place, a, b)
