"""Run directories: what is in them, whether it belongs there, what is finished.

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
from olss.util.checksums import read_json, write_json
from olss.util.files import file_lock, open_atomic

if TYPE_CHECKING:
    from olss.learn.analytic import AnyLearner
    from olss.streams import Stream, Task

__all__ = [
    "CountedStream",
    "begin",
    "check",
    "finish",
    "finished_record",
    "get_ready",
    "learner_of",
    "note_experiment",
    "run_in_folder",
    "run_once",
    "set_aside_damage",
    "stream_of",
]


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
        with open_atomic(folder / "memory.npz") as file:
            np.savez(file, rows=memory)  # a zip file: each byte is under a sum
    record.save(folder)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def note_experiment(root: Path, experiment: Experiment) -> Path:
    """Write down the whole experiment beside its runs; return its folder."""
    folder = root / safe_name(experiment.name)
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


# ------------------------------------------------------------------ single run

OnTask = Callable[[int, Record], None]
Say = Callable[[str], None]


class CountedStream:
    """A stream, or its first tasks, that counts the training rows of the tasks it gives."""

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


def stream_of(spec: RunSpec) -> CountedStream:
    """Make the stream of a run; its data are read."""
    from olss.streams import from_config

    return CountedStream(from_config(spec.stream), spec.first_tasks, spec.title)


def learner_of(spec: RunSpec) -> AnyLearner:
    """Make the learner of a run, under the name the experiment gives it."""
    from olss.learn import recipe

    learner = recipe(spec.recipe, name=spec.label, **{"threads": 1, **spec.settings})
    if spec.code:
        learner.config["code"] = spec.code
    return learner


def check(specs: Sequence[RunSpec]) -> int:
    """Make every learner and the stream once, so that mistakes are found before anything runs.

    Returns
    -------
    int
        Tasks of the stream.
    """
    for spec in {spec.label: spec for spec in specs}.values():
        try:
            learner_of(spec)
        except InputError as error:
            raise InputError(f"learner {spec.label!r}: {error}") from error
    _check_device(specs[0].device)
    return len(stream_of(specs[0]))


def _check_device(device: str) -> None:
    torch: Any = import_module("torch")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"device must be one torch can use here, found {device!r}: {why}"
        ) from error


def get_ready() -> None:
    """Load what torch loads at its first optimiser, which takes seconds: no run's own time."""
    from olss.learn import run  # noqa: F401 - says what is missing, if torch is

    torch: Any = import_module("torch")
    torch.optim.SGD([torch.zeros(1)], lr=1.0)


def run_once(
    spec: RunSpec,
    checkpoint: Path | None = None,
    on_task: OnTask | None = None,
    say: Say | None = None,
) -> tuple[Record, NDArray[np.int64] | None]:
    """Do a run; return its record and, for each row in memory at the end, its task and row."""
    from olss.learn import run

    get_ready()
    learner, stream = learner_of(spec), stream_of(spec)
    record = run(
        stream,
        learner,
        spec.seed,
        checkpoint=checkpoint,
        on_task=on_task,
        device=spec.device,
        protocol=spec.protocol,
        say=say,
    )
    held = learner.buffer.held
    if held is None or learner.buffer.keeps_all:  # all rows: nothing to tell
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
    say: Say | None = None,
) -> Record | None:
    """Do a run in its folder, or go on with it; None if another process is at it.

    Parameters
    ----------
    folder : Path
    spec : RunSpec
    on_task : callable, optional
        As in `olss.learn.run`.
    wait : bool
        Wait for the other process and take its record.
    say : callable, optional
        Told what is unusual.
    """
    with file_lock(folder / ".lock", wait=wait) as mine:
        if not mine:
            return None
        say = say or (lambda _: None)
        record = finished_record(folder, spec)
        if record is not None:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            return record
        if note := set_aside_damage(folder):
            say(note)
            record = finished_record(folder, spec)
            if record is not None:  # without its seconds
                return record
        begin(folder, spec)
        record, memory = _resume(folder / "checkpoint", spec, on_task, say)
        finish(folder, record, memory)
        return record


def _resume(
    checkpoint: Path, spec: RunSpec, on_task: OnTask | None, say: Say
) -> tuple[Record, NDArray[np.int64] | None]:
    """Run from the checkpoint; where that is of no use, from the beginning."""
    if _outdated(checkpoint):
        say(f"{spec.label}, seed {spec.seed}: begun with other versions of packages; begins again.")
        shutil.rmtree(checkpoint)
    try:
        return run_once(spec, checkpoint, on_task, say)
    except DamagedCheckpointError as error:
        # Nothing else is a reason to throw a checkpoint away.
        say(f"{spec.label}, seed {spec.seed}: begins again, no state of it is whole ({error})")
        shutil.rmtree(checkpoint)
        return run_once(spec, checkpoint, on_task, say)


def _outdated(checkpoint: Path) -> bool:
    """Whether the newest checkpoint was made by other versions than those that would go on."""
    newest = sorted(checkpoint.glob("after-*/record.json"))[-1:]
    for path in newest:
        try:
            versions = json.loads(path.read_text(encoding="utf-8"))["versions"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False  # damaged: found when it is loaded
        return any(package_version(name) != was for name, was in versions.items())
    return False
