"""Statistics of a report: measures of a record, and means over seeds with their intervals.

All intervals are Student's, at 95% unless a level is given: with the few seeds of a typical
experiment, normal quantiles would make them far too narrow. Comparisons are paired wherever methods
share seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from olss.streams.record import Record

LEVEL = 0.95
NAN = math.nan


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; unknown numbers are NaN."""

    mean: float
    low: float = NAN
    high: float = NAN
    sd: float = NAN  # sample standard deviation of the values (of the differences, if `paired`)
    count: int = 0  # values, or pairs of values, behind the mean
    paired: bool = False  # whether it is a difference of values that share their seeds
    least: float = NAN  # range of the values
    most: float = NAN

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def content(self) -> dict[str, float | None]:
        """Return all fields for JSON and `olss.util.text`; None stands for NaN."""
        return {k: None if math.isnan(value) else value for k, value in vars(self).items()}

    def transform(self, increasing: Callable[[float], float]) -> Interval:
        """Return the interval of an increasing function of the values; it has no `sd`."""
        return Interval(
            increasing(self.mean), increasing(self.low), increasing(self.high), count=self.count,
            paired=self.paired, least=increasing(self.least), most=increasing(self.most),
        )  # fmt: skip


def interval(values: Sequence[float] | Any, level: float = LEVEL) -> Interval:
    """Return the mean of independent values with its interval, mean ± t(n - 1) sd / sqrt(n).

    NaN values are left out: they stand for runs without this measure.

    Examples
    --------
    >>> result = interval([0.7, 0.8, 0.9])
    >>> print(f"{result.mean:.2f} ± {result.half:.2f}")
    0.80 ± 0.25
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    count = len(known)
    if count == 0:
        return Interval(NAN)
    mean, least, most = float(known.mean()), float(known.min()), float(known.max())
    if count == 1:
        return Interval(mean, count=1, least=least, most=most)
    sd = float(known.std(ddof=1))
    half = _quantile(count - 1, level) * sd / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, sd, count, least=least, most=most)


def difference(a: Mapping[Any, float], b: Mapping[Any, float], level: float = LEVEL) -> Interval:
    """Return the mean of a - b over seeds.

    Parameters
    ----------
    a, b : mapping of seed to value
        With two or more seeds in both, the differences of those seeds are averaged, so that what
        the seed does to both cancels. Otherwise, with two values on each side, Welch's interval.

    Examples
    --------
    >>> round(difference({0: 0.9, 1: 0.8}, {0: 0.7, 1: 0.6, 2: 0.1}).mean, 3)
    0.2
    """
    a = {seed: value for seed, value in a.items() if not math.isnan(value)}
    b = {seed: value for seed, value in b.items() if not math.isnan(value)}
    shared = [seed for seed in a if seed in b]
    if len(shared) >= 2 or (len(shared) == 1 and min(len(a), len(b)) == 1):
        return replace(interval([a[seed] - b[seed] for seed in shared], level), paired=True)
    return _welch(interval(list(a.values())), interval(list(b.values())), level)


def log_ratio(a: Mapping[Any, float], b: Mapping[Any, float], level: float = LEVEL) -> Interval:
    """Return the geometric mean of a / b over seeds, by `difference` of the logarithms.

    Examples
    --------
    >>> round(log_ratio({0: 20.0, 1: 80.0}, {0: 10.0, 1: 20.0}).mean, 3)
    2.828
    """
    logs = [{seed: math.log(value) for seed, value in side.items() if value > 0} for side in (a, b)]
    return difference(logs[0], logs[1], level).transform(math.exp)


def _welch(a: Interval, b: Interval, level: float) -> Interval:
    """Welch (1947): variances may differ, degrees of freedom by Satterthwaite."""
    mean, count = a.mean - b.mean, min(a.count, b.count)
    if count < 2:
        return Interval(mean, count=count)
    first, second = a.sd**2 / a.count, b.sd**2 / b.count
    if first + second == 0:
        return Interval(mean, mean, mean, 0.0, count)
    freedom = (first + second) ** 2 / (first**2 / (a.count - 1) + second**2 / (b.count - 1))
    half = _quantile(freedom, level) * math.sqrt(first + second)
    return Interval(mean, mean - half, mean + half, count=count)


def _quantile(freedom: float, level: float) -> float:
    return float(stdtrit(freedom, (1 + level) / 2))


# ------------------------------------------------------------------ measures
# R is the matrix of scores, R[i, j] the score on task j after task i, and T the number of tasks.


def forgetting(record: Record) -> float:
    """Return the forgetting of Chaudhry et al. (2018), "Riemannian walk for incremental learning".

    Examples
    --------
    >>> round(forgetting(Record(accuracy=[[0.9, float("nan")], [0.5, 0.8]])), 3)
    0.4
    """
    R = record.accuracy
    return _mean(np.fmax.reduce(R[:-1, :-1], axis=0) - R[-1, :-1]) if len(R) > 1 else NAN


def backward(record: Record) -> float:
    """Return the backward transfer of Lopez-Paz and Ranzato (2017), "Gradient episodic memory"."""
    R = record.accuracy
    return _mean((R[-1] - R.diagonal())[:-1]) if len(R) > 1 else NAN


def forward(record: Record) -> float:
    """Return the forward transfer of Lopez-Paz and Ranzato (2017)."""
    return _mean((record.ahead - record.initial)[1:]) if len(record.accuracy) > 1 else NAN


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean())


def phase_seconds(record: Record) -> dict[str, float]:
    """Return the seconds spent in "select", "train" and "evaluate".

    Processor time where the run had one thread, since other work on the machine does not lengthen
    it; wall-clock time otherwise, or where a record has no other.
    """
    clock, cpu = (
        {phase: float(values.sum()) for phase, values in spent.items()}
        for spent in (record.task_seconds, record.task_cpu_seconds)
    )
    one_thread = record.config.get("training", {}).get("threads") == 1
    return cpu if one_thread and not any(map(math.isnan, cpu.values())) else clock


def seconds(record: Record) -> float:
    """Return the seconds of selecting and training; a method has no part in evaluation."""
    spent = phase_seconds(record)
    return spent["select"] + spent["train"]


class Measure(NamedTuple):
    """A number of a record: its short title, its definition in words, and how to get it."""

    title: str
    definition: str
    of: Callable[[Record], float]


MEASURES = {
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
        lambda record: _mean(record.accuracy.diagonal()),
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
