"""One run of a learner through a stream of tasks, measured."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from olss.errors import DamagedCheckpointError, DataError, InputError, OlssWarning
from olss.learn.checkpoint import save_whole, verify
from olss.learn.labels import Labels, distinct
from olss.learn.learner import Clock, Learner, TaskCost
from olss.streams.record import Record
from olss.streams.stream import hash_arrays
from olss.util import package_version
from olss.util.threads import call_with_blas_threads

__all__ = ["run"]

R = TypeVar("R")


def run(
    stream: Any,
    learner: Learner,
    seed: int = 0,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_task: Callable[[int, Record], None] | None = None,
    device: str = "cpu",
    protocol: str = "",
    say: Callable[[str], None] | None = None,
) -> Record:
    """Take a learner through a stream and measure it on every task after every task.

    Parameters
    ----------
    stream : Stream
        Tasks in the order they are learned; any iterable of tasks with `X`, `y`, `X_test` and
        `y_test`.
    learner : Learner
        From `recipe`. It starts afresh: whatever it learned before is dropped.
    seed : int
        Of the net's first weights, the order of rows and the memory, each with generators of
        its own. The stream has its own seed.
    checkpoint : path, optional
        A directory. The state is saved there after every task, and a run that was killed
        goes on from there and ends with the same record, byte for byte.
    on_task : callable, optional
        Called as ``on_task(i, record)`` after task i, counted from 0, with the record so far.
    device : str
        "cpu" or, where there is one, "cuda".
    protocol : str
        Words for the record on what was measured; by default, which classes compete.
    say : callable, optional
        Told if a damaged state was left for the one before it; by default a warning says so.

    Raises
    ------
    DamagedCheckpointError
        If there are states in the checkpoint and none of them is whole.

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
    folder = None if checkpoint is None else Path(checkpoint)
    threads = learner.parts.training.threads or torch.get_num_threads()
    blank = _blank(stream, learner, seed, protocol, threads)

    def follow() -> Record:
        learner.start(_classes(stream), seed, device)
        loaded = folder and _loaded(folder, learner, blank, device, say or _warn)
        record = loaded or blank
        tests, disturbed = [], []
        for i, task in enumerate(stream):
            tests.append((task.X_test, task.y_test))
            disturbed.append(_disturbed(task))
            if i < learner.model.tasks:
                continue
            clock = Clock()
            ahead = _scores_ahead(learner, task)
            clock.stop("evaluate")
            effort = learner.fit_task(task)
            clock.stop("fit")
            scores = [learner.score(*test, j) for j, test in enumerate(tests)]
            clock.stop("evaluate")
            record = _extended(record, task, learner, scores, ahead, effort, clock, disturbed)
            if folder:
                _save(folder, learner, record)
            if on_task:
                on_task(i, record)
        if not tests:
            raise InputError("stream has no task.")
        return record

    return _with_threads(threads, follow)


def _scores_ahead(learner: Learner, task: Any) -> tuple[float, float]:
    """Score a task not yet learned, its classes allowed: now, and with the first weights."""
    model = learner.model
    if model.labels.classes is None and getattr(task, "classes", None) is None:
        model.labels = Labels(None if model.regression else _labels_of([task]))
    X, y, present = model.checked(task, task.X_test, task.y_test, "_test")
    with model.looking_ahead(present):
        ahead = learner.score(task.X_test, task.y_test, model.tasks)
        model.params.load(model.first)
        return ahead, model.score(model.mask.apply(model.outputs(X), model.tasks), y)


def _save(folder: Path, learner: Learner, record: Record) -> None:
    """Save the state after a task, and drop all but the one before it, in case this is damaged."""

    def write(place: Path) -> None:
        learner.save(place / "learner")
        record.save(place)

    save_whole(folder / f"after-{learner.model.tasks:04d}", write)
    for other in _saved(folder)[2:]:
        shutil.rmtree(other, ignore_errors=True)


def _saved(folder: Path) -> list[Path]:
    """Return the folders of saved states, the newest first."""
    found = folder.glob("after-*")
    return sorted((p for p in found if p.name[6:].isdecimal()), reverse=True)


def _warn(text: str) -> None:
    warnings.warn(text, OlssWarning, stacklevel=4)


def _loaded(
    folder: Path, learner: Learner, like: Record, device: str, say: Callable[[str], None]
) -> Record | None:
    """Load the newest state that is whole, if there is one, and check that it is of this run."""
    damaged = None
    for place in _saved(folder):
        try:
            verify(place)
        except DamagedCheckpointError as error:
            say(f"{error} Going back a task.")
            damaged = error
            continue
        record = Record.load(place)
        for name in ("config", "seed", "protocol"):
            if getattr(record, name) != getattr(like, name):
                raise InputError(
                    f"checkpoint {folder} belongs to another run: its {name} is "
                    f"{getattr(record, name)}, this run's is {getattr(like, name)}. Choose "
                    "another directory or delete it."
                )
        learner.load(place / "learner", device)
        return record
    if damaged:
        raise damaged
    return None


