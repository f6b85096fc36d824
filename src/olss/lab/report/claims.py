"""Claims as statements that records can refute.

A claim says in which range a difference or a ratio of two methods lies. It *holds* when the
whole 95% interval over seeds lies in the range, does *not hold* when the whole interval lies
outside, and otherwise *cannot be told* from that many seeds. Words of degree have one meaning
throughout: "like" and "on par" allow `MARGIN`, "clearly" demands more than it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from olss.lab.report.found_runs import Group, Method
from olss.lab.report.measures import MEASURES, seconds
from olss.lab.seed_intervals import Interval, difference, interval, log_ratio
from olss.streams.record import Record
from olss.util.text import ratio, spread

__all__ = [
    "MARGIN", "NOT_RUN", "Bounds", "Claim", "over", "ratio_claim", "score_claim", "share_claim",
    "verdict",
]  # fmt: skip

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
    >>> from olss.lab.seed_intervals import interval
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
        measured = f"{spread(value.ends(), 0, 100)} % {words}, {_seeds(value)}"
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
    return f"{spread(value.ends(), 1, 100, signed=True)} points"


def _times(value: Interval) -> str:
    return f"× {ratio(value.ends())}"


def _seeds(value: Interval) -> str:
    if value.count < 2:
        return "one seed"
    return f"{value.count} {'shared ' if value.paired else ''}seeds"
