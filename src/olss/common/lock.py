"""Locks on files: held by one process, gone with it however it ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

__all__ = ["Holder", "holder", "locked"]

POLL = 0.2  # seconds between two looks at a lock another process holds

if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[Any]) -> None:
        file.seek(1 << 30)  # a byte nobody reads: what is locked cannot be read there
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True)
class Holder:
    """Who holds a lock; as text, words for a message.

    Attributes
    ----------
    pid : int
        Number of the process.
    since : datetime
        When it got the lock, in UTC.
    machine : str
        Where the process runs.
    """

    pid: int
    since: datetime
    machine: str

    def __str__(self) -> str:
        elsewhere = "" if self.machine == socket.gethostname() else f" on {self.machine}"
        return f"process {self.pid}{elsewhere}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


@contextlib.contextmanager
def locked(
    path: Path,
    *,
    wait: bool | float = False,
    waiting: Callable[[str], None] | None = None,
    tidy: bool = False,
) -> Iterator[bool]:
    """Hold a lock inside the block; gives whether it was got.

    While the lock is held the file says by whom; see `holder`.

    Parameters
    ----------
    path : Path
        The lock's own file, made if need be.
    wait : bool or float
        Whether to wait for whoever holds it; a number is the most seconds to wait.
    waiting : callable, optional
        Called once, with words on who holds the lock, before the waiting begins.
    tidy : bool
        Whether the file is taken away in the end. A lock counts only while its file is the one of
        that name, so that no two processes hold locks on two files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        file, got = _opened(path, stack)
        if wait and not got and waiting is not None:
            waiting(str(holder(path) or "another process"))
        end = time.monotonic() + (math.inf if wait is True else wait)
        while not got and time.monotonic() < end:
            time.sleep(POLL)
            file, got = _opened(path, stack)
        if got:
            _sign(file)
        try:
            yield got
        finally:
            if got:
                file.truncate(0)
                if tidy and sys.platform != "win32":
                    path.unlink(missing_ok=True)
        # Closing the file lets go.


def holder(path: Path) -> Holder | None:
    """Return who holds a lock, or None where nobody does or it is not known.

    Ask when the lock was not got: a process that was killed could not take its name away.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromtimestamp(content["since"], UTC)
        return Holder(int(content["pid"]), since, str(content["machine"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _opened(path: Path, stack: contextlib.ExitStack) -> tuple[IO[Any], bool]:
    """Return the lock's file and whether the lock was got; open until the stack is closed."""
    while True:
        stack.close()
        file = stack.enter_context(path.open("a+"))
        got = _got(file)
        if not got or _is_there(path, file):
            return file, got


def _is_there(path: Path, file: IO[Any]) -> bool:
    """Whether an open file is still the one of its name."""
    try:
        return sys.platform == "win32" or path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _got(file: IO[Any]) -> bool:
    try:
        _try(file)
    except OSError:
        return False
    return True


def _sign(file: IO[Any]) -> None:
    """Write who holds the lock into its file; a full disk is no reason not to hold it."""
    content = {"pid": os.getpid(), "since": time.time(), "machine": socket.gethostname()}
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(content))
        file.flush()
