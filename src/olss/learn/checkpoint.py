"""The state of a learner on disk: safetensors and JSON, no pickle."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from olss.errors import DamagedCheckpointError, FormatError, InputError
from olss.learn.labels import Labels
from olss.streams.record import Record, write_json

if TYPE_CHECKING:
    from olss.learn.learner import Learner

__all__ = ["load_run", "load_state", "save_run", "save_state"]

FORMAT = "olss-learner"
VERSION = 1


def save_state(learner: Learner, folder: Path) -> None:
    """Write all a learner needs to go on into an empty folder."""
    tensors = {f"net.{name}": value for name, value in learner.flat.state().items()}
    tensors["head"] = learner.head.table
    for i, penalty in enumerate(learner.penalties):
        tensors |= {f"penalty.{i}.{name}": value for name, value in penalty.state.items()}
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "net.safetensors")
    learner.memory.save(folder)
    classes = learner.labels.classes
    write_json(
        folder / "state.json",
        {
            "format": FORMAT,
            "version": VERSION,
            "config": learner.config,
            "seed": learner.seeds.seed,
            "tasks": learner.tasks,
            "seen": learner.seen,
            "shape": list(learner.shape or ()),
            "outputs": learner.out,
            "scale": learner.scale,
            "flat_targets": learner.flat_targets,
            "classes": None if classes is None else classes.tolist(),
        },
    )


def load_state(learner: Learner, folder: Path, device: str = "cpu") -> None:
    """Make a learner of the same recipe what it was when `save_state` wrote the folder."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if state.get("format") != FORMAT:
            raise FormatError(f"{folder} does not hold a learner of olss.")
        if state["version"] > VERSION:
            raise FormatError(f"{folder} was written by a newer olss: update olss.")
        if state["config"] != learner.config:
            raise InputError(
                f"{folder} holds another learner: {state['config']}, this one is {learner.config}."
            )
        tensors = load_file(folder / "net.safetensors", device)
        learner.start(state["classes"], state["seed"], device)
        learner.labels = Labels(state["classes"])
        learner.tasks, learner.seen = state["tasks"], state["seen"]
        learner.flat_targets = state["flat_targets"]
        learner.open(tuple(state["shape"]), state["outputs"], state["scale"])
        learner.flat.load(_under("net.", tensors))
        learner.head.load(tensors["head"])
        for i, penalty in enumerate(learner.penalties):
            penalty.state = _under(f"penalty.{i}.", tensors)
        try:
            learner.memory.load(folder)
        except FormatError as error:
            raise DamagedCheckpointError(str(error)) from error
    except FileNotFoundError as error:
        raise DamagedCheckpointError(
            f"{folder} does not hold a learner: {error.filename} is missing."
        ) from error
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise DamagedCheckpointError(
            f"{folder} is damaged ({error}); delete it and begin again."
        ) from error


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def save_whole(folder: Path, write: Any) -> None:
    """Let `write` fill a new folder, then put it into place: whole or not at all."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    old = folder.with_name(f"{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def save_run(folder: Path, learner: Learner, record: Record) -> None:
    """Save the state after a task, then drop the one before it."""

    def write(place: Path) -> None:
        save_state(learner, place)
        record.save(place)

    name = f"after-{learner.tasks:04d}"
    save_whole(folder / name, write)
    for other in folder.glob("after-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)


def load_run(folder: Path, learner: Learner, like: Record, device: str) -> Record | None:
    """Load the newest whole state, if there is one, and check that it is of this run."""
    found = sorted(p for p in folder.glob("after-*") if p.name.removeprefix("after-").isdecimal())
    if not found:
        return None
    try:
        record = Record.load(found[-1])
    except FormatError as error:
        raise DamagedCheckpointError(str(error)) from error
    for name in ("config", "seed", "protocol"):
        if getattr(record, name) != getattr(like, name):
            raise InputError(
                f"checkpoint {folder} belongs to another run: its {name} is "
                f"{getattr(record, name)}, this run's is {getattr(like, name)}. Choose another "
                "directory or delete it."
            )
    load_state(learner, found[-1], device)
    return record
