"""Tables of an experiment file: their keys and values checked, and changed by the command line."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from olss.common.near_names import nearest
from olss.errors import InputError

__all__ = ["apply_change", "check_keys", "seed_list", "table_of", "text_of"]


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise at the first key that is not known, offering the nearest."""
    names = set(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has no use for {key!r}. {nearest(key, names)}")


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
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
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
