"""What was done, in words made from the configuration: they cannot say anything else than it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "COMPETE",
    "PROTOCOL_SETTINGS",
    "protocol_words",
    "set_on_purpose",
    "setting",
    "shared_settings",
]

COMPETE = {
    "seen": "all classes seen so far compete",
    "task": "only the task’s own classes compete (task-aware)",
    "all": "all classes of all tasks compete",
}
# Said once for all methods where every one has the same value.
PROTOCOL_SETTINGS = ("net", "epochs", "batch", "lr", "optimizer", "momentum", "weight_decay",
                     "schedule", "loss", "head", "threads")  # fmt: skip
SAID = {"epochs": "{} epochs", "batch": "batches of {}", "lr": "learning rate {}"}
# As usual, so nothing is said of it; records from before a setting was there lack it.
QUIET = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "threads": 1} | {
    "finish_epochs": 0, "finish_rate": 0.1, "average_steps": 0, "precision": "float32",
    "augment": "none", "crop_padding": 4, "head_layers": "last",
}  # fmt: skip


def protocol_words(
    stream: Mapping[str, Any], tasks: int | None, shared: Mapping[str, Any], compete: str | None
) -> list[str]:
    """Return what was done, in short phrases.

    Parameters
    ----------
    stream : mapping
        As `olss.streams.from_config` takes it.
    tasks : int or None
        How many tasks, if known.
    shared : mapping
        Settings all methods have in common.
    compete : str or None
        Which classes compete in an answer; None for regression, or if it is not known.

    Examples
    --------
    >>> stream = {"name": "permuted", "train_rows": 1000}
    >>> protocol_words(stream, 5, {"epochs": 1, "batch": 20}, "seen")[:2]
    ['5 tasks', '1,000 training rows a task']
    """
    words = [] if tasks is None else [f"{tasks} task{'s' * (tasks != 1)}"]
    for key, kind in (("train_rows", "training"), ("test_rows", "test")):
        rows = stream.get(key)
        words.append(f"{rows:,} {kind} rows a task" if type(rows) is int else f"all {kind} rows")
    if compete is not None:
        words.append(COMPETE[compete])
    for key in PROTOCOL_SETTINGS:
        if key in shared and shared[key] != QUIET.get(key) and key not in ("head", "loss"):
            said = SAID.get(key, setting(key, "{}")).format(shared[key])
            words.append("1 epoch" if said == "1 epochs" else said)
    for step in stream.get("steps", []):
        rest = ", ".join(setting(k, v) for k, v in step.items() if k not in ("name", "seed"))
        words.append(f"{setting(str(step.get('name', 'step')), '').strip()} {rest}".strip())
    if "validation" in stream:
        words.append("tested on held-out training rows (validation)")
    return words


def shared_settings(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all methods have in common, of what a protocol speaks of."""
    first = settings[0]
    return {
        key: first[key]
        for key in PROTOCOL_SETTINGS
        if first.get(key) is not None and all(one.get(key) == first[key] for one in settings)
    }


def set_on_purpose(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are neither off nor as usual.

    Examples
    --------
    >>> set_on_purpose({"beta": 0.0, "mirrored": False, "features": None, "momentum": 0.0})
    {'beta': 0.0}
    """
    return {
        key: value
        for key, value in settings.items()
        if not (value is None or value is False or value in ("", [], {}) or value == QUIET.get(key))
    }


def setting(key: str, value: Any) -> str:
    """Return a setting in words.

    Examples
    --------
    >>> setting("gem_rows", 256)
    'gem rows 256'
    """
    if isinstance(value, dict):
        value = value.get("name", json.dumps(value, sort_keys=True))
    if isinstance(value, list):
        value = ", ".join(str(v.get("name", v)) if isinstance(v, dict) else str(v) for v in value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return f"{key.replace('_', ' ')} {value}"
