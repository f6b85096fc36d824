"""Runs on a Dask cluster.

Workers need olss and the data, but no folder in common with this machine: a run comes back
whole and is written here. Dask gives the run of a worker that died to another.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from olss.errors import InputError, OlssError
from olss.lab import run_directory
from olss.lab.executor import Event
from olss.lab.experiment import RunSpec
from olss.lab.single_run import check, run_once
from olss.streams.record import Record
from olss.util.dask import LOOK_SECONDS, ClusterLostError, ClusterWatch, connect
from olss.util.files import locked

__all__ = ["DaskExecutor"]

TOPIC = "olss-run"
_one_at_a_time = threading.Lock()


class DaskExecutor:
    """An `Executor` on the cluster of a Dask scheduler.

    Parameters
    ----------
    root : Path
        Folder of results, on this machine.
    address : str
        Of the scheduler, such as ``tcp://10.0.0.5:8786``.
    """

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self._client = connect(address, "--scheduler")
        self._notes: list[str] = []
        self._watch = ClusterWatch(self._client, self._notes.append)
        self._heard: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._client.subscribe_topic(TOPIC, self._on_task)
        self._under_way: dict[str, tuple[RunSpec, Any, contextlib.ExitStack]] = {}
        self._put_off: list[RunSpec] = []
        self._numbers = itertools.count()

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""
        try:
            there = self._client.submit(_check_there, list(specs), pure=False)
            return int(self._watch.result(there))
        except RuntimeError as error:
            raise InputError(str(error)) from error

    def submit(self, spec: RunSpec) -> None:
        """Have a run done."""
        self._send(spec, patient=False)

    def events(self) -> Iterator[Event]:
        """Return what happens until all is done."""
        while self._under_way or self._put_off:
            if not self._under_way:
                spec = self._put_off.pop(0)
                yield Event("waiting", spec)
                self._send(spec, patient=True)
            try:
                kind, key, content = self._heard.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                self._watch.look()
                yield from self._noted()
                continue
            if key not in self._under_way:
                continue  # of another experiment on the same cluster, or late
            if kind == "task":
                spec = self._under_way[key][0]
                yield Event("task", spec, Record.from_json(content, None))
            else:
                yield self._ended(key, content)

    def close(self) -> None:
        """Cancel what has not begun; what a worker is at, it finishes in vain."""
        for _, future, lock in self._under_way.values():
            if future is not None and self._client.status == "running":
                future.cancel()
            lock.close()
        self._under_way.clear()
        self._client.close()

    def _noted(self) -> Iterator[Event]:
        while self._notes:
            spec = next(iter(self._under_way.values()))[0]
            yield Event("note", spec, text=self._notes.pop(0))

    def _send(self, spec: RunSpec, *, patient: bool) -> None:
        lock, folder = contextlib.ExitStack(), self.root / spec.folder
        if not lock.enter_context(locked(folder / ".lock", wait=patient)):
            lock.close()
            self._put_off.append(spec)
            return
        key = f"olss-{spec.label}-{spec.seed}-{next(self._numbers)}-{id(self)}"
        done = run_directory.finished_record(folder, spec)
        if done is not None:  # by the process waited for
            self._under_way[key] = (spec, None, lock)
            self._heard.put(("done", key, done))
            return
        run_directory.set_aside_damage(folder)
        run_directory.begin(folder, spec)
        future: Any = self._client.submit(_run_there, spec, key, key=key, pure=False)
        self._under_way[key] = (spec, future, lock)
        future.add_done_callback(lambda future: self._heard.put(("done", key, future)))

    def _on_task(self, event: tuple[Any, Any]) -> None:
        _, message = event
        self._heard.put(("task", message["key"], message["record"]))

    def _ended(self, key: str, ending: Any) -> Event:
        spec, _, lock = self._under_way.pop(key)
        with lock:
            if isinstance(ending, Record):
                return Event("done", spec, ending)
            try:
                record, memory = self._watch.result(ending)
                run_directory.finish(self.root / spec.folder, record, memory)
            except ClusterLostError:
                raise
            except Exception as error:  # whatever a worker raises
                return Event("failed", spec, text=str(error) or type(error).__name__)
        return Event("done", spec, record)


def _check_there(specs: Sequence[RunSpec]) -> int:
    """Check on a worker, which has the data."""
    try:
        return check(specs)
    except OlssError as error:
        # Errors with constructors of their own do not travel.
        raise RuntimeError(str(error)) from None


def _run_there(spec: RunSpec, key: str) -> Any:
    """Do a run on a worker, telling the client of each task."""
    worker = import_module("distributed").get_worker()

    def on_task(_: int, record: Record) -> None:
        worker.log_event(TOPIC, {"key": key, "record": record.content()})

    # The number of threads of torch is one for the whole process.
    with _one_at_a_time:
        try:
            return run_once(spec, on_task=on_task)
        except OlssError as error:
            raise RuntimeError(str(error)) from None  # as above
