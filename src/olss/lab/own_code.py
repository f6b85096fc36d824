"""Parts of one's own in experiment files: ``module:Name``, found beside the file.

What is in the module decides the record like any setting, so its sum is among them: a run begun
with other code there is never gone on with, and never mixed with runs of this one. What the module
imports is not looked at.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from olss.errors import InputError

__all__ = ["allow_imports_from", "code_sums"]

OWN = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


def allow_imports_from(folder: Path) -> None:
    """Let modules in a folder and in the current one be imported, after all that are installed."""
    for place in (folder.resolve(), Path.cwd()):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def code_sums(settings: Mapping[str, Any], source: str) -> dict[str, str]:
    """Return the SHA-256 of the file of each module that settings name as ``module:Name``.

    Raises
    ------
    InputError
        If a module is not to be found. Whether it has what is asked for is seen when the
        learner is made, before anything runs.

    Examples
    --------
    >>> list(code_sums({"loss": "fractions:Fraction", "policy": "paper"}, "the experiment"))
    ['fractions']
    """
    return {module: _sum(key, module, source) for key, module in _named(settings)}


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and (found := OWN.fullmatch(one)):
                yield key, found[1]


def _sum(key: str, module: str, source: str) -> str:
    try:
        found = find_spec(module)
    except (ImportError, ValueError):  # a package above it is missing
        found = None
    if found is None or not found.origin or not Path(found.origin).is_file():
        raise InputError(
            f"{key} of {source} is of the module {module!r}, which is not to be found: put "
            f"{module.partition('.')[0]}.py beside the experiment file or into the current folder."
        )
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
