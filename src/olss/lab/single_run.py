"""One run of an experiment, from its spec to the files of its directory.

``runs/NAME/<learner>/seed-<k>/`` holds ``settings.json`` (everything that decides the record),
``checkpoint/`` while it runs and, when finished, ``memory.npz``, ``timing.json`` and, written
last, ``record.json``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DamagedCheckpointError, FormatError, InputError
from olss.lab.experiment import Experiment, RunSpec, safe_name
from olss.streams.record import Record, damaged_part
from olss.util import package_version
from olss.util.files import file_lock, open_atomic, read_json, write_json
from olss.util.text import list_differences

if TYPE_CHECKING:
    from olss.learn.analytic import AnyLearner
    from olss.streams import Stream, Task

OnTask = Callable[[int, Record], None]
Note = Callable[[str], None]
Memory = NDArray[np.int64] | None  # task and row, within the task, of each row held


# ------------------------------------------------------------------ the directory


def finished_record(folder: Path, spec: RunSpec) -> Record | None:
    """Return the record of a finished run, None if there is something left to do.

    Raises
    ------
    InputError
        If the folder has results of a run with other settings: they are never mixed.
    FormatError
        If the folder has a file that is not ours.
    """
    try:
        settings = read_json(folder / "settings.json")
    except (FileNotFoundError, FormatError):
        for path in (folder / "settings.json", folder / "record.json"):
            if path.exists():
                raise FormatError(
                    f"{path} exists, but the settings it was made with are missing or damaged: "
                    "move the folder away or choose another name (--set name=...)."
                ) from None
        return None
    has_record = (folder / "record.json").exists()
    if not has_record and not any(folder.glob("checkpoint/after-*")):
        return None  # nothing was learned with those settings
    if settings != spec.content():
        raise InputError(
            f"{folder} was made with other settings: {list_differences(settings, spec.content())}. "
            "Nothing was changed. Choose another name (--set name=...) or delete that folder."
        )
    return Record.load(folder) if has_record and not damaged_part(folder) else None


def set_aside_damage(folder: Path) -> str | None:
    """Rename a damaged file of a finished run, which is then made again; return what was done."""
    path = damaged_part(folder)
    if path is None:
        return None
    path.replace(path.with_name(f"{path.name}.damaged"))
    what = "its seconds are lost" if path.name == "timing.json" else "the run is done again"
    return f"{path} was damaged: it is now {path.name}.damaged, and {what}."


def begin(folder: Path, spec: RunSpec) -> None:
    """Write the settings of a run, and clear away what a killed process left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    for partial in folder.glob("*.part"):
        partial.unlink(missing_ok=True)
    write_json(folder / "settings.json", spec.content())


def finish(folder: Path, record: Record, memory: Memory) -> None:
    """Write the results, the record last: a run with a record.json is finished."""
    if memory is not None:
        with open_atomic(folder / "memory.npz") as file:
            np.savez(file, rows=memory)  # a zip file, which has checksums
    record.save(folder)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def note_experiment(root: Path, experiment: Experiment) -> None:
    """Write the whole experiment beside its runs."""
    folder = root / safe_name(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "experiment.json", experiment.content())


# ------------------------------------------------------------------ the run


class CountedStream:
    """A stream, or its first tasks, that counts the training rows of the tasks it yields."""

    def __init__(self, stream: Stream, first_tasks: int | None = None, title: str = "") -> None:
        self.stream, self.title = stream, title
        self.count = min(first_tasks or len(stream), len(stream))
        self.rows: list[int] = []

    @property
    def classes(self) -> tuple[int, ...] | None:
        """All labels of the whole stream."""
        return self.stream.classes

    @property
    def config(self) -> dict[str, Any]:
        """What the stream is."""
        cut = {"first_tasks": self.count} if self.count < len(self.stream) else {}
        return {**self.stream.config, **cut, **({"title": self.title} if self.title else {})}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Task]:
        self.rows = []
        for number in range(self.count):
            task = self.stream[number]
            self.rows.append(len(task.y))
            yield task


