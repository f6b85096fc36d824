"""Run directories: what is in them, whether it belongs there, what is finished.

``runs/NAME/<learner>/seed-<k>/`` holds ``settings.json`` (everything that decides the record),
``checkpoint/`` while it runs and, when finished, ``memory.npz``, ``timing.json`` and, written
last, ``record.json``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError, InputError
from olss.lab.experiment import Experiment, RunSpec, safe
from olss.streams.record import Record, damaged_part
from olss.util.checksums import read_json, write_json
from olss.util.files import whole_file

__all__ = ["begin", "finish", "finished_record", "note_experiment", "set_aside_damage"]

MOST_DIFFERENCES = 3  # told in an error


def finished_record(folder: Path, spec: RunSpec) -> Record | None:
    """Return the record of a finished run, None if there is something left to do.

    Raises
    ------
    InputError
        When the folder has results of a run with other settings: nothing is ever mixed.
    FormatError
        When a file is there that is not ours.
    """
    settings = _settings(folder / "settings.json")
    if settings is None:
        for name in ("settings.json", "record.json"):
            if (folder / name).exists():
                raise FormatError(
                    f"{folder / name} is there, but the settings it was made with are missing or "
                    "damaged: move the folder away or choose another name (--set name=...)."
                )
        return None
    if not (folder / "record.json").exists() and not any(folder.glob("checkpoint/after-*")):
        return None  # nothing was learned with those settings
    if settings != spec.content():
        told = list(_differences(settings, spec.content()))
        more = f" and {len(told) - MOST_DIFFERENCES} more" if len(told) > MOST_DIFFERENCES else ""
        raise InputError(
            f"{folder} was made with other settings: {'; '.join(told[:MOST_DIFFERENCES])}{more}. "
            "Nothing was changed. Choose another name (--set name=...) or delete that folder."
        )
    if not (folder / "record.json").exists() or damaged_part(folder):
        return None
    return Record.load(folder)


def set_aside_damage(folder: Path) -> str | None:
    """Rename a damaged file of a finished run, so that it is made again or done without; say so."""
    path = damaged_part(folder)
    if path is None:
        return None
    path.replace(path.with_name(f"{path.name}.damaged"))
    if path.name == "timing.json":
        return f"{path} was damaged: it is now timing.json.damaged, and the seconds are not known."
    return f"{path} was damaged: it is now {path.name}.damaged, and the run is done again."


def begin(folder: Path, spec: RunSpec) -> None:
    """Write down what the run is, and clear away what a killed process left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    for partial in folder.glob("*.part"):
        partial.unlink(missing_ok=True)
    write_json(folder / "settings.json", spec.content())


def finish(folder: Path, record: Record, memory: NDArray[np.int64] | None) -> None:
    """Write the results, the record last: what has a record.json is finished."""
    if memory is not None:
        with whole_file(folder / "memory.npz") as file:
            np.savez(file, rows=memory)  # a zip file: each byte is under a sum
    record.save(folder)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def note_experiment(root: Path, experiment: Experiment) -> Path:
    """Write down the whole experiment beside its runs; return its folder."""
    folder = root / safe(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "experiment.json", experiment.content())
    return folder


def _settings(path: Path) -> Any:
    """Return what a file of settings says; None if it is missing or damaged."""
    try:
        return read_json(path)
    except (FileNotFoundError, FormatError):
        return None


def _differences(there: Any, now: Any, name: str = "") -> Iterator[str]:
    """Say where two nested tables differ."""
    if not isinstance(there, dict) or not isinstance(now, dict):
        if there != now:
            yield f"{name} is {_said(there)} there and {_said(now)} now"
        return
    for key in sorted({*there, *now}):
        path = f"{name}.{key}" if name else key
        yield from _differences(there.get(key), now.get(key), path)


def _said(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)
