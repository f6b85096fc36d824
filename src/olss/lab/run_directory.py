"""Run directories: what is in them, whether it belongs there, what is finished.

``runs/NAME/<learner>/seed-<k>/`` holds ``settings.json`` (everything that decides the record),
``checkpoint/`` while it runs and, when finished, ``memory.npy``, ``timing.json`` and, written
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

from olss.common.whole_file import whole_file
from olss.errors import FormatError, InputError
from olss.lab.experiment import Experiment, RunSpec, safe
from olss.streams.record import Record, write_json

__all__ = ["begin", "finish", "finished_record", "note_experiment", "set_aside_damage"]

MOST_DIFFERENCES = 3  # told in an error


def finished_record(folder: Path, spec: RunSpec) -> Record | None:
    """Return the record of a finished run, None if there is something left to do.

    Raises
    ------
    InputError
        When the folder is of a run with other settings: nothing is ever mixed.
    FormatError
        When a file is there that is not ours.
    """
    settings = _json(folder / "settings.json")
    if settings is None:
        for name in ("settings.json", "record.json"):
            if (folder / name).exists():
                raise FormatError(
                    f"{folder / name} is there, but the settings it was made with are missing or "
                    "damaged: move the folder away or choose another name (--set name=...)."
                )
        return None
    if settings != spec.content():
        told = list(_differences(settings, spec.content()))
        more = f" and {len(told) - MOST_DIFFERENCES} more" if len(told) > MOST_DIFFERENCES else ""
        raise InputError(
            f"{folder} was made with other settings: {'; '.join(told[:MOST_DIFFERENCES])}{more}. "
            "Nothing was changed. Choose another name (--set name=...) or delete that folder."
        )
    content = _json(folder / "record.json")
    if content is None:
        return None
    timing = _json(folder / "timing.json")
    return Record.from_json(content, timing, folder / "record.json")


def set_aside_damage(folder: Path) -> str | None:
    """Rename a record.json that is no JSON, so that the run is done again; say so."""
    path = folder / "record.json"
    if not path.exists() or _json(path) is not None:
        return None
    path.replace(path.with_name("record.json.damaged"))
    return f"{path} was damaged: it is now record.json.damaged, and the run is done again."


def begin(folder: Path, spec: RunSpec) -> None:
    """Write down what the run is, and clear away what a killed process left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    for partial in folder.glob("*.part"):
        partial.unlink(missing_ok=True)
    write_json(folder / "settings.json", spec.content())


def finish(folder: Path, record: Record, memory: NDArray[np.int64] | None) -> None:
    """Write the results, the record last: what has a record.json is finished."""
    if memory is not None:
        with whole_file(folder / "memory.npy") as file:
            np.save(file, memory)
    record.save(folder)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def note_experiment(root: Path, experiment: Experiment) -> Path:
    """Write down the whole experiment beside its runs; return its folder."""
    folder = root / safe(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "experiment.json", experiment.content())
    return folder


def _json(path: Path) -> Any:
    """Return what a file says; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
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
