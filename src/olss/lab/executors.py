"""Executors: where runs are done, processes of this machine or a Dask cluster, and their events."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import multiprocessing
import os
import queue
import signal
import sysconfig
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal, cast

from olss.errors import DivergedError, InputError, OlssError
from olss.lab.experiment import RunSpec
from olss.lab.single_run import (
    begin,
    check,
    finish,
    finished_record,
    run_in_folder,
    run_once,
    set_aside_damage,
    warm_up,
)
from olss.streams.record import Record
from olss.util.dask import CHECK_SECONDS, ClusterLostError, ClusterWatch, connect
from olss.util.files import file_lock, write_atomic

log = logging.getLogger(__name__)
ATTEMPTS = 3  # for a run whose process died: once may be bad luck
# Read when a process starts. Idle BLAS threads sleep instead of slowing torch's; and glibc keeps
# what a step frees for the next one: given back to the system, it costs thousands of page faults
# a step, 5 to 7% of the time of a ResNet on an idle machine. 32 MB is the most glibc takes.
ENVIRONMENT = {
    "OPENBLAS_THREAD_TIMEOUT": "4",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
TOPIC = "olss-run"  # of messages from workers of a cluster
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    # "start"; "task": one more task is learned; "done"; "failed"; "stopped": on request; "waiting":
    # for another process that runs it; "note": something unusual
    kind: Literal["start", "task", "done", "failed", "stopped", "waiting", "note"]
    spec: RunSpec
    record: Record | None = None  # so far, for "task" and "done"
    text: str = ""  # for "failed" and "note"
    diverged: bool = False  # whether a run failed because its loss or its net was no longer finite


# ------------------------------------------------------------------ processes


class _StopRequested(Exception):  # noqa: N818 - not an error
    """The run is to end after this task."""


class ProcessExecutor:
    """Local processes, one for each run at a time.

    Processes are independent: if one dies, the others continue. Their number does not affect the
    results, since the number of threads is a setting of the run.
    """

    def __init__(self, root: Path, processes: int = 1) -> None:
        self.root = root
        self.processes = processes
        self._queue: collections.deque[tuple[RunSpec, bool]] = collections.deque()
        self._postponed: list[RunSpec] = []  # runs that other processes are doing
        self._attempts: collections.Counter[Path] = collections.Counter()
        self._busy: dict[Connection, RunSpec] = {}
        self._processes: dict[Connection, SpawnProcess] = {}
        self._idle: list[Connection] = []

    def start(self) -> None:
        """Start the processes, which takes them seconds."""
        while len(self._processes) < self.processes:
            self._idle.append(self._start_process())

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""
        self.start()
        connection = self._idle[-1]
        connection.send(list(specs))
        try:
            tasks, error = connection.recv()
        except EOFError:
            raise InputError("the process that checks the experiment ended.") from None
        if error is not None:
            raise InputError(error)
        return int(tasks)

    def submit(self, spec: RunSpec) -> None:
        """Queue a run."""
        self._queue.append((spec, False))

    def stop(self, spec: RunSpec) -> None:
        """Let a run end after its current task."""
        for connection, other in self._busy.items():
            if other == spec:
                connection.send(None)

    def events(self) -> Iterator[Event]:
        """Yield what happens until all runs are done."""
        while True:
            if not self._queue and self._postponed:
                # Nothing else is left to do: wait for the other processes.
                self._queue.extend((spec, True) for spec in self._postponed)
                self._postponed.clear()
            while self._queue and len(self._busy) < self.processes:
                spec, patient = self._queue.popleft()
                self._assign(spec, patient)
                yield Event("waiting" if patient else "start", spec)
            if not self._busy:
                return
            for connection in wait(list(self._busy)):
                yield from self._receive(cast(Connection, connection))

    def close(self) -> None:
        """End at once; everything learned up to the last task is saved."""
        for connection, process in self._processes.items():
            process.kill()
            process.join()
            connection.close()
        for held in (self._processes, self._busy, self._idle):
            held.clear()

    def _assign(self, spec: RunSpec, patient: bool) -> None:
        while True:
            connection = self._idle.pop() if self._idle else self._start_process()
            try:
                connection.send((spec, patient))
            except OSError:  # it died while it was idle
                self._drop(connection)
            else:
                self._busy[connection] = spec
                return

    def _drop(self, connection: Connection) -> SpawnProcess:
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        return process

    def _start_process(self) -> Connection:
        # A fresh interpreter: torch's threads do not survive a fork.
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.root), daemon=True)
        with _block_ctrl_c():
            process.start()
        log.debug("started process %s for runs", process.pid)
        theirs.close()
        self._processes[ours] = process
        return ours

    def _receive(self, connection: Connection) -> Iterator[Event]:
        spec = self._busy[connection]
        try:
            event: Event | None = connection.recv()
        except (EOFError, OSError):
            yield self._retry(connection, spec)
            return
        if event is None or event.kind not in ("task", "note"):
            del self._busy[connection]
            self._idle.append(connection)
        if event is None:
            self._postponed.append(spec)
        else:
            yield event

    def _retry(self, connection: Connection, spec: RunSpec) -> Event:
        """Queue the run of a process that died again, unless it happened too often."""
        del self._busy[connection]
        code = self._drop(connection).exitcode
        self._attempts[spec.folder] += 1
        how = f"its process ended with code {code}"
        if code == -9:
            how = "its process was killed, perhaps because memory ran out"
        if self._attempts[spec.folder] >= ATTEMPTS:
            return Event("failed", spec, text=f"{how}, {ATTEMPTS} times.")
        self._queue.appendleft((spec, False))
        return Event("note", spec, text=f"{how}; it continues after its last task.")


@contextlib.contextmanager
def _block_ctrl_c() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, not even while they import.

    The signal mask is inherited; a signal that arrives meanwhile is delivered at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, root: Path) -> None:
    """Check and run experiments until the connection closes: the main loop of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OlssError):
        warm_up()
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if isinstance(message, list):
            connection.send(_try_check(message))
        elif message is not None:  # None: a request to stop that came too late
            connection.send(_try_run(connection, root, *message))