def _blank(stream: Any, learner: Learner, seed: int, protocol: str, threads: int) -> Record:
    regression = learner.parts.loss.regression
    config = {"stream": stream.config if hasattr(stream, "config") else _identity(stream)}
    config |= learner.config
    config["training"] = {**config.get("training", {}), "threads": threads}
    return Record(
        accuracy=np.empty((0, 0)),
        seed=seed,
        # As JSON gives it back, so that a saved configuration equals a live one.
        config=json.loads(json.dumps(config)),
        versions={
            name: package_version(name) for name in ("python", "olss", "numpy", "scipy", "torch")
        },
        protocol=protocol or ("" if regression else learner.parts.head.words),
        metric="r2" if regression else "accuracy",
    )


def _identity(stream: Any) -> dict[str, Any]:
    """Return what tells a stream without a configuration from others: of a list, its data."""
    identity: dict[str, Any] = {"name": type(stream).__name__}
    if isinstance(stream, (list, tuple)):
        parts = [part for t in stream for part in (t.X, t.y, t.X_test, t.y_test)]
        identity |= {"tasks": len(stream), "sha256": hash_arrays(*map(_array, parts))}
    return identity


def _array(values: Any) -> NDArray[Any]:
    array = np.asarray(values.cpu() if isinstance(values, torch.Tensor) else values)
    return array.astype(str) if array.dtype == object else array


def _extended(
    record: Record,
    task: Any,
    learner: Learner,
    scores: list[float],
    ahead: tuple[float, float],
    effort: TaskCost,
    clock: Clock,
    disturbed: list[NDArray[np.bool_]],
) -> Record:
    """Return the record with one task more."""
    count = learner.model.tasks
    accuracy = np.full((count, count), np.nan)
    memory_rows = np.zeros((count, count), np.int64)
    accuracy[:-1, :-1], accuracy[-1] = record.accuracy, scores
    memory_rows[:-1, :-1], memory_rows[-1] = record.memory_rows, learner.buffer.counts(count)
    held = learner.buffer.held
    noisy = 0 if held is None else np.concatenate(disturbed)[held.index.cpu().numpy()].sum()
    return Record(
        accuracy=accuracy,
        ahead=np.append(record.ahead, ahead[0]),
        initial=np.append(record.initial, ahead[1]),
        memory_rows=memory_rows,
        stored_examples=np.append(record.stored_examples, 0 if held is None else len(held)),
        stored_bytes=np.append(record.stored_bytes, _stored_bytes(learner)),
        steps=np.append(record.steps, effort.steps),
        row_passes=np.append(record.row_passes, effort.row_passes),
        disturbed_rows=np.append(record.disturbed_rows, noisy),
        tasks=[*record.tasks, str(getattr(task, "name", f"task {count}"))],
        seed=record.seed,
        config=record.config,
        versions=record.versions,
        protocol=record.protocol,
        metric=record.metric,
        task_seconds=_more(record.task_seconds, clock.wall | effort.seconds),
        task_cpu_seconds=_more(record.task_cpu_seconds, clock.cpu | effort.cpu_seconds),
        peak_memory=max(record.peak_memory, _peak_memory()),
    )


def _more(
    before: dict[str, NDArray[np.float64]], task: dict[str, float]
) -> dict[str, NDArray[np.float64]]:
    return {phase: np.append(values, task[phase]) for phase, values in before.items()}


def _stored_bytes(learner: Learner) -> int:
    """Return the bytes kept for later tasks beside the net.

    The remembered rows, what penalties hold, and the weights that are averaged.
    """
    held = learner.buffer.held
    states = [learner.model.average.state, *(p.state for p in learner.parts.regularizers)]
    kept = sum(value.nbytes for state in states for value in state.values())
    return kept + (0 if held is None else held.nbytes)


def _disturbed(task: Any) -> NDArray[np.bool_]:
    """Say of each training row whether a disturbance changed it."""
    found: NDArray[np.bool_] | None = getattr(task, "disturbed", None)
    return np.zeros(len(task.y), bool) if found is None else found


def _classes(stream: Any) -> Any:
    """Return all labels of a stream, if it can say or is a list that can be looked through."""
    if hasattr(stream, "classes"):
        return stream.classes
    if isinstance(stream, (list, tuple)) and stream:
        return _labels_of(stream)
    return None


def _labels_of(tasks: Sequence[Any]) -> NDArray[Any]:
    """Return all labels of tasks, those of test rows too, sorted."""
    found = [distinct(y, name) for t in tasks for y, name in ((t.y, "y"), (t.y_test, "y_test"))]
    text = {labels.dtype.kind in "UTO" for labels in found if len(labels)}
    if len(text) > 1:
        raise DataError("y holds text in some tasks and numbers in others; use one kind.")
    return np.unique([label for labels in found for label in labels])


def _peak_memory() -> int:
    """Return the largest resident size of the process so far, in bytes; 0 where unknown."""
    try:
        import resource
    except ImportError:  # Windows has none
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
