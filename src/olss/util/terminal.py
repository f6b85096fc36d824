"""How commands end: errors as one plain line, exit codes a script can rely on.

0 all went well; 1 something olss knows went wrong (bad file, missing data, full disk); 2 the
command was called wrongly; 130 Ctrl-C.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from olss.errors import OlssError
from olss.util.text import escape_controls

__all__ = [
    "STOPPED",
    "Interrupted",
    "echo",
    "exit_on_early_ctrl_c",
    "log_to_stderr",
    "report_errors",
]

P = ParamSpec("P")
R = TypeVar("R")


def echo(text: object, *, err: bool = False) -> None:
    """Print a text for people, whatever is in it."""
    import typer

    typer.echo(escape_controls(str(text)), err=err)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with words on what was saved and how to go on."""


def report_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Turn what olss raises into one line on stderr and exit code 1; Ctrl-C into 130.

    Errors nobody expected keep their traceback: they are bugs, and it belongs in the report.

    Examples
    --------
    >>> import typer
    >>> from olss.errors import InputError
    >>> @report_errors
    ... def command() -> None:
    ...     raise InputError("size must be a positive integer, found 0.")
    >>> try:
    ...     command()
    ... except typer.Exit as end:
    ...     print(end.exit_code)
    1
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        import typer

        try:
            return function(*args, **kwargs)
        except (OlssError, OSError) as error:
            echo(f"Error: {_line(error)}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stop:
            echo(str(stop) or STOPPED, err=True)
            raise typer.Exit(130) from stop

    return wrapped


def _line(error: Exception) -> str:
    """Say an error; those of the operating system name their file."""
    if isinstance(error, OlssError) or not isinstance(error, OSError) or not error.strerror:
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}."


STOPPED = "Stopped. The same command starts again."


def exit_on_early_ctrl_c() -> None:
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


def log_to_stderr() -> None:
    """Write what is logged to stderr, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("olss")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
