"""What a sketch may be made with, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from olss.errors import InputError
from olss.memory.policies import says
from olss.memory.state import Settings
from olss.util import checks

__all__ = ["checked_settings"]

SCORES = ("auto", "exact", "ridge", "sketched", "target", "target-number")


def checked_settings(before: Settings | None = None, **given: Any) -> Settings:
    """Return settings, or those of before with some changed, or raise `InputError`."""
    values = {name: _CHECKS[name](name, value) for name, value in given.items()}
    settings = Settings(**values) if before is None else replace(before, **values)
    lengths = {name: given[name] for name in ("half_life", "last") if given.get(name) is not None}
    of_time = {k: value for k, value in lengths.items() if checks.duration(k, value)[1]}
    if of_time and settings.time is None:
        name, value = next(iter(of_time.items()))
        raise InputError(
            f"{name}={value!r} is a length of time: say with time which column holds the time "
            "of each row, or give a number of rows."
        )
    if lengths and "by_dates" not in given:
        settings = replace(settings, by_dates=bool(of_time))
    if settings.knows_target and says(settings.policy, "scored") != "seen":
        raise InputError(
            f"scores={settings.scores!r} is for the policy 'weighted', whose weights make up for "
            "whatever rows are drawn by; the others choose rows by a law of their own."
        )
    forgets = settings.half_life is not None or settings.last is not None
    if settings.half_life is not None and not says(settings.policy, "decays"):
        raise InputError(
            "half_life needs a policy whose weights say what rows count for: 'weighted' or "
            "'reservoir'."
        )
    if settings.time is not None and not forgets:
        raise InputError("time says how old rows are, for half_life or last; give one of them.")
    if settings.spectrum and (settings.features is not None or settings.last is not None):
        raise InputError(
            "no spectrum can be kept of features, which may change, nor of a window (last), "
            "whose rows are gone when they should be taken off."
        )
    return settings


def _size(name: str, value: Any) -> Any:
    return (
        "task"
        if isinstance(value, str) and value == "task"
        else checks.integer(name, value, alternative=" or 'task'")
    )


def _scores(name: str, value: Any) -> str | float:
    if isinstance(value, str) and value in SCORES:
        return value
    if not isinstance(value, str) and value is not None:
        return checks.number("scores, as a ridge,", value, minimum=0)
    raise InputError(
        f"scores must be one of {', '.join(map(repr, SCORES))} or a number, the ridge, "
        f"found {value!r}."
    )


def _as_it_is(name: str, value: Any) -> Any:
    return value


def _map(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function of rows, found {value!r}.")
    return value


def _length(name: str, value: Any) -> float | None:
    return None if value is None else checks.duration(name, value)[0]


def _names(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list of names, found {value!r}.")
    return tuple(str(checks.optional_column(name, entry)) for entry in value)


def _perhaps(name: str, value: Any) -> bool | None:
    return None if value is None else checks.boolean(name, value)


def _shape(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"{name} must be the shape of a row, such as (28, 28), found {value!r}.")
    return tuple(checks.integer(name, size) for size in value)


_CHECKS = {
    "size": _size,
    "policy": _as_it_is,
    "scores": _scores,
    "features": _map,
    "half_life": _length,
    "last": _length,
    "time": checks.optional_column,
    "by_dates": checks.boolean,
    "columns": _names,
    "exclude": _names,
    "intercept": checks.boolean,
    "new_columns": checks.boolean,
    "keep_index": checks.boolean,
    "spectrum": _perhaps,
    "pad": _shape,
    "pad_y": _shape,
}
