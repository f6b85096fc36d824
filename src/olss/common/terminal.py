"""How commands end: errors as one plain line, exit codes a script can rely on.

0 all went well; 1 something olss knows went wrong (bad file, missing data, full disk); 2 the
command was called wrongly; 130 Ctrl-C.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from olss.common.early_ctrl_c import STOPPED
from olss.errors import OlssError

__all__ = ["Interrupted", "plain_errors", "printable", "say"]

P = ParamSpec("P")
R = TypeVar("R")


UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")  # Unicode's categories of what shows nothing by itself


def printable(text: str) -> str:
    r"""Return a text that a terminal only shows: what would steer it is written out.

    Names of columns, learners and files come from anywhere; an escape code in one of them could
    clear the screen, change its colours or the title of the window.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> printable("two\nlines, Zürich ✓")
    'two\nlines, Zürich ✓'
    """
    return "".join(
        one
        if one in "\n\t" or unicodedata.category(one) not in UNSEEN
        else one.encode("unicode_escape").decode()
        for one in text
    )


def say(text: object, *, err: bool = False) -> None:
    """Print a text for people, whatever is in it."""
    typer.echo(printable(str(text)), err=err)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with words on what was saved and how to go on."""


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
            say(f"Error: {_line(error)}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stop:
            say(str(stop) or STOPPED, err=True)
            raise typer.Exit(130) from stop

    return wrapped


def _line(error: Exception) -> str:
    """Say an error; those of the operating system name their file."""
    if isinstance(error, OlssError) or not isinstance(error, OSError) or not error.strerror:
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}."
