"""Tables of an experiment file: their keys and values checked, and changed by the command line."""

from __future__ import annotations

import copy
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from olss.errors import InputError
from olss.util.checks import nearest

__all__ = ["apply_change", "check_keys", "check_values", "seed_list", "table_of", "text_of"]

MOST_SEEDS = 10_000
LARGEST = 2**63 - 1  # of a whole number that JSON, TOML and NumPy all take


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise at the first key that is not known, offering the nearest."""
    names = set(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has no use for {key!r}. {nearest(key, names)}")


def check_values(value: Any, path: str, source: str) -> None:
    """Raise at the first value that a record could not hold: dates, nan, control characters."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_values(key, f"a key of {path or 'the file'}", source)
            check_values(item, f"{path}.{key}" if path else str(key), source)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value, start=1):
            check_values(item, f"{path} {number}", source)
    elif wrong := _wrong(value):
        raise InputError(f"{path} of {source} must be {wrong}, found {value!r}.")


def _wrong(value: Any) -> str:
    """Return what a single value should have been, nothing if it is right."""
    if isinstance(value, str):
        shown = all(unicodedata.category(one) not in ("Cc", "Cs") or one in "\n\t" for one in value)
        return "" if shown else "text without control characters"
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST else f"a whole number of at most {LARGEST}"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a finite number"
    return "text, a number, true, false, a list or a table (a date is written in quotes)"


def table_of(value: Any, name: str, source: str) -> dict[str, Any]:
    """Return a copy of a table, or say that it is none."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} of {source} must be a table, found {value!r}.")
    return copy.deepcopy(dict(value))


def text_of(content: Mapping[str, Any], key: str, default: str, source: str) -> str:
    """Return a text of a table, or say that it is none."""
    value = content.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{key} of {source} must be text, found {value!r}.")
    return value


def seed_list(given: Any) -> tuple[int, ...]:
    """Read seeds: 3, [0, 1, 2], "0-4" or "0,2,5-7".

    Examples
    --------
    >>> seed_list("0-2,7")
    (0, 1, 2, 7)
    """
    parts = given if isinstance(given, list) else str(given).split(",")
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", str(part))
        if not match or isinstance(part, bool):
            raise InputError(f"seeds must be like 3, [0, 1], '0-4' or '0,2,5-7', found {given!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST or len(seeds) + last - first >= MOST_SEEDS:
            raise InputError(
                f"seeds must be at most {MOST_SEEDS:,}, none above {LARGEST}, found {given!r}."
            )
        seeds += range(first, last + 1)
    if not seeds:
        raise InputError(f"seeds must name at least one, found {given!r}.")
    return tuple(dict.fromkeys(seeds))


def apply_change(content: dict[str, Any], change: str) -> None:
    """Set one value of an experiment file's content.

    Examples
    --------
    >>> content = {"train": {"epochs": 5}, "learner": [{"recipe": "sgd"}]}
    >>> apply_change(content, "train.epochs=1")
    >>> apply_change(content, "learner.sgd.lr=0.3")
    >>> content
    {'train': {'epochs': 1}, 'learner': [{'recipe': 'sgd', 'lr': 0.3}]}
    """
    path, equals, text = change.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise InputError(f"--set takes a.b=value, such as train.epochs=1; found {change!r}.")
    place = content
    if names[0] == "learner" and len(names) > 2:
        place, names = _entry(content, names[1]), names[2:]
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(f"--set {change}: {name} is not a table.")
    place[names[-1]] = _value(text.strip())


def _entry(content: dict[str, Any], name: str) -> dict[str, Any]:
    entries = content.get("learner", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"--set: learners are written [[learner]], found {entries!r}.")
    found = {str(entry.get("name", entry.get("recipe"))): entry for entry in entries}
    if name not in found:
        raise InputError(f"--set: there is no learner {name!r}. {nearest(name, found)}")
    entry: dict[str, Any] = found[name]
    return entry


def _value(text: str) -> Any:
    """Read a value as TOML has it; what is none is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
