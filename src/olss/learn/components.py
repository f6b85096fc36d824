"""Parts by name: ours, and anybody's own as ``module:Name``."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from olss.errors import InputError
from olss.util.checks import suggest

__all__ = ["imported", "part_named", "part_of_ones_own"]


def part_named(setting: str, value: Any, known: Mapping[str, Callable[..., Any]]) -> Any:
    """Return what makes a part: the one of ours with that name, or one's own.

    Parameters
    ----------
    setting : str
        Which setting it is, for the error.
    value : str or callable
        A name of ours, ``"module:Name"``, or the class or function itself.
    known : mapping
        Ours, by name.

    Examples
    --------
    >>> part_named("loss", "fractions:Fraction", {"huber": float})
    <class 'fractions.Fraction'>
    >>> part_named("loss", "hubre", {"huber": float})
    Traceback (most recent call last):
    olss.errors.InputError: loss: there is no 'hubre'. Did you mean 'huber'? Yours: 'module:Name'.
    """
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, str) and ":" in value:
        return imported(setting, value)
    if callable(value):
        return value
    raise InputError(
        f"{setting}: there is no {value!r}. {suggest(str(value), known)} Yours: 'module:Name'."
    )


def imported(setting: str, value: str) -> Any:
    """Return what ``module:Name`` names; modules beside the current directory's files count too."""
    module, _, name = value.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(f"{setting}={value!r}: the module cannot be imported: {error}.") from error
    except AttributeError as error:
        raise InputError(f"{setting}={value!r}: the module {module} has no {name!r}.") from error


def part_of_ones_own(part: Any) -> dict[str, str]:
    """Say in JSON which part it is: its name, and the sum of its code where that can be had.

    What a function has from around it counts as far as it is numbers and text.
    """
    named = part if hasattr(part, "__qualname__") else type(part)
    told = {"function": str(named.__qualname__)}
    cells = getattr(part, "__closure__", None) or ()
    around = [cell.cell_contents for cell in cells] + list(
        getattr(part, "__defaults__", None) or ()
    )
    plain = [value for value in around if isinstance(value, bool | int | float | str | None)]
    try:
        code = inspect.getsource(named) + repr(plain)
    except (OSError, TypeError):  # of compiled code, or typed at a prompt
        return told
    return told | {"code": hashlib.sha256(code.encode()).hexdigest()[:12]}
