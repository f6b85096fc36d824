"""JSON files with the sum of what they say: a flipped bit is an error, never another result."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from olss.common.whole_file import whole_file
from olss.errors import FormatError

__all__ = ["read_json", "sealed", "unsealed", "write_json"]

SUM = "sha256"


def write_json(path: Path, content: Any) -> None:
    """Write JSON with sorted keys, so equal content is equal bytes; whole or not at all."""
    with whole_file(path) as file:
        file.write(_text(content).encode())


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with the sum of all of it beside it.

    Examples
    --------
    >>> sealed({"a": 1})["sha256"][:8]
    'b606a40d'
    """
    return {**content, SUM: _sum(content)}


def read_json(path: Path) -> Any:
    """Return what a file says, or raise a `FormatError` if it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged ({error}); delete it and run again.") from error


def unsealed(content: dict[str, Any], source: object, *, since: int = 0) -> dict[str, Any]:
    """Return sealed content without its sum, or raise a `FormatError` if the sum is another.

    Content of a "version" before `since` may have none.
    """
    content = dict(content)
    found, version = content.pop(SUM, None), content.get("version")
    if found is None and type(version) is int and version < since:
        return content
    try:
        right = found == _sum(content)
    except ValueError:  # NaN, which no file of ours has
        right = False
    if not right:
        raise FormatError(f"{source} is damaged or was edited: its sum is wrong. Run it again.")
    return content


def _sum(content: Any) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"