def _try_check(specs: Sequence[RunSpec]) -> tuple[int, str | None]:
    """Return the number of tasks, and what is wrong."""
    try:
        return check(specs), None
    except (OlssError, OSError) as error:
        return 0, str(error)
    except Exception as error:  # from the user's own code
        return 0, f"{type(error).__name__}: {error}"


def _try_run(connection: Connection, root: Path, spec: RunSpec, patient: bool) -> Event | None:
    """Do one run; return how it ended, None if another process is doing it."""

    def on_task(_: int, record: Record) -> None:
        connection.send(Event("task", spec, record))
        if connection.poll():
            connection.recv()
            raise _StopRequested

    def note(text: str) -> None:
        connection.send(Event("note", spec, text=text))

    folder = root / spec.folder
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            record = run_in_folder(folder, spec, on_task, wait=patient, note=note)
            ending = Event("done", spec, record) if record else None
        except _StopRequested:
            ending = Event("stopped", spec)
        except (OlssError, OSError) as error:
            diverged = isinstance(error, DivergedError)
            ending = Event("failed", spec, text=str(error), diverged=diverged)
        except Exception as error:
            ending = Event("failed", spec, text=_save_traceback(folder, error))
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        note(text)
    return ending


def _save_traceback(folder: Path, error: Exception) -> str:
    """Keep the traceback of an unexpected error; return what it is and where."""
    text = f"{type(error).__name__}: {error}{_find_own_line(error)}"
    try:
        write_atomic(folder / "error.txt", traceback.format_exc().encode())
    except OSError:
        return text
    return f"{text} (see {folder / 'error.txt'})"


def _find_own_line(error: Exception) -> str:
    """Return the last line of the user's code that was reached, if any was."""
    places = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    installed = (str(Path(__file__).parents[1]), *places, "<")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(installed)]
    return f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""


