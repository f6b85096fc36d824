"""Checkpoints: folders that are written atomically and verified byte for byte when read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from olss.errors import DamagedCheckpointError, FormatError, InputError
from olss.util.files import write_json
from olss.util.text import list_differences

FORMAT = "olss-learner"
VERSION = 3
CHECKSUMS = "checksums.json"


def check_replaceable(folder: Path) -> None:
    """Raise unless a folder is new, or holds nothing but what `save_whole` wrote into it."""
    if not folder.exists():
        return
    try:
        saved = {CHECKSUMS, *json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))}
    except (ValueError, TypeError, OSError):
        saved = set()
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    foreign = sorted(set(files) - saved) if folder.is_dir() else [folder.name]
    if foreign:
        raise InputError(
            f"path must be a new folder, or one a learner was saved in; found {str(folder)!r}, "
            f"where {foreign[0]} would be lost."
        )


def save_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a new folder, add checksums of its files, and move it into place."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    write_json(partial / CHECKSUMS, _checksums(partial))
    old = folder.with_name(f"{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def save_learner(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Have `write` fill a folder, whole or not at all; one with foreign files is refused."""
    check_replaceable(Path(path))
    save_whole(Path(path), write)


def verify(folder: Path) -> None:
    """Raise `DamagedCheckpointError` unless the folder holds the files it was saved with."""
    try:
        expected = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        found = _checksums(folder)
    except FileNotFoundError as error:
        raise DamagedCheckpointError(
            f"{folder} is incomplete: {error.filename} is missing."
        ) from error
    except (ValueError, OSError) as error:
        raise DamagedCheckpointError(f"{folder} cannot be read ({error}).") from error
    if found == expected:
        return
    known = expected if isinstance(expected, dict) else {}
    changed = sorted(name for name in {*found, *known} if found.get(name) != known.get(name))
    what = "is missing" if changed and changed[0] not in found else "is not as it was written"
    raise DamagedCheckpointError(f"{folder} is damaged: {(changed or [CHECKSUMS])[0]} {what}.")


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below the folder but the list of checksums."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()) for p in files}
    return {name: found.hexdigest() for name, found in sums.items() if name != CHECKSUMS}


def write_state(folder: Path, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a learner's tensors and settings into a folder as safetensors and JSON."""
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "net.safetensors")
    write_json(folder / "state.json", {"format": FORMAT, "version": VERSION, **state})


def read_state(
    folder: Path, config: dict[str, Any], device: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what `write_state` wrote of a learner with this configuration, once verified."""
    if not (folder / CHECKSUMS).exists() and not (folder / "state.json").exists():
        raise FormatError(f"{folder} does not hold a learner: state.json is missing.")
    verify(folder)
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        known = state["format"], state["version"]
        tensors = load_file(folder / "net.safetensors", device)
    except (SafetensorError, FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder} does not hold a learner of olss ({error}).") from error
    if known != (FORMAT, VERSION):
        raise FormatError(
            f"{folder} was written by another version of olss. Start again without it."
        )
    if differences := list_differences(_drop_label(state["config"]), _drop_label(config)):
        raise InputError(
            f"{folder} holds a different learner: {differences}. Make it with the settings it was "
            "saved with."
        )
    return state, tensors


def _drop_label(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without the learner's name, which changes nothing it does."""
    learner = {key: v for key, v in config.get("learner", {}).items() if key != "label"}
    return json.loads(json.dumps({**config, "learner": learner}))  # type: ignore[no-any-return]