def create_stream(spec: RunSpec) -> CountedStream:
    """Create the stream of a run; this reads its data."""
    from olss.streams import from_config

    return CountedStream(from_config(spec.stream), spec.first_tasks, spec.title)


def create_learner(spec: RunSpec) -> AnyLearner:
    """Create the learner of a run, under the name the experiment gives it."""
    from olss.learn import recipe

    learner = recipe(spec.recipe, name=spec.label, **{"threads": 1, **spec.settings})
    if spec.code:
        learner.config["code"] = spec.code
    return learner


def check(specs: Sequence[RunSpec]) -> int:
    """Create every learner and the stream once, so that mistakes are found before anything runs."""
    for spec in {spec.label: spec for spec in specs}.values():
        try:
            create_learner(spec)
        except InputError as error:
            raise InputError(f"learner {spec.label!r}: {error}") from error
    from olss.learn.model import check_device

    check_device(specs[0].device)
    return len(create_stream(specs[0]))


def warm_up() -> None:
    """Load what torch loads at its first optimizer, so that no run's time includes it."""
    from olss.learn import run  # noqa: F401 - raises if torch is missing

    torch: Any = import_module("torch")
    torch.optim.SGD([torch.zeros(1)], lr=1.0)


def run_once(
    spec: RunSpec,
    checkpoint: Path | None = None,
    on_task: OnTask | None = None,
    note: Note | None = None,
) -> tuple[Record, Memory]:
    """Do a run; return its record and which rows its memory holds at the end."""
    from olss.learn import run

    warm_up()
    learner, stream = create_learner(spec), create_stream(spec)
    record = run(
        stream, learner, spec.seed, checkpoint=checkpoint, on_task=on_task, device=spec.device,
        protocol=spec.protocol, warn=note,
    )  # fmt: skip
    held = learner.buffer.held
    if held is None or learner.buffer.keeps_all:
        return record, None
    starts = np.cumsum([0, *stream.rows])
    task, index = held.task.cpu().numpy(), held.index.cpu().numpy()
    return record, np.column_stack([task, index - starts[task]]).astype(np.int64)


def run_in_folder(
    folder: Path,
    spec: RunSpec,
    on_task: OnTask | None = None,
    *,
    wait: bool = False,
    note: Note = lambda _: None,
) -> Record | None:
    """Do a run in its folder, or resume it; return None if another process is doing it.

    With `wait`, wait for that process and return its record. `note` is called with a sentence
    about anything unusual.
    """
    with file_lock(folder / ".lock", wait=wait) as acquired:
        if not acquired:
            return None
        record = finished_record(folder, spec)
        if record is not None:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            return record
        if damage := set_aside_damage(folder):
            note(damage)
            record = finished_record(folder, spec)
            if record is not None:  # without its seconds
                return record
        begin(folder, spec)
        record, memory = _resume(folder / "checkpoint", spec, on_task, note)
        finish(folder, record, memory)
        return record


def _resume(
    checkpoint: Path, spec: RunSpec, on_task: OnTask | None, note: Note
) -> tuple[Record, Memory]:
    """Run from the checkpoint; if that cannot be used, from the beginning."""
    name = f"{spec.label}, seed {spec.seed}"
    if _is_outdated(checkpoint):
        note(f"{name}: begun with other versions of packages; starts again.")
        shutil.rmtree(checkpoint)
    try:
        return run_once(spec, checkpoint, on_task, note)
    except DamagedCheckpointError as error:  # nothing else is a reason to discard a checkpoint
        note(f"{name}: starts again, since every checkpoint is damaged ({error})")
        shutil.rmtree(checkpoint)
        return run_once(spec, checkpoint, on_task, note)


def _is_outdated(checkpoint: Path) -> bool:
    """Whether the newest checkpoint was made by other versions of the packages."""
    newest = max(checkpoint.glob("after-*/record.json"), default=None)
    if newest is None:
        return False
    try:
        versions = json.loads(newest.read_text(encoding="utf-8"))["versions"]
        return any(package_version(name) != was for name, was in versions.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # damaged: found when it is loaded