def _end_with_parent() -> None:
    """End this process when the one that started it does, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# ------------------------------------------------------------------ Dask


class DaskExecutor:
    """The cluster of a Dask scheduler; the methods are those of `ProcessExecutor`.

    Workers need olss and the data, but no shared folder: records are sent back and written on
    this machine. If a worker dies, Dask restarts its run on another.
    """

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self._client = connect(address, "--scheduler")
        self._notes: list[str] = []
        self._watch = ClusterWatch(self._client, self._notes.append)
        self._messages: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._client.subscribe_topic(TOPIC, self._on_task)
        self._running: dict[str, tuple[RunSpec, Any, contextlib.ExitStack]] = {}
        self._postponed: list[RunSpec] = []
        self._numbers = itertools.count()

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""
        try:
            there = self._client.submit(_check_on_worker, list(specs), pure=False)
            return int(self._watch.result(there))
        except RuntimeError as error:
            raise InputError(str(error)) from error

    def submit(self, spec: RunSpec) -> None:
        """Queue a run."""
        self._send(spec, patient=False)

    def events(self) -> Iterator[Event]:
        """Yield what happens until all runs are done."""
        while self._running or self._postponed:
            if not self._running:
                spec = self._postponed.pop(0)
                yield Event("waiting", spec)
                self._send(spec, patient=True)
            try:
                kind, key, content = self._messages.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                self._watch.check()
                yield from self._take_notes()
                continue
            if key not in self._running:
                continue  # of another experiment on the same cluster, or late
            if kind == "task":
                spec = self._running[key][0]
                yield Event("task", spec, Record.from_json(content, None))
            else:
                yield self._end(key, content)

    def close(self) -> None:
        """Cancel runs that have not started; results of runs under way are discarded."""
        for _, future, lock in self._running.values():
            if future is not None and self._client.status == "running":
                future.cancel()
            lock.close()
        self._running.clear()
        self._client.close()

    def _take_notes(self) -> Iterator[Event]:
        while self._notes:
            spec = next(iter(self._running.values()))[0]
            yield Event("note", spec, text=self._notes.pop(0))

    def _send(self, spec: RunSpec, *, patient: bool) -> None:
        lock, folder = contextlib.ExitStack(), self.root / spec.folder
        if not lock.enter_context(file_lock(folder / ".lock", wait=patient)):
            lock.close()
            self._postponed.append(spec)
            return
        key = f"olss-{spec.label}-{spec.seed}-{next(self._numbers)}-{id(self)}"
        done = finished_record(folder, spec)
        if done is not None:  # by the process waited for
            self._running[key] = (spec, None, lock)
            self._messages.put(("done", key, done))
            return
        set_aside_damage(folder)
        begin(folder, spec)
        future: Any = self._client.submit(_run_on_worker, spec, key, key=key, pure=False)
        self._running[key] = (spec, future, lock)
        future.add_done_callback(lambda future: self._messages.put(("done", key, future)))

    def _on_task(self, event: tuple[Any, Any]) -> None:
        _, message = event
        self._messages.put(("task", message["key"], message["record"]))

    def _end(self, key: str, ending: Any) -> Event:
        spec, _, lock = self._running.pop(key)
        with lock:
            if isinstance(ending, Record):
                return Event("done", spec, ending)
            try:
                record, memory = self._watch.result(ending)
                finish(self.root / spec.folder, record, memory)
            except ClusterLostError:
                raise
            except Exception as error:  # whatever a worker raises
                return Event("failed", spec, text=str(error) or type(error).__name__)
        return Event("done", spec, record)


Executor = ProcessExecutor | DaskExecutor


def _check_on_worker(specs: Sequence[RunSpec]) -> int:
    """Check on a worker, which has the data."""
    try:
        return check(specs)
    except OlssError as error:
        # Errors with their own constructors cannot be pickled.
        raise RuntimeError(str(error)) from None


def _run_on_worker(spec: RunSpec, key: str) -> Any:
    """Do a run on a worker and tell the client of each task."""
    worker = import_module("distributed").get_worker()

    def on_task(_: int, record: Record) -> None:
        worker.log_event(TOPIC, {"key": key, "record": record.content()})

    # Torch has one number of threads per process.
    with _one_at_a_time:
        try:
            return run_once(spec, on_task=on_task)
        except OlssError as error:
            raise RuntimeError(str(error)) from None  # as above
