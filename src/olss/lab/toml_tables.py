"""Tables of an experiment file: keys and values are checked, and changed by the command line."""

from __future__ import annotations

import copy
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

MOST_SEEDS = 10_000
LARGEST = 2**63 - 1  # integer that JSON, TOML and NumPy can all hold
PAPER_GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise at the first unknown key, suggesting a similar one."""
    names = set(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has an unknown key {key!r}. {suggest(key, names)}")


def check_values(value: Any, path: str, source: str) -> None:
    """Raise at the first value that a record could not hold: dates, NaN, control characters."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_values(key, f"a key of {path or 'the file'}", source)
            check_values(item, f"{path}.{key}" if path else str(key), source)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value, start=1):
            check_values(item, f"{path} {number}", source)
    elif allowed := _what_is_allowed(value):
        raise InputError(f"{path} of {source} must be {allowed}, found {value!r}.")


def _what_is_allowed(value: Any) -> str:
    """Return what a value should have been, nothing if it is right."""
    if isinstance(value, str):
        hidden = any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in value)
        return "a string without control characters" if hidden else ""
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST else f"an integer of at most {LARGEST}"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a finite number"
    return "a string, a number, true, false, a list or a table (write a date in quotes)"


def get_table(value: Any, name: str, source: str) -> dict[str, Any]:
    """Return a copy of a table; raise if it is something else."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} of {source} must be a table, found {value!r}.")
    return copy.deepcopy(dict(value))


def get_string(content: Mapping[str, Any], key: str, default: str, source: str) -> str:
    """Return a string of a table; raise if it is something else."""
    value = content.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{key} of {source} must be a string, found {value!r}.")
    return value


def parse_seeds(given: Any) -> tuple[int, ...]:
    """Return seeds given as 3, [0, 1, 2], "0-4" or "0,2,5-7".

    Examples
    --------
    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in given if isinstance(given, list) else str(given).split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", str(part))
        if not match:
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
        place, names = _find_learner(content, names[1]), names[2:]
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(f"--set {change}: {name} is not a table.")
    try:
        place[names[-1]] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        place[names[-1]] = text.strip()


def _find_learner(content: dict[str, Any], name: str) -> dict[str, Any]:
    entries = content.get("learner", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"--set: learners are written [[learner]], found {entries!r}.")
    found: dict[str, dict[str, Any]] = {
        str(entry.get("name", entry.get("recipe"))): entry for entry in entries
    }
    if name not in found:
        raise InputError(f"--set: there is no learner {name!r}. {suggest(name, found)}")
    return found[name]


# ------------------------------------------------------------------ search spaces


@dataclass(frozen=True)
class TuneSpec:
    """How settings are chosen."""

    method: str = "grid"  # "grid", "random" or "tpe"
    trials: int = 20  # for random and tpe: how many for each learner
    tasks: int | None = None  # only the first tasks of the stream
    share: float = 0.1  # share of the training rows held out to score on
    seeds: tuple[int, ...] = (0,)  # A trial's score is the mean over these
    prune: bool = True  # stop trials that are worse than the median of the others at the same task
    # setting -> list of values, or a table with low, high and optionally log or step
    space: dict[str, Any] = field(default_factory=lambda: {"lr": list(PAPER_GRID)})


def parse_tune(table: dict[str, Any], source: str) -> TuneSpec:
    """Read the [tune] table of an experiment file."""
    check_keys(table, {item.name for item in fields(TuneSpec)}, f"[tune] of {source}")
    if "space" in table:
        table["space"] = get_table(table["space"], "tune.space", source)
        check_space(table["space"], source)
    if "seeds" in table:
        table["seeds"] = parse_seeds(table["seeds"])
    spec = TuneSpec(**table)
    checks.choice("tune.method", spec.method, ("grid", "random", "tpe"))
    checks.number("tune.share", spec.share, above=0, below=1)
    checks.integer("tune.trials", spec.trials)
    if spec.tasks is not None:
        checks.integer("tune.tasks", spec.tasks)
    checks.boolean("tune.prune", spec.prune)
    return spec


def check_space(space: dict[str, Any], where: str) -> None:
    """Raise unless each setting has a list of values or a range.

    Examples
    --------
    >>> check_space({"lr": [0.1, 0.3], "ewc_strength": {"low": 1, "high": 100, "log": True}}, "")
    """
    for key, values in space.items():
        if isinstance(values, dict):
            _check_range(key, values)
        elif not isinstance(values, list) or not values:
            raise InputError(
                f"the space of {key} in {where} must be a list of values or a table with low and "
                f"high, found {values!r}."
            )


def _check_range(key: str, values: dict[str, Any]) -> None:
    check_keys(values, ("low", "high", "log", "step"), f"the range of {key}")
    low = checks.number(f"low of {key}", values.get("low"))
    high = checks.number(f"high of {key}", values.get("high"))
    if not low < high:
        raise InputError(f"the range of {key} must have low below high, found {low} and {high}.")
    log, step = checks.boolean(f"log of {key}", values.get("log", False)), values.get("step")
    if log and low <= 0:
        raise InputError(f"the range of {key} with log must begin above 0, found {low}.")
    if step is not None:
        checks.number(f"step of {key}", step, above=0)
        if log:
            raise InputError(f"the range of {key} has log and step: leave one out.")
