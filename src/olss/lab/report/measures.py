"""What is read off a record, each measure one number, each definition stated.

R is the matrix of scores, R[i, j] the score on task j after task i, and T the number of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from olss.streams.record import Record

__all__ = ["MEASURES", "Measure", "backward", "forgetting", "forward", "phase_seconds", "seconds"]


def forgetting(record: Record) -> float:
    """Mean over all tasks but the last of the best score a task ever had minus its last.

    Chaudhry et al. (2018), "Riemannian walk for incremental learning".

    Examples
    --------
    >>> round(forgetting(Record(accuracy=[[0.9, float("nan")], [0.5, 0.8]])), 3)
    0.4
    """
    R = record.accuracy
    if len(R) < 2:
        return math.nan
    return float((np.fmax.reduce(R[:-1, :-1], axis=0) - R[-1, :-1]).mean())


def backward(record: Record) -> float:
    """Mean over all tasks but the last of R[T, j] - R[j, j].

    Lopez-Paz and Ranzato (2017), "Gradient episodic memory"; divided by T - 1 as written there.
    """
    R = record.accuracy
    if len(R) < 2:
        return math.nan
    return float((R[-1] - R.diagonal())[:-1].mean())


def forward(record: Record) -> float:
    """Mean over all tasks but the first of the score just before learning minus at the start.

    Lopez-Paz and Ranzato (2017); the start is the net as initialised.
    """
    if len(record.accuracy) < 2:
        return math.nan
    return float((record.ahead - record.initial)[1:].mean())


def phase_seconds(record: Record) -> dict[str, float]:
    """Return the seconds spent in "select", "train" and "evaluate".

    Of the processor where the run had one thread, since other work on the machine does not
    lengthen those; of the clock otherwise, or where a record has no others.
    """
    clock, cpu = (
        {phase: float(values.sum()) for phase, values in spent.items()}
        for spent in (record.task_seconds, record.task_cpu_seconds)
    )
    one = record.config.get("training", {}).get("threads") == 1
    return cpu if one and not any(map(math.isnan, cpu.values())) else clock


def seconds(record: Record) -> float:
    """Seconds of selecting and training; evaluation is not a method's doing."""
    spent = phase_seconds(record)
    return spent["select"] + spent["train"]


@dataclass(frozen=True)
class Measure:
    """A number of a record: its short title, its definition in words, and how to get it."""

    title: str
    definition: str
    of: Callable[[Record], float]


MEASURES: dict[str, Measure] = {
    "average": Measure(
        "Average",
        "mean score over all tasks after the last one",
        lambda record: float(record.average_accuracy[-1]),
    ),
    "first": Measure(
        "Task 1",
        "score on task 1 after the last task",
        lambda record: float(record.accuracy[-1, 0]),
    ),
    "newest": Measure(
        "Newest task",
        "score on the last task after it was learned",
        lambda record: float(record.accuracy[-1, -1]),
    ),
    "learned": Measure(
        "When learned",
        "mean over tasks of the score right after learning the task",
        lambda record: float(record.accuracy.diagonal().mean()),
    ),
    "forgetting": Measure(
        "Forgetting",
        "mean over all tasks but the last of the best score a task ever had before the end minus "
        "its score at the end (Chaudhry et al. 2018)",
        forgetting,
    ),
    "backward": Measure(
        "Backward transfer",
        "mean over all tasks but the last of the score at the end minus the score right after "
        "learning the task, divided by T − 1 (Lopez-Paz and Ranzato 2017)",
        backward,
    ),
    "forward": Measure(
        "Forward transfer",
        "mean over all tasks but the first of the score just before learning the task minus the "
        "score of the net as initialised, divided by T − 1 (Lopez-Paz and Ranzato 2017)",
        forward,
    ),
}
