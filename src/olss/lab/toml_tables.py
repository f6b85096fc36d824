"""Tables of an experiment file: their keys and values checked, and changed by the command line."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from olss.errors import InputError
from olss.util import checks
from olss.util.checks import suggest

__all__ = [
    "PAPER_GRID",
    "TuneSpec",
    "apply_change",
    "check_keys",
    "check_values",
    "checked_space",
    "dumps",
    "seed_list",
    "table_of",
    "text_of",
    "tune_spec",
]


MOST_SEEDS = 10_000
LARGEST = 2**63 - 1  # of a whole number that JSON, TOML and NumPy all take


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise at the first key that is not known, offering the nearest."""
    names = set(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has no use for {key!r}. {suggest(key, names)}")


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
        raise InputError(f"--set: there is no learner {name!r}. {suggest(name, found)}")
    entry: dict[str, Any] = found[name]
    return entry


def _value(text: str) -> Any:
    """Read a value as TOML has it; what is none is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ------------------------------------------------------------------ toml writing


def dumps(content: Mapping[str, Any]) -> str:
    """Return a TOML text: values first, then tables, then lists of tables.

    Examples
    --------
    >>> print(dumps({"name": "try", "train": {"lr": 0.1}, "learner": [{"name": "sgd"}]}))
    name = "try"
    <BLANKLINE>
    [train]
    lr = 0.1
    <BLANKLINE>
    [[learner]]
    name = "sgd"
    <BLANKLINE>
    """
    values = {key: value for key, value in content.items() if not _is_table(value)}
    tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in content.items() if key not in {**values, **tables}}
    parts = [_lines(values)]
    parts += [f"[{_key(key)}]\n{_lines(table)}" for key, table in tables.items()]
    parts += [f"[[{_key(key)}]]\n{_lines(table)}" for key, rows in lists.items() for table in rows]
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    rows = isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)
    return isinstance(value, Mapping) or rows


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_toml_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_toml_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML, too
    # JSON's strings are TOML's, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# ------------------------------------------------------------------ search space

PAPER_GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
RANGE = ("low", "high", "log", "step")


@dataclass(frozen=True)
class TuneSpec:
    """How settings are chosen.

    Attributes
    ----------
    method : str
        "grid", "random" or "tpe".
    trials : int
        For random and tpe: how many for each learner.
    tasks : int or None
        Only the first tasks of the stream.
    share : float
        Part of the training rows held out to score on.
    seeds : tuple of int
        A trial's score is the mean over these.
    prune : bool
        Stop trials that are worse than the median of the others at the same task.
    space : dict
        Setting -> list of values, or a table with low, high and, if need be, log or step.
    """

    method: str = "grid"
    trials: int = 20
    tasks: int | None = None
    share: float = 0.1
    seeds: tuple[int, ...] = (0,)
    prune: bool = True
    space: dict[str, Any] = field(default_factory=lambda: {"lr": list(PAPER_GRID)})


def tune_spec(table: dict[str, Any], source: str) -> TuneSpec:
    """Read the [tune] table of an experiment file."""
    check_keys(table, {item.name for item in fields(TuneSpec)}, f"[tune] of {source}")
    if "space" in table:
        space = table_of(table["space"], "tune.space", source)
        table["space"] = checked_space(space, source)
    if "seeds" in table:
        table["seeds"] = seed_list(table["seeds"])
    spec = TuneSpec(**table)
    checks.number("tune.share", spec.share, above=0, below=1)
    if spec.method not in ("grid", "random", "tpe"):
        raise InputError(f"tune.method must be grid, random or tpe, found {spec.method!r}.")
    for key in ("trials", "tasks"):
        value = getattr(spec, key)
        if value is not None and (type(value) is not int or value < 1):
            raise InputError(f"tune.{key} must be a positive whole number, found {value!r}.")
    if type(spec.prune) is not bool:
        raise InputError(f"tune.prune must be true or false, found {spec.prune!r}.")
    return spec


def checked_space(space: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the space back if each setting has a list of values or a range.

    Examples
    --------
    >>> checked_space({"lr": [0.1, 0.3], "ewc_strength": {"low": 1, "high": 100, "log": True}}, "")
    {'lr': [0.1, 0.3], 'ewc_strength': {'low': 1, 'high': 100, 'log': True}}
    """
    for key, values in space.items():
        if isinstance(values, list) and values:
            continue
        if not isinstance(values, dict):
            raise InputError(
                f"the space of {key} in {where} must be a list of values or a table with low and "
                f"high, found {values!r}."
            )
        for name in values:
            if name not in RANGE:
                raise InputError(f"the range of {key} has no {name!r}. {suggest(name, RANGE)}")
        low, high = values.get("low"), values.get("high")
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (low, high))
        if not numbers or not low < high:  # type: ignore[operator]
            raise InputError(
                f"the range of {key} must have low below high, found {low!r} and {high!r}."
            )
        if type(values.get("log", False)) is not bool:
            raise InputError(f"log of {key} must be true or false, found {values['log']!r}.")
        if values.get("log") and not low > 0:  # type: ignore[operator]
            raise InputError(f"the range of {key} with log must begin above 0, found {low!r}.")
        step = values.get("step")
        if step is not None:
            checks.number(f"the step of {key}", step, above=0)
            if values.get("log"):
                raise InputError(f"the range of {key} has log or step, not both; leave one out.")
    return space
