"""Our own claims, checked: what a choice is worth against its nearest alternative.

Each compares two methods of one experiment that are equal but for that choice and, since it
is tuned for each, the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from olss.lab.report.claims import Claim, over, score_claim, verdict
from olss.lab.report.found_runs import Group, Method
from olss.lab.seed_intervals import Interval

__all__ = ["own_claims"]


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
