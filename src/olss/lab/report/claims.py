"""Claims as statements that records can refute: the paper's and our own.

A claim gives a range for a difference or a ratio of two methods. It *holds* when the whole interval
over seeds lies in the range, does *not hold* when the whole interval lies outside, and otherwise
*cannot be told* from that many seeds. Almost every range has one end that matters, so intervals are
those of 90%, with 5% beyond either end: a verdict is wrong at most once in twenty (two one-sided
tests, Schuirmann 1987).

Two runs make a pair if they share seed and precision, and pairs of several precisions count
together: arithmetic changes time more than methods do, but a difference within one precision is a
difference of methods. Words of degree have one meaning throughout: "like" and "on par" allow
`MARGIN`, "clearly" demands more than it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from olss.lab.report.collect import Group, Method
from olss.lab.report.statistics import (
    MEASURES,
    Interval,
    difference,
    interval,
    log_ratio,
    seconds,
)
from olss.streams.record import Record
from olss.util.text import format_interval, format_ratio

LEVEL = 0.9  # 5% beyond either end
MARGIN = 0.02
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be told"
NOT_RUN = "a method it speaks of was not run"
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """A claim and what the records say."""

    source: str  # "paper" or "ours"
    stream: str  # slug of the group it was checked on
    claimed: str
    measured: str
    verdict: str  # "holds", "does not hold" or "cannot be told"
    value: Interval  # the difference (as a share, 0.01 a point) or the ratio behind it
    low: float  # the range claimed for it
    high: float
    kind: str  # "points", "ratio" or "share"
    setting: str = ""  # whether the records were made as in the paper


def over(bound: float) -> Bounds:
    """Return the range above a bound: the bound itself is outside."""
    return math.nextafter(bound, math.inf), math.inf


def verdict(value: Interval, low: float, high: float) -> str:
    """Return whether a quantity lies between two bounds, given its confidence interval.

    Examples
    --------
    >>> verdict(interval([0.030, 0.031, 0.032]), 0.02, math.inf)
    'holds'
    >>> verdict(interval([0.030]), 0.02, math.inf)
    'cannot be told'
    >>> verdict(interval([0.0, 0.0, 0.0]), *over(0.0))
    'does not hold'
    """
    if low <= value.low and value.high <= high:
        return HOLDS
    if value.high < low or high < value.low:
        return FAILS
    return UNKNOWN  # also without an interval, since comparisons with NaN are false


def _score_claim(
    group: Group, source: str, claimed: str, a: Sequence[Method], b: Sequence[Method], measure: str,
    bounds: Bounds, setting: str = "",
) -> Claim:  # fmt: skip
    """Check that a's measure minus b's lies within bounds."""

    def write(value: Interval) -> str:
        return f"{format_interval(value.content(), 1, 100, signed=True)} points"

    value, measured = _compare(difference, MEASURES[measure].of, a, b, write, "−")
    outcome = verdict(value, *bounds)
    return Claim(source, group.slug, claimed, measured, outcome, value, *bounds, "points", setting)


def _ratio_claim(
    group: Group, claimed: str, a: Sequence[Method], b: Sequence[Method], bounds: Bounds,
    setting: str,
) -> Claim:  # fmt: skip
    """Check that a's seconds divided by b's lie within bounds."""

    def write(value: Interval) -> str:
        return f"× {format_ratio(value.content())}"

    value, measured = _compare(log_ratio, seconds, a, b, write, "/")
    outcome = verdict(value, *bounds)
    return Claim("paper", group.slug, claimed, measured, outcome, value, *bounds, "ratio", setting)


def _share_claim(
    group: Group, claimed: str, shares: Sequence[float], words: str, setting: str
) -> Claim:
    """Check that a share, given for each seed, is over one half."""
    value, measured, bounds = interval(shares, LEVEL), words, over(0.5)
    if value.count:
        percent = format_interval(value.content(), 0, 100)
        measured = f"{percent} % {words}, {_count_seeds(value)}"
    # A share cannot leave [0, 1], whatever Student's interval of few seeds is.
    value = replace(value, low=max(value.low, 0.0), high=min(value.high, 1.0))
    outcome = verdict(value, *bounds)
    return Claim("paper", group.slug, claimed, measured, outcome, value, *bounds, "share", setting)


def _compare(
    compare: Callable[..., Interval], of: Callable[[Record], float], a: Sequence[Method],
    b: Sequence[Method], write: Callable[[Interval], str], sign: str,
) -> tuple[Interval, str]:  # fmt: skip
    """Compare two methods, each given in the precisions it was run in; return interval and words.

    A seed that was run in several precisions counts in the first of them.
    """
    pairs = [(one, other) for one in a for other in b if _precision(one) == _precision(other)]
    if not pairs:
        return Interval(math.nan), NOT_RUN
    if len(pairs) == 1:
        value = compare(*(_by_seed(method, of) for method in pairs[0]), level=LEVEL)
    else:
        sides: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for pair in pairs:
            first, second = (_by_seed(method, of) for method in pair)
            for seed in first.keys() & second.keys() - sides[0].keys():
                if not math.isnan(first[seed] - second[seed]):
                    sides[0][seed], sides[1][seed] = first[seed], second[seed]
        value = compare(*sides, level=LEVEL)
    if math.isnan(value.mean):
        return value, "not measured"
    one, other = pairs[0]
    also = f", {len(pairs)} precisions" if len(pairs) > 1 else ""
    return value, f"{write(value)}, {one.label} {sign} {other.label}, {_count_seeds(value)}{also}"


def _by_seed(method: Method, of: Callable[[Record], float]) -> dict[str, float]:
    return {run.seed: of(run.record) for run in method.runs}


def _precision(method: Method) -> str:
    return str(method.config.get("training", {}).get("precision", "float32"))


def _count_seeds(value: Interval) -> str:
    if value.count < 2:
        return "one seed"
    return f"{value.count} {'shared ' if value.paired else ''}seeds"


# ------------------------------------------------------------------ our own claims


def own_claims(group: Group) -> Iterator[Claim]:
    """Check our claims for every method with a sketch for a memory.

    Each compares two methods that are equal but for one choice and, since it is tuned for each,
    the learning rate.
    """
    yield from _check_sizes(group)
    for method in group.methods:
        if method.learner.get("policy") is None:
            continue
        if method.learner["policy"] != "reservoir":
            free = {"policy", "scores", "features"}
            twins = _find_twins(group, method, free, policy="reservoir")
            yield from _compare_with(group, method, twins, "beats a reservoir at equal memory")
        if method.learner.get("regime") == "mix":
            twins = _find_twins(group, method, {"regime", "share"}, regime="sketch")
            words = "beats training on the sketch alone, at equal memory"
            yield from _compare_with(group, method, twins, words)
        if "alpha" in method.learner:
            twins = _find_twins(group, method, {"alpha", "beta"})
            twins = [twin for twin in twins if "alpha" not in twin.learner]
            yield from _compare_with(
                group, method, twins, "beats the same memory without distillation"
            )


def _find_twins(group: Group, method: Method, free: set[str], **wanted: str) -> list[Method]:
    """Return the methods with the wanted settings, equal but for the free ones."""

    def fixed(other: Method) -> object:
        learner = {
            key: value
            for key, value in other.learner.items()
            if key not in free | {"label", "recipe"}
            # `share` only has an effect with regime='mix'.
            and (key != "share" or other.learner.get("regime") == "mix")
        }
        training = {k: v for k, v in other.config.get("training", {}).items() if k != "lr"}
        return learner, training, other.config.get("net"), "gdumb" in other.recipe

    return [
        other
        for other in group.methods
        if other is not method
        and fixed(other) == fixed(method)
        and all(other.learner.get(key) == value for key, value in wanted.items())
    ]


def _compare_with(
    group: Group, method: Method, twins: Iterable[Method], words: str
) -> Iterator[Claim]:
    for twin in twins:
        claimed = f"{method.label} {words} ({twin.label})"
        yield _score_claim(group, "ours", claimed, [method], [twin], "average", over(0.0))


def _check_sizes(group: Group) -> Iterator[Claim]:
    """Claim of all methods with a fixed budget at once that none ever exceeds it."""
    fullest = {
        method.label: max(int(run.record.stored_examples.max()) for run in method.runs) / size
        for method in group.methods
        if isinstance(size := method.learner.get("size"), int)
    }
    if not fullest:
        return
    label, most = max(fullest.items(), key=lambda item: item[1])
    value = Interval(most, most, most, 0.0, len(fullest))
    methods = "one method" if len(fullest) == 1 else f"{len(fullest)} methods"
    measured = f"at most {most:.1%} of the size after any task ({label}), {methods}"
    claimed = "No memory ever holds more rows than its size"
    outcome = verdict(value, 0, 1)
    yield Claim("ours", group.slug, claimed, measured, outcome, value, 0, 1, "share")


# ------------------------------------------------------------------ the paper's claims

# "Continual Learning via Online Leverage Score Sampling", sections Results and Discussions:
# average accuracy, accuracy of task 1, tasks preserved, and wall-clock time, whose ratios to SGD
# are in its table. No accuracy of the paper is given as a number.
FACTOR = 1.5
RATIOS = {
    "ewc": {"rotated": 5.97, "permuted": 5.89, "incremental": 1.56},
    "gem": {"rotated": 55.0, "permuted": 58.2, "incremental": 22.9},
    "icarl": {"incremental": 3.59},
    "olss": {"rotated": 3.14, "permuted": 2.99, "incremental": 1.75},
}
PAPER_STREAMS = {"rotated": "mnist", "permuted": "mnist", "incremental": "cifar100"}
PAPER_ROWS = {"rotated": 60_000, "permuted": 60_000, "incremental": 2_500}
PAPER_TRAINING = {"rotated": (5, 200), "permuted": (5, 200), "incremental": (10, 100)}
WHAT = {
    "average": "average accuracy",
    "first": "final accuracy on task 1",
    "learned": "accuracy on a task just learned",
}
NAMES = {"sgd": "SGD", "ewc": "EWC", "gem": "GEM", "icarl": "iCaRL", "olss": "OLSS", "si": "SI"}
POINTS = f"{100 * MARGIN:g} points"


def paper_claims(group: Group) -> Iterator[Claim]:
    """Check the paper's claims on a group that has the paper's method on its kind of stream."""
    kind = str(group.stream.get("name"))
    if group.metric != "accuracy" or kind not in PAPER_STREAMS:
        return
    precisions = _by_precision(group.methods)
    found = {
        name: [m for methods in precisions if (m := _best(methods, name)) is not None]
        for name in NAMES
    }
    if not found["olss"]:
        return
    rivals = ["sgd", "ewc", *(["icarl"] if kind == "incremental" else [])]
    note = _compare_setting(group, [method for methods in found.values() for method in methods])

    def points(a: str, b: str, measure: str, words: str, bounds: Bounds) -> Claim:
        claimed = f"{NAMES[a]}’s {WHAT[measure]} {words}"
        return _score_claim(group, "paper", claimed, found[a], found[b], measure, bounds, note)

    def clearly_above(a: str, measure: str) -> Iterator[Claim]:
        for rival in rivals:
            words = f"is clearly above {NAMES[rival]}’s (over {POINTS})"
            yield points(a, rival, measure, words, over(MARGIN))

    like = f"is like GEM’s or higher (at most {POINTS} below)"
    yield points("olss", "gem", "average", like, (-MARGIN, math.inf))
    yield from clearly_above("olss", "average")
    if kind == "incremental":
        below = "is slightly below GEM’s (at most 5 points)"
        yield points("olss", "gem", "first", below, (-0.05, 0.0))
    else:
        par = f"is on par with GEM’s (at most {POINTS} below)"
        yield points("olss", "gem", "first", par, (-MARGIN, math.inf))
    yield from clearly_above("olss", "first")
    yield from clearly_above("gem", "first")
    yield points("si", "ewc", "learned", "is above EWC’s", over(0.0))
    if kind != "incremental":
        yield from (
            _preservation_claim(group, found[name], NAMES[name], note) for name in ("olss", "gem")
        )
    yield from _time_claims(group, found, kind, note)


def _preservation_claim(group: Group, methods: Sequence[Method], name: str, note: str) -> Claim:
    """Claim that a method preserves the accuracy of most tasks."""
    claimed = f"{name} preserves most tasks (over half end at most {POINTS} below when learned)"
    if not methods:
        return _share_claim(group, claimed, [], NOT_RUN, note)
    runs = {run.seed: run.record for method in reversed(methods) for run in method.runs}
    shares = [
        float((r.accuracy[-1] >= r.accuracy.diagonal() - MARGIN)[:-1].mean())
        for r in runs.values()
        if len(r.accuracy) > 1
    ]
    words = f"of the tasks before the last, {methods[0].label}"
    return _share_claim(group, claimed, shares, words, note)


def _time_claims(
    group: Group, found: dict[str, list[Method]], kind: str, note: str
) -> Iterator[Claim]:
    order = ["sgd", "olss", "ewc", "gem"]
    if kind == "incremental":
        order = ["sgd", "ewc", "olss", "icarl", "gem"]
    for fast, slow in pairwise(order):
        claimed = f"{NAMES[fast]} is faster than {NAMES[slow]}"
        yield _ratio_claim(group, claimed, found[slow], found[fast], over(1.0), note)
    for name, by_stream in RATIOS.items():
        if (ratio := by_stream.get(kind)) is not None:
            words = f"takes {ratio:.3g} times SGD’s time (give or take × {FACTOR:g})"
            bounds = (ratio / FACTOR, ratio * FACTOR)
            claimed = f"{NAMES[name]} {words}"
            yield _ratio_claim(group, claimed, found[name], found["sgd"], bounds, note)


def _by_precision(methods: list[Method]) -> list[list[Method]]:
    """Return the methods of each precision, that of most runs first."""
    found: dict[str, list[Method]] = defaultdict(list)
    for method in methods:
        found[_precision(method)].append(method)
    return sorted(found.values(), key=lambda same: -sum(len(m.runs) for m in same))


def _best(methods: list[Method], name: str) -> Method | None:
    """Return the method of a name; of several, the best on average of those with most seeds.

    The paper's OLSS scores the rows themselves, keeps by its own policy and trains on the sketch
    alone.
    """
    candidates = [m for m in methods if m.recipe == name]
    if name == "olss":
        paper = {"policy": "paper", "regime": "sketch", "features": None}
        candidates = [
            m for m in candidates if all(m.learner.get(k, v) == v for k, v in paper.items())
        ]

    def rank(method: Method) -> tuple[int, float]:
        scores = [MEASURES["average"].of(run.record) for run in method.runs]
        return len(scores), sum(scores) / len(scores)

    return max(candidates, key=rank, default=None)


def _compare_setting(group: Group, methods: list[Method]) -> str:
    """Return in words whether the runs were made as in the paper."""
    kind, stream = str(group.stream["name"]), group.stream
    same = (
        stream.get("dataset") == PAPER_STREAMS[kind]
        and len(group.tasks) == 20
        and (stream.get("train_rows") or PAPER_ROWS[kind]) == PAPER_ROWS[kind]
        and not stream.get("steps")
        and "validation" not in stream
    )
    trainings = {method.label: method.config.get("training", {}) for method in methods}
    other = [
        label
        for label, training in trainings.items()
        if (training.get("epochs"), training.get("batch")) != PAPER_TRAINING[kind]
    ]
    if not same or len(other) == len(methods):
        return "not the paper’s setting"
    but = f", but for {', '.join(other)}" if other else ""
    return f"rows, epochs and batch as in the paper{but}"
