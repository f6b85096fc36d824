"""Claims as statements that records can refute.

A claim says in which range a difference or a ratio of two methods lies. It *holds* when the
whole 95% interval over seeds lies in the range, does *not hold* when the whole interval lies
outside, and otherwise *cannot be told* from that many seeds. Words of degree have one meaning
throughout: "like" and "on par" allow `MARGIN`, "clearly" demands more than it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from olss.lab.report.collect import Group, Method
from olss.lab.report.statistics import MEASURES, Interval, difference, interval, log_ratio, seconds
from olss.streams.record import Record
from olss.util.text import format_interval, format_ratio

__all__ = [
    "MARGIN",
    "NOT_RUN",
    "RATIOS",
    "Bounds",
    "Claim",
    "over",
    "own_claims",
    "paper_claims",
    "ratio_claim",
    "score_claim",
    "share_claim",
    "verdict",
]


MARGIN = 0.02
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be told"
NOTHING = Interval(math.nan, math.nan, math.nan, math.nan, 0)
NOT_RUN = "a method it speaks of was not run"
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """A claim and what the records say.

    Attributes
    ----------
    source : str
        "paper" or "ours".
    stream : str
        Slug of the group it was checked on.
    claimed, measured : str
    verdict : str
        "holds", "does not hold" or "cannot be told".
    value : Interval
        The difference (as a share, 0.01 a point) or the ratio behind it.
    low, high : float
        The range claimed for it.
    kind : str
        "points", "ratio" or "share".
    setting : str
        Whether the records were made as in the paper.
    """

    source: str
    stream: str
    claimed: str
    measured: str
    verdict: str
    value: Interval
    low: float
    high: float
    kind: str
    setting: str = ""


def over(bound: float) -> Bounds:
    """Return the range of what is more than a bound: what equals it is outside."""
    return math.nextafter(bound, math.inf), math.inf


def verdict(value: Interval, low: float, high: float) -> str:
    """Say whether a quantity lies between two bounds, given its confidence interval.

    Examples
    --------
    >>> from olss.lab.report.statistics import interval
    >>> verdict(interval([0.030, 0.031, 0.032]), 0.02, math.inf)
    'holds'
    >>> verdict(interval([0.030]), 0.02, math.inf)
    'cannot be told'
    >>> verdict(interval([0.0, 0.0, 0.0]), *over(0.0))
    'does not hold'
    """
    if math.isnan(value.low) or math.isnan(value.high):
        return UNKNOWN
    if low <= value.low and value.high <= high:
        return HOLDS
    if value.high < low or high < value.low:
        return FAILS
    return UNKNOWN


def score_claim(
    group: Group, source: str, claimed: str, a: Method | None, b: Method | None, measure: str,
    bounds: Bounds, setting: str,
) -> Claim:  # fmt: skip
    """Claim that a's measure minus b's lies within bounds."""
    of = MEASURES[measure].of
    value, measured = _compared(difference, of, a, b, _points, "−")
    return Claim(
        source, group.slug, claimed, measured, verdict(value, *bounds), value, *bounds, "points",
        setting,
    )  # fmt: skip


def ratio_claim(
    group: Group, claimed: str, a: Method | None, b: Method | None, bounds: Bounds, setting: str
) -> Claim:
    """Claim that a's seconds divided by b's lie within bounds."""
    value, measured = _compared(log_ratio, seconds, a, b, _times, "/")
    return Claim(
        "paper", group.slug, claimed, measured, verdict(value, *bounds), value, *bounds, "ratio",
        setting,
    )  # fmt: skip


def share_claim(
    group: Group, claimed: str, shares: Sequence[float], words: str, setting: str
) -> Claim:
    """Claim that a share, given for each seed, is over one half."""
    value, measured = interval(shares), words
    if value.count:
        measured = f"{format_interval(value.content(), 0, 100)} % {words}, {_seeds(value)}"
    bounds = over(0.5)
    # A share cannot leave [0, 1], whatever Student says of few seeds.
    bounded = replace(value, low=max(value.low, 0.0), high=min(value.high, 1.0))
    return Claim(
        "paper", group.slug, claimed, measured, verdict(bounded, *bounds), bounded, *bounds,
        "share", setting,
    )  # fmt: skip


def _compared(
    compare: Callable[..., Interval], of: Callable[[Record], float], a: Method | None,
    b: Method | None, say: Callable[[Interval], str], sign: str,
) -> tuple[Interval, str]:  # fmt: skip
    """Compare two methods over seeds; return the interval and its words."""
    if a is None or b is None:
        return NOTHING, NOT_RUN
    value = compare(*({run.seed: of(run.record) for run in method.runs} for method in (a, b)))
    if math.isnan(value.mean):
        return value, "not measured"
    return value, f"{say(value)}, {a.label} {sign} {b.label}, {_seeds(value)}"


def _points(value: Interval) -> str:
    return f"{format_interval(value.content(), 1, 100, signed=True)} points"


def _times(value: Interval) -> str:
    return f"× {format_ratio(value.content())}"


def _seeds(value: Interval) -> str:
    if value.count < 2:
        return "one seed"
    return f"{value.count} {'shared ' if value.paired else ''}seeds"


# ------------------------------------------------------------------ own claims


def own_claims(group: Group) -> Iterator[Claim]:
    """Check our claims for every method with a sketch for a memory."""
    yield from _constant(group)
    for method in group.methods:
        policy = method.learner.get("policy")
        if policy is None:
            continue
        if policy != "reservoir":
            yield from _versus(
                group, method, _twins(group, method, {"policy", "scores", "features"}, "reservoir"),
                "beats a reservoir at equal memory",
            )  # fmt: skip
        if method.learner.get("regime") == "mix":
            yield from _versus(
                group, method, _twins(group, method, {"regime", "share"}, None, "sketch"),
                "beats training on the sketch alone, at equal memory",
            )  # fmt: skip
        if "alpha" in method.learner:
            yield from _versus(
                group, method, _twins(group, method, {"alpha", "beta"}, None),
                "beats the same memory without distillation",
            )  # fmt: skip


def _twins(
    group: Group, method: Method, free: set[str], policy: str | None, regime: str | None = None
) -> list[Method]:
    """Find methods equal but for the free settings (and the learning rate, tuned for each)."""

    def fixed(other: Method) -> object:
        learner = {
            key: value
            for key, value in other.learner.items()
            if key not in free | {"label", "recipe"}
            # The share of current rows means something in a mix only.
            and (key != "share" or other.learner.get("regime") == "mix")
        }
        training = {k: v for k, v in other.config.get("training", {}).items() if k != "lr"}
        return learner, training, other.config.get("net"), "gdumb" in other.recipe

    return [
        other
        for other in group.methods
        if other is not method
        and fixed(other) == fixed(method)
        and (policy is None or other.learner.get("policy") == policy)
        and (regime is None or other.learner.get("regime") == regime)
        and not (free >= {"alpha"} and "alpha" in other.learner)
    ]


def _versus(group: Group, method: Method, twins: Iterable[Method], words: str) -> Iterator[Claim]:
    for twin in twins:
        claimed = f"{method.label} {words} ({twin.label})"
        yield score_claim(group, "ours", claimed, method, twin, "average", over(0.0), "")


def _constant(group: Group) -> Iterator[Claim]:
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
    measured = f"at most {most:.1%} of the size after any task ({label}), {_methods(len(fullest))}"
    yield Claim(
        "ours", group.slug, "No memory ever holds more rows than its size", measured,
        verdict(value, 0, 1), value, 0, 1, "share",
    )  # fmt: skip


def _methods(count: int) -> str:
    return "one method" if count == 1 else f"{count} methods"


# ------------------------------------------------------------------ paper claims

FACTOR = 1.5
# Wall-clock ratios to SGD in the paper's table: rotated, permuted, incremental.
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


def paper_claims(group: Group) -> Iterator[Claim]:
    """Check the paper's claims on a group that has the paper's method on its kind of stream."""
    kind = str(group.stream.get("name"))
    if group.metric != "accuracy" or kind not in PAPER_STREAMS:
        return
    methods = _computed_alike(group.methods)
    found = {name: _best(methods, name) for name in NAMES}
    olss = found["olss"]
    if olss is None:
        return
    rivals = ["sgd", "ewc", *(["icarl"] if kind == "incremental" else [])]
    note = _setting(group, [method for method in found.values() if method is not None])

    def points(a: str, b: str, measure: str, words: str, bounds: Bounds) -> Claim:
        claimed = f"{NAMES[a]}’s {WHAT[measure]} {words}"
        return score_claim(group, "paper", claimed, found[a], found[b], measure, bounds, note)

    like = f"is like GEM’s or higher (at most {_margin()} below)"
    yield points("olss", "gem", "average", like, (-MARGIN, math.inf))
    for rival in rivals:
        clearly = f"is clearly above {NAMES[rival]}’s (over {_margin()})"
        yield points("olss", rival, "average", clearly, over(MARGIN))
    if kind == "incremental":
        below = "is slightly below GEM’s (at most 5 points)"
        yield points("olss", "gem", "first", below, (-0.05, 0.0))
    else:
        par = f"is on par with GEM’s (at most {_margin()} below)"
        yield points("olss", "gem", "first", par, (-MARGIN, math.inf))
    for subject in ("olss", "gem"):
        for rival in rivals:
            clearly = f"is clearly above {NAMES[rival]}’s (over {_margin()})"
            yield points(subject, rival, "first", clearly, over(MARGIN))
    yield points("si", "ewc", "learned", "is above EWC’s", over(0.0))
    if kind != "incremental":
        yield from (_preserved(group, found[name], NAMES[name], note) for name in ("olss", "gem"))
    yield from _time_claims(group, found, kind, note)


def _preserved(group: Group, method: Method | None, name: str, note: str) -> Claim:
    """Claim that a method preserves the accuracy of most tasks."""
    claimed = f"{name} preserves most tasks (over half end at most {_margin()} below when learned)"
    if method is None:
        return share_claim(group, claimed, [], NOT_RUN, note)
    shares = [
        float((r.accuracy[-1] >= r.accuracy.diagonal() - MARGIN)[:-1].mean())
        for r in (run.record for run in method.runs)
        if len(r.accuracy) > 1
    ]
    return share_claim(
        group, claimed, shares, f"of the tasks before the last, {method.label}", note
    )


def _time_claims(
    group: Group, found: dict[str, Method | None], kind: str, note: str
) -> Iterator[Claim]:
    order = ["sgd", "olss", "ewc", "gem"]
    if kind == "incremental":
        order = ["sgd", "ewc", "olss", "icarl", "gem"]
    for fast, slow in pairwise(order):
        claimed = f"{NAMES[fast]} is faster than {NAMES[slow]}"
        yield ratio_claim(group, claimed, found[slow], found[fast], over(1.0), note)
    for name, by_stream in RATIOS.items():
        if kind in by_stream:
            ratio = by_stream[kind]
            claimed = (
                f"{NAMES[name]} takes {ratio:.3g} times SGD’s time (give or take × {FACTOR:g})"
            )
            bounds = (ratio / FACTOR, ratio * FACTOR)
            yield ratio_claim(group, claimed, found[name], found["sgd"], bounds, note)


def _computed_alike(methods: list[Method]) -> list[Method]:
    """Return the methods of one precision, that of most runs: others differ in time, too."""
    by_precision: dict[str, list[Method]] = defaultdict(list)
    for method in methods:
        precision = method.config.get("training", {}).get("precision", "float32")
        by_precision[str(precision)].append(method)
    return max(by_precision.values(), key=lambda alike: sum(len(m.runs) for m in alike))


def _best(methods: list[Method], name: str) -> Method | None:
    """Return the method of a name; of several, the best on average of those with most seeds.

    The paper's OLSS scores the rows themselves, keeps by its own policy and trains on the sketch
    alone.
    """
    candidates = [m for m in methods if m.recipe == name]
    if name == "olss":
        candidates = [m for m in candidates if m.learner.get("policy", "paper") == "paper"]
        candidates = [m for m in candidates if m.learner.get("regime", "sketch") == "sketch"]
        candidates = [m for m in candidates if m.learner.get("features") is None]
    average = MEASURES["average"].of

    def rank(method: Method) -> tuple[int, float]:
        seeds = len(method.runs)
        return seeds, sum(average(run.record) for run in method.runs) / seeds

    return max(candidates, key=rank, default=None)


def _setting(group: Group, methods: list[Method]) -> str:
    kind, stream = str(group.stream["name"]), group.stream
    rows = stream.get("train_rows") or PAPER_ROWS[kind]
    same = (
        stream.get("dataset") == PAPER_STREAMS[kind]
        and len(group.tasks) == 20
        and rows == PAPER_ROWS[kind]
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


def _margin() -> str:
    return f"{100 * MARGIN:g} points"
