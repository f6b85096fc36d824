"""Atomic writing of files, locks on files, and what damaged array files raise."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import stat
import sys
import time
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO

from olss.errors import InputError

__all__ = [
    "ARRAY_FILE_ERRORS",
    "LockHolder",
    "file_lock",
    "is_file",
    "lock_holder",
    "open_atomic",
    "resolve_output",
    "write_atomic",
]

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing bytes; moved into its place in one step at the end.

    After an error `path` is as it was. A symbolic link stays, and what it points to is replaced.
    A file that was there gives its mode to the new one, and its owner where the system lets it.
    A process killed while writing leaves a hidden file that ends in ``.part``.

    Raises
    ------
    InputError
        If `path` is something else than a file: a folder, a device, a pipe. It is left alone.
    OSError
        If it cannot be written; the error names `path`.
    """
    place, before = _found(path)
    partial = place.with_name(f".{place.name[:40]}.{uuid.uuid4().hex}.part")
    try:
        with _created(partial, before, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(place.parent)


def resolve_output(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` replaces, links followed, or raise `InputError`.

    For what works long before it writes, to be refused at once.

    Examples
    --------
    >>> resolve_output("/dev/null")
    Traceback (most recent call last):
    olss.errors.InputError: /dev/null is a device; give the path of a file.
    """
    return _found(path)[0]


def _found(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the path with links followed, and the state of the file there if there is one."""
    try:
        place = Path(os.path.realpath(path))
        state = place.stat()
    except ValueError as error:
        raise InputError(f"{path!r} is no path of a file ({error}).") from error
    except FileNotFoundError:
        return place, None
    except NotADirectoryError as error:
        raise InputError(f"{path} is inside something that is not a folder.") from error
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "not a file")
        raise InputError(f"{path} is {kind}; give the path of a file.")
    return place, state


def _created(
    partial: Path, before: os.stat_result | None, path: str | os.PathLike[str]
) -> BinaryIO:
    """Open a new file with the mode and owner of the one it is to replace."""
    # Nobody may read along what was not for everybody to read.
    mode = 0o666 if before is None else 0o600
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        number = os.open(partial, flags, mode)
    except OSError as error:
        told = error.strerror
        if isinstance(error, FileNotFoundError):
            told = f"there is no folder {partial.parent}; make it first"
        raise type(error)(error.errno, told, str(path)) from error
    if before is not None and hasattr(os, "fchown"):
        with suppress(PermissionError):  # only root gives files away
            os.fchown(number, before.st_uid, before.st_gid)
        os.fchmod(number, stat.S_IMODE(before.st_mode))
    return os.fdopen(number, "r+b")


def _sync_folder(folder: Path) -> None:
    """Make the new name outlast a power cut, where the system can do that."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def is_file(path: Path) -> bool:
    """Whether there is a file; there is none of a name no file can have."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with open_atomic(path) as file:
        file.write(content)


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
class LockHolder:
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
def file_lock(
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
            waiting(str(lock_holder(path) or "another process"))
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


def lock_holder(path: Path) -> LockHolder | None:
    """Return who holds a lock, or None where nobody does or it is not known.

    Ask when the lock was not got: a process that was killed could not take its name away.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromtimestamp(content["since"], UTC)
        return LockHolder(int(content["pid"]), since, str(content["machine"]))
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


ARRAY_FILE_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,  # a way of compression that does not exist
    RuntimeError,  # a password that was never set
    SyntaxError,  # a header that is no dictionary
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
