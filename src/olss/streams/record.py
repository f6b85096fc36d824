"""The record of a run: accuracies, costs, configuration.

A record is a directory of two files. ``record.json`` is determined by the configuration, so the
same run gives the same bytes; ``timing.json`` differs from run to run. Needs no torch.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError
from olss.util.files import add_checksum, read_json, verify_checksum, write_json

__all__ = ["COMPETING", "PHASES", "Record", "damaged_part"]

FORMAT = "olss-record"
VERSION = 2
CHECKSUMMED = 2  # the first version whose files carry a sum
METRICS = ("accuracy", "r2")
MEASURED = (
    "accuracy",
    "ahead",
    "initial",
    "memory_rows",
    "stored_examples",
    "stored_bytes",
    "steps",
    "row_passes",
    "disturbed_rows",
)
LATER = ("row_passes", "disturbed_rows")  # may be missing from records of earlier versions
PHASES = ("select", "train", "evaluate")
COMPETING = {  # a record's protocol says which
    "seen": "all classes seen so far compete",
    "task": "only the classes of a row's own task compete, so the task is known",
    "all": "all classes compete from the start",
}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False)
class Record:
    """Everything measured while a learner was trained on a stream of T tasks.

    Attributes
    ----------
    accuracy : (T, T) array
        Row i: the score on the test rows of each task after task i; NaN before it was seen.
    ahead : (T,) array
        The score on task i just before training on it.
    initial : (T,) array
        The score on task i of the initialised network.
    memory_rows : (T, T) array
        Row i: rows of each task in the buffer after task i.
    stored_examples, stored_bytes : (T,) array
        Rows and bytes kept for later tasks, after each task: the buffer and whatever a
        regularizer stores.
    steps : (T,) array
        Optimizer steps in each task.
    row_passes : (T,) array
        Rows passed through the network in those steps, with repetition.
    disturbed_rows : (T,) array
        Corrupted rows in the buffer after each task.
    tasks : list of str
        The tasks' names.
    seed : int
    config : dict
        The complete stream, learner and training.
    versions : dict
        Of olss, Python and the packages that compute.
    protocol : str
        Which classes compete, and what was measured, in words.
    metric : str
        "accuracy", or "r2" for regression. Larger is better in both.
    task_seconds : dict of (T,) arrays
        Wall-clock seconds of each task spent in "select", "train" and "evaluate".
    task_cpu_seconds : dict of (T,) arrays
        The same in CPU seconds, which depend less on other processes.
    peak_memory : int
        Peak resident memory of the process, in bytes; 0 if unknown.

    Examples
    --------
    >>> record = Record(accuracy=[[0.9, float("nan")], [0.5, 0.8]], tasks=["first", "second"])
    >>> record
    <Record: a learner on a stream, seed 0, 2 tasks: average accuracy 0.650, task 1 0.500>
    >>> record.average_accuracy
    array([0.9 , 0.65])
    """

    accuracy: Floats
    ahead: Floats = field(default_factory=lambda: np.empty(0))
    initial: Floats = field(default_factory=lambda: np.empty(0))
    memory_rows: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    stored_examples: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    stored_bytes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    steps: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    row_passes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    disturbed_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    tasks: list[str] = field(default_factory=list)
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    protocol: str = ""
    metric: str = "accuracy"
    task_seconds: dict[str, Floats] = field(default_factory=dict)
    task_cpu_seconds: dict[str, Floats] = field(default_factory=dict)
    peak_memory: int = 0

    def __post_init__(self) -> None:
        self.accuracy = np.asarray(self.accuracy, np.float64)
        count = len(self.accuracy)
        self.accuracy = self.accuracy.reshape(count, count)
        for name in ("ahead", "initial"):
            setattr(self, name, _vector(getattr(self, name), count))
        for name in ("stored_examples", "stored_bytes", "steps", "row_passes", "disturbed_rows"):
            setattr(self, name, _counts(getattr(self, name), (count,)))
        self.memory_rows = _counts(self.memory_rows, (count, count))
        for name in ("task_seconds", "task_cpu_seconds"):
            given = getattr(self, name)
            setattr(self, name, {p: _vector(given.get(p, ()), count) for p in PHASES})

    def __repr__(self) -> str:
        """Return learner, stream and result in one line."""
        learner, stream = self.config.get("learner", {}), self.config.get("stream", {})
        who = learner.get("label") or learner.get("recipe") or "a learner"
        count = len(self.accuracy)
        words = f"{who} on {stream.get('name', 'a stream')}, seed {self.seed}, {count} tasks"
        if not count:
            return f"<Record: {words}>"
        average, first = self.average_accuracy[-1], self.accuracy[-1, 0]
        return f"<Record: {words}: average {self.metric} {average:.3f}, task 1 {first:.3f}>"

    @property
    def average_accuracy(self) -> Floats:
        """The mean over the tasks seen so far, after each task: (T,)."""
        return np.array([row[: i + 1].mean() for i, row in enumerate(self.accuracy)])

    @property
    def seconds(self) -> dict[str, float]:
        """Total seconds spent in "select", "train" and "evaluate"."""
        return {phase: float(np.nansum(values)) for phase, values in self.task_seconds.items()}

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write ``record.json`` and ``timing.json``, each atomically."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "timing.json", add_checksum(self.timing()))
        write_json(folder / "record.json", add_checksum(self.content()))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Record:
        """Load a saved record; without ``timing.json`` the seconds are NaN."""
        folder = Path(directory)
        content = _read(folder / "record.json")
        timing = _read(folder / "timing.json") if (folder / "timing.json").exists() else {}
        return cls.from_json(content, timing, folder / "record.json")

    def content(self) -> dict[str, Any]:
        """Return what the configuration determines, ready for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "metric": self.metric,
            "protocol": self.protocol,
            "seed": self.seed,
            "tasks": self.tasks,
            **{name: _plain(getattr(self, name)) for name in MEASURED},
            "config": self.config,
            "versions": self.versions,
        }

    def timing(self) -> dict[str, Any]:
        """Return what differs from run to run, ready for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "seconds": {phase: _plain(values) for phase, values in self.task_seconds.items()},
            "cpu_seconds": {p: _plain(values) for p, values in self.task_cpu_seconds.items()},
            "peak_memory": self.peak_memory,
        }

    @classmethod
    def from_json(cls, content: Any, timing: Any, source: object = "record") -> Record:
        """Return the record of `content()` and `timing()`, or raise `FormatError`."""
        _check_format(content, source)
        try:
            _check_types(content)
            known = {name: () for name in LATER} | content
            numbers: dict[str, Any] = {name: _numbers(known[name]) for name in MEASURED}
            timing = timing or {}
            seconds: dict[str, Any] = {
                f"task_{name}": {p: _numbers(v) for p, v in timing.get(name, {}).items()}
                for name in ("seconds", "cpu_seconds")
            }
            return cls(
                **numbers,
                tasks=list(content["tasks"]),
                seed=content["seed"],
                config=content["config"],
                versions=content["versions"],
                protocol=content["protocol"],
                metric=content["metric"],
                **seconds,
                peak_memory=timing.get("peak_memory", 0),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                f"{source} is damaged ({error!r}). Delete it and run again."
            ) from error


def damaged_part(folder: Path) -> Path | None:
    """Return the file of a saved record whose checksum does not match, or None."""
    for path in (folder / "record.json", folder / "timing.json"):
        if not path.exists():
            continue
        try:
            content = read_json(path)
            if isinstance(content, dict) and content.get("format") == FORMAT:
                verify_checksum(content, path, since=CHECKSUMMED)
        except FormatError:
            return path
    return None


def _vector(values: Any, count: int) -> Floats:
    array = np.asarray(values, np.float64)
    return array.reshape(count) if array.size else np.full(count, math.nan)


def _counts(values: Any, shape: tuple[int, ...]) -> Ints:
    """Return integers, zeros if there are none; NaN and infinity raise `ValueError`."""
    array = np.asarray(values)
    if array.size and not (np.isfinite(array).all() and (np.abs(array) < 2**62).all()):
        raise ValueError("a count is not an integer")
    return array.astype(np.int64).reshape(shape) if array.size else np.zeros(shape, np.int64)


def _plain(values: Any) -> Any:
    """Return nested lists with None for NaN, which JSON does not have."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return None if values != values else values


