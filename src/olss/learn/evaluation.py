"""Run a learner through a stream of tasks and evaluate it on every task after every task."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from olss.errors import DamagedCheckpointError, InputError, OlssWarning
from olss.learn.analytic import AnalyticLearner, AnyLearner
from olss.learn.checkpoint import save_whole, verify
from olss.learn.learner import Learner, TaskCost
from olss.learn.model import check_device, check_task, labels_of
from olss.streams.record import Record
from olss.streams.stream import hash_arrays
from olss.util import package_version
from olss.util.text import list_differences
from olss.util.threads import call_with_blas_threads

__all__ = ["run"]

R = TypeVar("R")
TASK_FIELDS = ("X", "y", "X_test", "y_test")


def run(
    stream: Any,
    learner: AnyLearner,
    seed: int = 0,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_task: Callable[[int, Record], None] | None = None,
    device: str = "cpu",
    protocol: str = "",
    warn: Callable[[str], None] | None = None,
) -> Record:
    """Take a learner through a stream and evaluate it on every task after every task.

    Parameters
    ----------
    stream : Stream
        Tasks in the order they are learned; any iterable of tasks with `X`, `y`, `X_test` and
        `y_test`.
    learner : Learner
        From `recipe`. It starts from scratch: what it learned before is dropped.
    seed : int
        Of the net's initial weights, the order of rows and the buffer; the stream has its own.
    checkpoint : path, optional
        A directory. The state is saved there after every task; a run that was killed resumes
        from there and ends with the same record, byte for byte.
    on_task : callable, optional
        Called as ``on_task(i, record)`` after task i, counted from 0, with the record so far.
    device : str
        "cpu" or, where available, "cuda".
    protocol : str
        What the record states about the measurement; by default, which classes compete.
    warn : callable, optional
        Called with a message if a damaged state was skipped; by default a warning is issued.

    Raises
    ------
    DamagedCheckpointError
        If there are states in the checkpoint and none of them is intact.

    Returns
    -------
    Record

    Examples
    --------
    >>> from olss.learn import recipe
    >>> from olss.streams import permuted
    >>> record = run(permuted("digits", tasks=2), recipe("sgd", net="mlp-32", batch=20), seed=0)
    >>> record.accuracy.shape
    (2, 2)
    """
    _check_arguments(stream, learner)
    check_device(device)
    folder = None if checkpoint is None else Path(checkpoint)
    threads = learner.threads or torch.get_num_threads()
    blank = _empty_record(stream, learner, seed, protocol, threads)

    def learn_stream() -> Record:
        learner.start(_classes_of(stream), seed, device)
        record = _resume(folder, learner, blank, device, warn or _warn) if folder else blank
        tests, disturbed = [], []
        for i, task in enumerate(stream):
            check_task(task, TASK_FIELDS)
            tests.append((task.X_test, task.y_test))
            disturbed.append(_disturbed_rows(task))
            if i < learner.tasks:
                continue
            scoring = TaskCost()
            ahead = learner.score_ahead(task)
            scoring.end_phase("evaluate")
            cost = learner.fit_task(task)
            scoring.end_phase("fit")
            scores = [learner.score(*test, j) for j, test in enumerate(tests)]
            scoring.end_phase("evaluate")
            record = _add_task(record, task, learner, scores, ahead, cost, scoring, disturbed)
            if folder:
                _save(folder, learner, record)
            if on_task:
                on_task(i, record)
        if not tests:
            raise InputError("stream has no task.")
        return record

    return _with_threads(threads, learn_stream)


def _check_arguments(stream: Any, learner: Any) -> None:
    """Raise unless there is a learner and something that may hold tasks."""
    if not isinstance(learner, Learner | AnalyticLearner):
        hint = f": recipe({learner!r})" if isinstance(learner, str) else ""
        raise InputError(
            f"learner must be one learner, made by recipe(...){hint}; found {_name_type(learner)}. "
            "The arguments are run(stream, learner)."
        )
    if isinstance(stream, str) or not isinstance(stream, Iterable):
        raise InputError(
            "stream must be a Stream, such as olss.streams.permuted('digits'), or another iterable "
            f"of tasks, found {_name_type(stream)}."
        )
    if isinstance(stream, list | tuple):
        for task in stream:
            check_task(task, TASK_FIELDS)


def _name_type(value: Any) -> str:
    return repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"


def _save(folder: Path, learner: AnyLearner, record: Record) -> None:
    """Save the state after a task, and delete all but the one before it, a spare."""

    def write(place: Path) -> None:
        learner.save(place / "learner")
        record.save(place)

    save_whole(folder / f"after-{learner.tasks:04d}", write)
    for other in _saved_states(folder)[2:]:
        shutil.rmtree(other, ignore_errors=True)


def _saved_states(folder: Path) -> list[Path]:
    """Return the folders of saved states, the newest first."""
    found = folder.glob("after-*")
    return sorted((p for p in found if p.name[6:].isdecimal()), reverse=True)


def _warn(message: str) -> None:
    warnings.warn(message, OlssWarning, stacklevel=4)


def _resume(
    folder: Path, learner: AnyLearner, blank: Record, device: str, warn: Callable[[str], None]
) -> Record:
    """Load the newest intact state and return its record; `blank` if nothing was saved."""
    damaged = None
    for place in _saved_states(folder):
        try:
            verify(place)
        except DamagedCheckpointError as error:
            warn(f"{error} Resuming from the task before.")
            damaged = error
            continue
        record = Record.load(place)
        for name, found, expected in (
            ("config", record.config, blank.config),
            ("seed", record.seed, blank.seed),
            ("protocol", record.protocol, blank.protocol),
        ):
            if found != expected:
                raise InputError(
                    f"checkpoint {folder} belongs to another run: "
                    f"{list_differences({name: found}, {name: expected})}. Choose another "
                    "directory or delete it."
                )
        learner.load(place / "learner", device)
        return record
    if damaged:
        raise damaged
    return blank


def _empty_record(
    stream: Any, learner: AnyLearner, seed: int, protocol: str, threads: int
) -> Record:
    config = {"stream": stream.config if hasattr(stream, "config") else _identify(stream)}
    config |= learner.config
    config["training"] = {**config.get("training", {}), "threads": threads}
    packages = ("python", "olss", "numpy", "scipy", "torch")
    return Record(
        accuracy=np.empty((0, 0)),
        seed=seed,
        # As JSON returns it, so that a saved configuration equals a live one.
        config=json.loads(json.dumps(config)),
        versions={name: package_version(name) for name in packages},
        protocol=protocol or learner.protocol,
        metric="r2" if learner.regression else "accuracy",
    )


def _identify(stream: Any) -> dict[str, Any]:
    """Return what identifies a stream without a configuration: its data, if it is a list."""
    identity: dict[str, Any] = {"name": type(stream).__name__}
    if isinstance(stream, (list, tuple)):
        columns = [column for t in stream for column in (t.X, t.y, t.X_test, t.y_test)]
        identity |= {"tasks": len(stream), "sha256": hash_arrays(*map(_as_array, columns))}
    return identity


def _as_array(values: Any) -> NDArray[Any]:
    array = np.asarray(values.cpu() if isinstance(values, torch.Tensor) else values)
    return array.astype(str) if array.dtype == object else array


def _add_task(
    record: Record,
    task: Any,
    learner: AnyLearner,
    scores: list[float],
    ahead: tuple[float, float],
    cost: TaskCost,
    scoring: TaskCost,
    disturbed: list[NDArray[np.bool_]],
) -> Record:
    """Return the record with one more task."""
    count = learner.tasks
    accuracy = np.full((count, count), np.nan)
    memory_rows = np.zeros((count, count), np.int64)
    accuracy[:-1, :-1], accuracy[-1] = record.accuracy, scores
    memory_rows[:-1, :-1], memory_rows[-1] = record.memory_rows, learner.buffer.count_by_task(count)
    held = learner.buffer.held
    noisy = 0 if held is None else np.concatenate(disturbed)[held.index.cpu().numpy()].sum()
    seconds = scoring.seconds | cost.seconds
    cpu_seconds = scoring.cpu_seconds | cost.cpu_seconds
    return replace(
        record,
        accuracy=accuracy,
        ahead=np.append(record.ahead, ahead[0]),
        initial=np.append(record.initial, ahead[1]),
        memory_rows=memory_rows,
        stored_examples=np.append(record.stored_examples, 0 if held is None else len(held)),
        stored_bytes=np.append(record.stored_bytes, learner.stored_bytes),
        steps=np.append(record.steps, cost.steps),
        row_passes=np.append(record.row_passes, cost.row_passes),
        disturbed_rows=np.append(record.disturbed_rows, noisy),
        tasks=[*record.tasks, str(getattr(task, "name", f"task {count}"))],
        task_seconds={k: np.append(v, seconds[k]) for k, v in record.task_seconds.items()},
        task_cpu_seconds={
            k: np.append(v, cpu_seconds[k]) for k, v in record.task_cpu_seconds.items()
        },
        peak_memory=max(record.peak_memory, _peak_memory()),
    )


def _disturbed_rows(task: Any) -> NDArray[np.bool_]:
    """Return for each training row whether a disturbance changed it."""
    found: NDArray[np.bool_] | None = getattr(task, "disturbed", None)
    return np.zeros(len(task.y), bool) if found is None else found


def _classes_of(stream: Any) -> Any:
    """Return all labels of a stream, if it knows them or is a list."""
    if hasattr(stream, "classes"):
        return stream.classes
    if isinstance(stream, (list, tuple)) and stream:
        return labels_of(stream)
    return None


def _peak_memory() -> int:
    """Return the largest resident size of the process so far, in bytes; 0 where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _with_threads(count: int, function: Callable[[], R]) -> R:
    """Compute with so many threads, NumPy's included: their number changes the last digits."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        return call_with_blas_threads(count, function)
    finally:
        torch.set_num_threads(before)
