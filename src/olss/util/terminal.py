"""How commands print and end: errors as one line, exit codes that scripts can rely on.

0: success; 1: an expected error (bad file, missing data, full disk); 2: wrong usage; 130: Ctrl-C.

This module is loaded before everything else, so it imports little: typer where it is needed.
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

STOPPED = "Stopped. The same command starts again."

P = ParamSpec("P")
R = TypeVar("R")


def echo(text: object, *, err: bool = False) -> None:
    """Print a text, control characters escaped."""
    import typer

    typer.echo(escape_controls(str(text)), err=err)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a message on what was saved and how to resume."""


def report_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a command: expected errors end in one line on stderr and exit code 1, Ctrl-C in 130.

    Unexpected errors keep their traceback: they are bugs, and it belongs in the bug report.

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
    def command(*args: P.args, **kwargs: P.kwargs) -> R:
        import typer

        try:
            return function(*args, **kwargs)
        except (OlssError, OSError) as error:
            echo(f"Error: {_line(error)}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stop:
            echo(str(stop) or STOPPED, err=True)
            raise typer.Exit(130) from stop

    return command


def _line(error: Exception) -> str:
    """Return an error as a line; errors of the operating system name their file."""
    if isinstance(error, OlssError) or not isinstance(error, OSError) or not error.strerror:
        return str(error)
    file = f"{error.filename}: " if error.filename else ""
    return f"{file}{error.strerror}."


def exit_on_early_ctrl_c() -> None:
    """Let Ctrl-C end the process at once, with a message and exit code 130, during imports.

    Before a command has begun there is nothing to save, and an exception raised inside an import
    may be swallowed: some libraries try an import and continue whatever it raises.
    """
    signal.signal(signal.SIGINT, _on_ctrl_c)


def _on_ctrl_c(number: int, frame: FrameType | None) -> None:
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, f"{STOPPED}\n".encode())
            os._exit(130)
        caller = caller.f_back
    signal.default_int_handler(number, frame)


def log_to_stderr() -> None:
    """Write what the package logs to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("olss")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
