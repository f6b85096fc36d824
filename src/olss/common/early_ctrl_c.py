"""Ctrl-C while a command is still starting; imports next to nothing, to be there first."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["STOPPED", "leave_at_ctrl_c"]

STOPPED = "Stopped. The same command starts again."


def leave_at_ctrl_c() -> None:
    """Let Ctrl-C end the process at once while modules are imported, in a line and with 130.

    Before a command has begun there is nothing to save, and an interrupt raised inside an import
    may be swallowed: libraries try imports and go on whatever happens.
    """
    signal.signal(signal.SIGINT, _on_ctrl_c)


def _on_ctrl_c(number: int, frame: FrameType | None) -> None:
    place = frame
    while place is not None:
        if place.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, f"{STOPPED}\n".encode())
            os._exit(130)
        place = place.f_back
    signal.default_int_handler(number, frame)
