"""Data sets and streams of tasks, also by name from a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from olss.errors import InputError
from olss.streams.builders import incremental, permuted, rotated
from olss.streams.corruptions import (
    imbalanced,
    interleaved,
    label_noise,
    outliers,
    returning,
    unequal,
)
from olss.streams.datasets import Dataset, fetch, list_datasets, load_dataset
from olss.streams.own_data import from_arrays, from_files
from olss.streams.stream import Stream, Task
from olss.util.checks import suggest

__all__ = [
    "Dataset",
    "Stream",
    "Task",
    "fetch",
    "from_arrays",
    "from_config",
    "from_files",
    "imbalanced",
    "incremental",
    "interleaved",
    "label_noise",
    "list_datasets",
    "load_dataset",
    "outliers",
    "permuted",
    "returning",
    "rotated",
    "unequal",
]

BUILDERS: dict[str, Callable[..., Stream]] = {
    "rotated": rotated,
    "permuted": permuted,
    "incremental": incremental,
    "files": from_files,
}
STEPS: dict[str, Callable[..., Stream]] = {
    step.__name__: step
    for step in (label_noise, outliers, imbalanced, unequal, returning, interleaved)
}


def from_config(config: Mapping[str, Any]) -> Stream:
    """Return the stream of a configuration: `Stream.config`, or a table of a TOML file.

    Parameters
    ----------
    config : mapping
        ``name`` is one of rotated, permuted, incremental or files; other keys are the
        arguments of that function. ``steps`` is a list of corruptions, applied in order, each with
        its own ``name`` and, unless it has one, the stream's ``seed``; ``validation`` has the
        arguments of `Stream.validation`.

    Examples
    --------
    >>> noise = {"name": "label_noise", "share": 0.2}
    >>> from_config({"name": "permuted", "dataset": "digits", "tasks": 3, "steps": [noise]})
    Stream(permuted, dataset='digits', tasks=3, permute_first=True, seed=0)
      + label_noise(share=0.2, seed=0)
    >>> from_config({"name": "permuted", "datset": "digits"})
    Traceback (most recent call last):
    olss.errors.InputError: the stream permuted has no option 'datset'. Did you mean 'dataset'?
    """
    options = dict(config)
    validation = options.pop("validation", None)
    steps = options.pop("steps", [])
    name = options.pop("name", None)
    seed = options.get("seed", 0)
    if name == "arrays" or isinstance(options.get("dataset"), Mapping):
        raise InputError(
            "config describes a stream of arrays in memory, which cannot be recreated from it. "
            "Save the arrays as .npz or .parquet and use from_files."
        )
    stream = _call(_find_function(name, BUILDERS, "stream"), options, f"the stream {name}")
    if validation is not None:
        stream = _call(stream.validation, validation, "validation")
    for step in steps:
        options = dict(step)
        name = options.pop("name", None)
        function = _find_function(name, STEPS, "step")
        if "seed" in inspect.signature(function).parameters:
            options.setdefault("seed", seed)
        stream = _call(function, {"stream": stream, **options}, f"the step {name}")
    return stream


def _find_function(name: Any, known: Mapping[str, Callable[..., Stream]], what: str) -> Any:
    if name in known:
        return known[name]
    raise InputError(f"name {name!r} is not a {what}. {suggest(str(name), known)}")


def _call(function: Callable[..., Stream], options: Mapping[str, Any], what: str) -> Stream:
    known = inspect.signature(function).parameters
    for key in options:
        if key not in known:
            raise InputError(f"{what} has no option {key!r}. {suggest(key, known)}")
    return function(**options)
