"""Our own claims, checked: what a choice is worth against its nearest alternative.

Each compares two methods of one experiment that are equal but for that choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from olss.lab.report.claims import Claim, score_claim, verdict
from olss.lab.report.collect import Group, Method
from olss.lab.report.statistics import Interval

__all__ = ["own_claims"]


def own_claims(group: Group) -> Iterator[Claim]:
    """Check our claims for every method with a sketch for a memory."""
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
        yield from _constant(group, method)


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
        yield score_claim(group, "ours", claimed, method, twin, "average", (0.0, math.inf), "")


def _constant(group: Group, method: Method) -> Iterator[Claim]:
    size = method.learner.get("size")
    if not isinstance(size, int):
        return
    most = max(int(run.record.stored_examples.max()) for run in method.runs)
    value = Interval(most, most, most, 0.0, len(method.runs))
    yield Claim(
        "ours", group.slug, f"{method.label} never keeps more than {size:,} examples",
        f"at most {most:,} after any task, in {_runs(len(method.runs))}",
        verdict(value, 0, size), value, 0, size, "count",
    )  # fmt: skip


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"
