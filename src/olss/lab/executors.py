"""What is told while runs are under way, wherever they run."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import multiprocessing
import os
import queue
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from olss.errors import DivergedError, InputError, OlssError
from olss.lab.experiment import RunSpec
from olss.lab.single_run import (
    begin,
    check,
    finish,
    finished_record,
    get_ready,
    run_in_folder,
    run_once,
    set_aside_damage,
)
from olss.streams.record import Record
from olss.util.dask import CHECK_SECONDS, ClusterLostError, ClusterWatch, connect
from olss.util.files import file_lock, write_atomic

__all__ = ["DaskExecutor", "Event", "Executor", "ProcessExecutor"]


Kind = Literal["start", "task", "done", "failed", "stopped", "waiting", "note"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes
    ----------
    kind : str
        "start"; "task": one more task is learned; "done"; "failed", with the reason; "stopped":
        because it was asked to; "waiting": another process is at it; "note": a word about it.
    spec : RunSpec
    record : Record or None
        So far, for "task" and "done".
    text : str
        For "failed" and "note".
    diverged : bool
        Whether a run failed because its loss or its net was no longer finite.
    """

    kind: Kind
    spec: RunSpec
    record: Record | None = None
    text: str = ""
    diverged: bool = False


class Executor(Protocol):
    """Where runs are done: processes of this machine or a cluster."""

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""

    def submit(self, spec: RunSpec) -> None:
        """Have a run done, after those submitted before."""

    def events(self) -> Iterator[Event]:
        """Return what happens until all is done; more may be submitted meanwhile."""

    def close(self) -> None:
        """End at once; what was learned up to the last task is saved."""


# ------------------------------------------------------------------ process executor

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


class _StopAsked(Exception):  # noqa: N818 - no error
    """The run is to end after this task."""


class ProcessExecutor:
    """An `Executor` of local processes.

    Parameters
    ----------
    root : Path
        Folder of results.
    processes : int
        How many runs go on at the same time.
    """

    def __init__(self, root: Path, processes: int = 1) -> None:
        self.root = root
        self.processes = processes
        self._queue: collections.deque[tuple[RunSpec, bool]] = collections.deque()
        self._put_off: list[RunSpec] = []
        self._attempts: collections.Counter[Path] = collections.Counter()
        self._busy: dict[Connection, RunSpec] = {}
        self._processes: dict[Connection, Any] = {}
        self._idle: list[Connection] = []

    def start(self) -> None:
        """Start the processes, which takes them seconds."""
        while len(self._processes) < self.processes:
            self._idle.append(self._new())

    def check(self, specs: Sequence[RunSpec]) -> int:
        """Raise an InputError if they cannot be run as they are; return the number of tasks."""
        self.start()
        connection = self._idle[-1]
        connection.send(("check", list(specs)))
        try:
            tasks, error = connection.recv()
        except EOFError:
            raise InputError("the process that checks the experiment ended.") from None
        if error is not None:
            raise InputError(error)
        return int(tasks)

    def submit(self, spec: RunSpec) -> None:
        """Have a run done, after those submitted before."""
        self._queue.append((spec, False))

    def stop(self, spec: RunSpec) -> None:
        """Let a run end after its current task."""
        for connection, other in self._busy.items():
            if other == spec:
                connection.send(None)

    def events(self) -> Iterator[Event]:
        """Return what happens until all is done."""
        while True:
            if not self._queue and self._put_off:
                # Other processes are at these: wait for them, now that nothing else is left.
                self._queue.extend((spec, True) for spec in self._put_off)
                self._put_off.clear()
            while self._queue and len(self._busy) < self.processes:
                spec, patient = self._queue.popleft()
                self._give(spec, patient)
                yield Event("waiting" if patient else "start", spec)
            if not self._busy:
                return
            for connection in wait(list(self._busy)):
                yield from self._heard(cast(Connection, connection))

    def close(self) -> None:
        """End at once; what was learned up to the last task is saved."""
        for connection, process in self._processes.items():
            process.kill()
            process.join()
            connection.close()
        self._processes.clear()
        self._busy.clear()
        self._idle.clear()

    def _give(self, spec: RunSpec, patient: bool) -> None:
        connection = self._idle.pop() if self._idle else self._new()
        try:
            connection.send(("run", spec, patient))
        except OSError:  # it died while it had nothing to do
            self._drop(connection)
            self._give(spec, patient)
            return
        self._busy[connection] = spec

    def _drop(self, connection: Connection) -> Any:
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        return process

    def _new(self) -> Connection:
        # A fresh interpreter: torch's threads do not survive a fork.
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.root), daemon=True)
        with _deaf_to_ctrl_c():
            process.start()
        log.debug("started process %s for runs", process.pid)
        theirs.close()
        self._processes[ours] = process
        return ours

    def _heard(self, connection: Connection) -> Iterator[Event]:
        spec = self._busy[connection]
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            yield from self._died(connection, spec)
            return
        if kind in ("task", "note"):
            yield _event(kind, spec, content)
            return
        del self._busy[connection]
        self._idle.append(connection)
        if kind == "taken":
            self._put_off.append(spec)
        else:
            yield _event(kind, spec, content)

    def _died(self, connection: Connection, spec: RunSpec) -> Iterator[Event]:
        del self._busy[connection]
        process = self._drop(connection)
        self._attempts[spec.folder] += 1
        how = f"its process ended with code {process.exitcode}"
        if process.exitcode == -9:
            how = "its process was killed, perhaps for want of memory"
        if self._attempts[spec.folder] >= ATTEMPTS:
            yield Event("failed", spec, text=f"{how}, {ATTEMPTS} times.")
            return
        self._queue.appendleft((spec, False))
        yield Event("note", spec, text=f"{how}; it goes on from its last task.")


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, not even while they import; it is ours to answer.

    What is blocked here stays so in them, and comes to this process when the block ends.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _event(kind: Any, spec: RunSpec, content: Any) -> Event:
    if isinstance(content, Record):
        return Event(kind, spec, record=content)
    if kind == "diverged":
        return Event("failed", spec, text=content, diverged=True)
    return Event(kind, spec, text=content or "")


