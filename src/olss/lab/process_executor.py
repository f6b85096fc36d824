"""Runs in processes of this machine.

A process of its own for each run under way: one that dies takes nothing else with it. The
number of processes changes no result, since the threads of a run are among its settings.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from olss.errors import DivergedError, InputError, OlssError
from olss.lab.executor import Event
from olss.lab.experiment import RunSpec
from olss.lab.single_run import check, get_ready, run_in_folder
from olss.streams.record import Record
from olss.util.files import write_whole

__all__ = ["ProcessExecutor"]

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
        write_whole(folder / "error.txt", traceback.format_exc().encode())
    except OSError:
        return told
    return f"{told} (see {folder / 'error.txt'})"


def _end_with_parent() -> None:
    """End this process when the one that started it does, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
