"""Write files atomically, lock them, and know what damaged array files raise."""

from __future__ import annotations

import os
import socket
import stat
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from olss.errors import InputError

__all__ = [
    "ARRAY_FILE_ERRORS",
    "file_lock",
    "is_file",
    "lock_holder",
    "open_atomic",
    "resolve_output",
    "write_atomic",
]

# What NumPy and zipfile raise for a damaged .npy or .npz file.
ARRAY_FILE_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,  # an unknown compression method
    RuntimeError,  # a file marked as encrypted
    SyntaxError,  # a header that is not a dictionary
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
POLL_SECONDS = 0.2


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing bytes; it replaces `path` in one step at the end.

    After an error `path` is unchanged. If `path` is a symbolic link, the file it points to is
    replaced. An existing file passes on its mode and, where the system permits it, its owner. A
    process killed while writing leaves a hidden file that ends in ``.part``.

    Raises
    ------
    InputError
        If `path` is a folder, a device or a pipe, which are left alone.
    OSError
        If it cannot be written; the error names `path`.
    """
    target, existing = _resolve(path)
    partial = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.part")
    try:
        with _create(partial, existing, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(target.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Write bytes to a file, completely or not at all."""
    with open_atomic(path) as file:
        file.write(content)


def resolve_output(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` would replace, with symbolic links resolved.

    Call it before long work, so that an unusable path is refused at once.

    Examples
    --------
    >>> resolve_output("/dev/null")
    Traceback (most recent call last):
    olss.errors.InputError: /dev/null is a device; give the path of a file.
    """
    return _resolve(path)[0]


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the path with links resolved, and the state of the file there if there is one."""
    try:
        target = Path(os.path.realpath(path))
        state = target.stat()
    except FileNotFoundError:
        return target, None
    except NotADirectoryError as error:
        raise InputError(f"{path} is inside something that is not a folder.") from error
    except ValueError as error:  # a null character
        raise InputError(f"{os.fspath(path)!r} cannot be the path of a file: {error}.") from error
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "not a file")
        raise InputError(f"{path} is {kind}; give the path of a file.")
    return target, state


def _create(
    partial: Path, existing: os.stat_result | None, path: str | os.PathLike[str]
) -> BinaryIO:
    """Open a new file with the mode and owner of the one it will replace."""
    # A replacement stays private until it has the mode of the file it replaces.
    mode = 0o666 if existing is None else 0o600
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(partial, flags, mode)
    except OSError as error:
        reason = error.strerror
        if isinstance(error, FileNotFoundError):
            reason = f"there is no folder {partial.parent}; create it first"
        raise type(error)(error.errno, reason, str(path)) from error
    if existing is not None and hasattr(os, "fchown"):
        with suppress(PermissionError):  # only root can give files away
            os.fchown(descriptor, existing.st_uid, existing.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
    return os.fdopen(descriptor, "r+b")


def _sync_folder(folder: Path) -> None:
    """Make the new directory entry survive a power cut, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_file(path: Path) -> bool:
    """Return whether there is a file; False for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


@contextmanager
def file_lock(path: Path, *, wait: bool | float = False, remove: bool = False) -> Iterator[bool]:
    """Hold a lock inside the block; yields whether it was acquired.

    The operating system releases the lock when the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The lock's own file, created if necessary. It names its holder; see `lock_holder`.
    wait : bool or float
        Whether to wait for another holder; a number is the longest time to wait, in seconds.
    remove : bool
        Whether to delete the lock's file at the end.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=-1 if wait is True else float(wait), thread_local=False)
    try:
        lock.acquire(poll_interval=POLL_SECONDS)
    except Timeout:
        acquired = False
    else:
        acquired = True
    try:
        if acquired:
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            _write_holder(path, f"process {os.getpid()} on {socket.gethostname()}, since {now}")
        yield acquired
    finally:
        if acquired:
            _write_holder(path, "")
            if remove:
                with suppress(OSError):  # Windows does not delete open files
                    path.unlink(missing_ok=True)
            lock.release()


def lock_holder(path: Path) -> str:
    """Return who holds a lock that was not acquired, for a message: process, machine and time."""
    try:
        text = path.read_text(encoding="utf-8")[:200].strip()
    except (OSError, ValueError):
        text = ""
    return text or "another process"


def _write_holder(path: Path, text: str) -> None:
    with suppress(OSError):  # a full disk is no reason to refuse the lock
        path.write_text(text, encoding="utf-8")