def _work(connection: Connection, root: Path) -> None:
    """Do runs until there are no more: the life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OlssError):
        get_ready()
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if message is None:  # asked to stop what is already done
            continue
        kind, *content = message
        if kind == "check":
            connection.send(_checked(*content))
        else:
            connection.send(_outcome(connection, root, *content))


def _checked(specs: Sequence[RunSpec]) -> tuple[int, str | None]:
    """Return the number of tasks, and what is wrong."""
    try:
        return check(specs), None
    except (OlssError, OSError) as error:
        return 0, str(error)
    except Exception as error:  # of a part of one's own
        return 0, f"{type(error).__name__}: {error}"


def _outcome(
    connection: Connection, root: Path, spec: RunSpec, patient: bool
) -> tuple[str, Record | str | None]:
    """Do one run and say how it ended."""

    def on_task(_: int, record: Record) -> None:
        connection.send(("task", record))
        if connection.poll():
            connection.recv()
            raise _StopAsked

    def say(text: str) -> None:
        connection.send(("note", text))

    folder = root / spec.folder
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            record = run_in_folder(folder, spec, on_task, wait=patient, say=say)
            ending: tuple[str, Record | str | None] = ("done" if record else "taken", record)
        except _StopAsked:
            ending = ("stopped", None)
        except DivergedError as error:
            ending = ("diverged", str(error))
        except (OlssError, OSError) as error:
            ending = ("failed", str(error))
        except Exception as error:
            ending = ("failed", _unexpected(folder, error))
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        say(text)
    return ending


def _unexpected(folder: Path, error: Exception) -> str:
    """Keep the traceback of an error nobody expected, and say where it is."""
    told = f"{type(error).__name__}: {error}"
    try:
        write_atomic(folder / "error.txt", traceback.format_exc().encode())
    except OSError:
        return told
    return f"{told} (see {folder / 'error.txt'})"


def _end_with_parent() -> None:
    """End this process when the one that started it does, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# ------------------------------------------------------------------ dask executor

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
                kind, key, content = self._heard.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                self._watch.check()
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
        if not lock.enter_context(file_lock(folder / ".lock", wait=patient)):
            lock.close()
            self._put_off.append(spec)
            return
        key = f"olss-{spec.label}-{spec.seed}-{next(self._numbers)}-{id(self)}"
        done = finished_record(folder, spec)
        if done is not None:  # by the process waited for
            self._under_way[key] = (spec, None, lock)
            self._heard.put(("done", key, done))
            return
        set_aside_damage(folder)
        begin(folder, spec)
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
                finish(self.root / spec.folder, record, memory)
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
