"""One run of a learner through a stream of tasks, measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from olss.learn.record import Record

__all__ = ["run"]


def run(
    stream: Any,
    learner: Any,
    seed: int = 0,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_task: Callable[[int, Record], None] | None = None,
    device: str = "cpu",
    protocol: str = "",
) -> Record:
    """Take a learner through a stream and measure it on every task after every task.

    Parameters
    ----------
    stream : Stream
        Tasks in the order they are learned.
    learner : Learner
        From `recipe`. It starts afresh: whatever it learned before is dropped.
    seed : int
        Of the net's first weights, the order of rows and the memory, each with a generator
        of its own. The stream has its own seed.
    checkpoint : path, optional
        A directory. The state is saved there after every task, and a run that was killed
        goes on from there and ends with the same record, byte for byte.
    on_task : callable, optional
        Called as ``on_task(i, record)`` after task i, with the record so far.
    device : str
        "cpu" or, where there is one, "cuda".
    protocol : str
        Words for the record on what was measured.

    Returns
    -------
    Record
    """
    raise NotImplementedError
