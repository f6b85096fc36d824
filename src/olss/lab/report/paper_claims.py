"""The claims of "Continual Learning via Online Leverage Score Sampling", checked.

They are those of its sections Results and Discussions on average accuracy, on the accuracy of
task 1, on tasks preserved and on wall-clock time, whose numbers are in its table; no accuracy of
the paper is a number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from olss.lab.report.claims import (
    MARGIN,
    NOT_RUN,
    Bounds,
    Claim,
    over,
    ratio_claim,
    score_claim,
    share_claim,
)
from olss.lab.report.found_runs import Group, Method
from olss.lab.report.measures import MEASURES

__all__ = ["RATIOS", "paper_claims"]

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
    yield from _times(group, found, kind, note)


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


def _times(group: Group, found: dict[str, Method | None], kind: str, note: str) -> Iterator[Claim]:
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
