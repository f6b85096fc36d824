"""One run of an experiment, from its spec to its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DamagedCheckpointError, InputError
from olss.lab import run_directory
from olss.lab.experiment import RunSpec
from olss.streams.record import Record
from olss.util import package_version
from olss.util.files import locked

if TYPE_CHECKING:
    from olss.learn.learner import Learner
    from olss.streams import Stream, Task

__all__ = [
    "CountedStream",
    "check",
    "get_ready",
    "learner_of",
    "run_in_folder",
    "run_once",
    "stream_of",
]

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


def learner_of(spec: RunSpec) -> Learner:
    """Make the learner of a run, under the name the experiment gives it."""
    from olss.learn import recipe

    learner = recipe(spec.recipe, **{"threads": 1, **spec.settings})
    learner.config["learner"]["label"] = spec.label
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
    held = learner.memory.held
    if held is None or learner.memory.keeps_all:  # all rows: nothing to tell
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
        As in `olss.learn.stream_run`.
    wait : bool
        Wait for the other process and take its record.
    say : callable, optional
        Told what is unusual.
    """
    with locked(folder / ".lock", wait=wait) as mine:
        if not mine:
            return None
        say = say or (lambda _: None)
        record = run_directory.finished_record(folder, spec)
        if record is not None:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            return record
        if note := run_directory.set_aside_damage(folder):
            say(note)
            record = run_directory.finished_record(folder, spec)
            if record is not None:  # without its seconds
                return record
        run_directory.begin(folder, spec)
        record, memory = _resume(folder / "checkpoint", spec, on_task, say)
        run_directory.finish(folder, record, memory)
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