def _numbers(values: Any) -> Floats:
    """Undo `_plain`: NumPy reads None as NaN."""
    numbers = np.array(values, np.float64)
    if np.isinf(numbers).any():
        raise ValueError("a number is infinite")
    return numbers


def _read(path: Path) -> Any:
    try:
        content = read_json(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path.parent} is not a saved record: it has no {path.name}.") from error
    _check_format(content, path)
    return verify_checksum(content, path, since=CHECKSUMMED)


def _check_types(content: Any) -> None:
    """Raise `TypeError` for a field of another type: records of version 1 have no checksum."""
    config, tasks = content["config"], content["tasks"]
    stream = config.get("stream", {})
    tables = [config, stream, config.get("learner", {}), config.get("training", {})]
    right = (
        all(isinstance(table, dict) for table in [*tables, *stream.get("steps", [])])
        and isinstance(content["versions"], dict)
        and isinstance(tasks, (list, tuple))  # lists become tuples on their way through Dask
        and all(isinstance(text, str) for text in [content["protocol"], *tasks])
        and isinstance(content["seed"], int)
        and content["metric"] in METRICS
        and len(tasks) == len(content["accuracy"])
    )
    if not right:
        raise TypeError("a field has the wrong type")


def _check_format(content: Any, source: object) -> None:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FormatError(f"{source} is not an olss record.")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise FormatError(
            f"{source} has format version {version}, this olss reads up to {VERSION}. Update olss."
        )
