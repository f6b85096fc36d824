"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from olss.errors import InputError

__all__ = ["is_file", "place_of", "whole_file", "write_whole"]

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
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


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` replaces, links followed, or raise `InputError`.

    For what works long before it writes, to be refused at once.

    Examples
    --------
    >>> place_of("/dev/null")
    Traceback (most recent call last):
    olss.errors.InputError: /dev/null is a device; give the path of a file.
    """
    return _found(path)[0]


def _found(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the path with links followed, and the state of the file there if there is one."""
    place = Path(os.path.realpath(path))
    try:
        state = place.stat()
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as file:
        file.write(content)
