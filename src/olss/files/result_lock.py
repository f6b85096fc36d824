"""One process at a time writes a sketch file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from olss.errors import OlssError
from olss.util.files import file_lock, lock_holder, resolve_output

__all__ = ["written_alone"]


@contextmanager
def written_alone(path: Path) -> Iterator[None]:
    """Hold the lock on a sketch file inside the block, or raise `OlssError` that says who does."""
    place = resolve_output(path)  # a link and its file are one
    lock = place.with_name(f".{place.name}.lock")
    with file_lock(lock, remove=True) as got:
        if not got:
            raise OlssError(
                f"{path} is being written by {lock_holder(lock)}. Wait for it and try again."
            )
        yield
