"""How commands end: errors as one plain line, exit codes a script can rely on.

0 all went well; 1 something olss knows went wrong (bad file, missing data, full disk); 2 the
command was called wrongly; 130 Ctrl-C.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from olss.errors import OlssError

__all__ = ["Interrupted", "plain_errors", "printable"]

P = ParamSpec("P")
R = TypeVar("R")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with words on what was saved and how to go on."""


def printable(text: str) -> str:
    """Return text without the characters that command a terminal; names of columns may have them.

    Examples
    --------
    >>> printable("a\\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def plain_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Turn what olss raises into one line on stderr and exit code 1; Ctrl-C into 130.

    Errors nobody expected keep their traceback: they are bugs, and it belongs in the report.

    Examples
    --------
    >>> from olss.errors import InputError
    >>> @plain_errors
    ... def command() -> None:
    ...     raise InputError("size must be a positive whole number, found 0.")
    >>> try:
    ...     command()
    ... except typer.Exit as end:
    ...     print(end.exit_code)
    1
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (OlssError, OSError) as error:
            typer.echo(f"Error: {_line(error)}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stop:
            typer.echo(str(stop) or "Stopped. The same command starts again.", err=True)
            raise typer.Exit(130) from stop

    return wrapped


def _line(error: Exception) -> str:
    """Say an error; those of the operating system name their file."""
    if isinstance(error, OlssError) or not isinstance(error, OSError) or not error.strerror:
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}."
