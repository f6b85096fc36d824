"""Locks on files: held by one process, gone with it however it ends."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["locked"]

POLL = 0.2  # seconds between two looks at a lock another process holds

if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[Any]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock inside the block; gives whether it was got.

    The file stays: deleting it would let two processes hold locks on two files of one name.

    Parameters
    ----------
    path : Path
        The lock's own file, made if need be.
    wait : bool
        Whether to wait for whoever holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        got = _got(file)
        while wait and not got:
            time.sleep(POLL)
            got = _got(file)
        # Closing the file lets go.
        yield got


def _got(file: IO[Any]) -> bool:
    try:
        _try(file)
    except OSError:
        return False
    return True
