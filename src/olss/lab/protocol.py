"""Settings and protocols in words, made from the configuration so that they match it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "COMPETE", "PROTOCOL_SETTINGS", "describe_protocol", "describe_setting", "drop_defaults",
    "shared_settings",
]  # fmt: skip

COMPETE = {
    "seen": "all classes seen so far compete",
    "task": "only the task’s own classes compete (task-aware)",
    "all": "all classes of all tasks compete",
}
# Stated once for all methods where every one has the same value.
PROTOCOL_SETTINGS = ("net", "epochs", "batch", "lr", "optimizer", "momentum", "weight_decay",
                     "schedule", "loss", "head", "threads")  # fmt: skip
PHRASES = {"epochs": "{} epochs", "batch": "batches of {}", "lr": "learning rate {}"}
# Defaults are not mentioned; records from before a setting existed lack it.
DEFAULTS = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "threads": 1} | {
    "finish_epochs": 0, "finish_rate": 0.1, "average_steps": 0, "precision": "float32",
    "augment": "none", "crop_padding": 4, "head_layers": "last",
}  # fmt: skip


def describe_protocol(
    stream: Mapping[str, Any], tasks: int | None, shared: Mapping[str, Any], compete: str | None
) -> list[str]:
    """Return what was done, in short phrases.

    Parameters
    ----------
    stream : mapping
        As `olss.streams.from_config` takes it.
    tasks : int or None
        Number of tasks, if known.
    shared : mapping
        Settings all methods have in common.
    compete : str or None
        Which classes compete in a prediction; None for regression, or if it is not known.

    Examples
    --------
    >>> stream = {"name": "permuted", "train_rows": 1000}
    >>> describe_protocol(stream, 5, {"epochs": 1, "batch": 20}, "seen")[:2]
    ['5 tasks', '1,000 training rows a task']
    """
    words = [] if tasks is None else [f"{tasks} task{'s' * (tasks != 1)}"]
    for key, kind in (("train_rows", "training"), ("test_rows", "test")):
        rows = stream.get(key)
        words.append(f"{rows:,} {kind} rows a task" if type(rows) is int else f"all {kind} rows")
    if compete is not None:
        words.append(COMPETE[compete])
    for key in PROTOCOL_SETTINGS:
        if key in shared and shared[key] != DEFAULTS.get(key) and key not in ("head", "loss"):
            phrase = PHRASES.get(key, describe_setting(key, "{}")).format(shared[key])
            words.append("1 epoch" if phrase == "1 epochs" else phrase)
    for step in stream.get("steps", []):
        options = [describe_setting(k, v) for k, v in step.items() if k not in ("name", "seed")]
        name = str(step.get("name", "step")).replace("_", " ")
        words.append(f"{name} {', '.join(options)}".strip())
    if "validation" in stream:
        words.append("tested on held-out training rows (validation)")
    return words


def shared_settings(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return those settings of a protocol that all methods have in common."""
    first = settings[0]
    return {
        key: first[key]
        for key in PROTOCOL_SETTINGS
        if first.get(key) is not None and all(one.get(key) == first[key] for one in settings)
    }


def drop_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are neither off nor at their default.

    Examples
    --------
    >>> drop_defaults({"beta": 0.0, "mirrored": False, "features": None, "momentum": 0.0})
    {'beta': 0.0}
    """
    off: tuple[Any, ...] = (None, "", [], {})
    return {
        key: value
        for key, value in settings.items()
        if value is not False and value not in off and value != DEFAULTS.get(key)
    }


def describe_setting(key: str, value: Any) -> str:
    """Return a setting in words.

    Examples
    --------
    >>> describe_setting("gem_rows", 256)
    'gem rows 256'
    """
    if isinstance(value, dict):
        value = value.get("name", json.dumps(value, sort_keys=True))
    if isinstance(value, list):
        value = ", ".join(str(v.get("name", v)) if isinstance(v, dict) else str(v) for v in value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return f"{key.replace('_', ' ')} {value}"
