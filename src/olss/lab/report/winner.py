"""Who wins, and by how much: the sentence at the top of a report."""

from __future__ import annotations

import math

from olss.lab.report.found_runs import Group, Method
from olss.lab.report.measures import MEASURES
from olss.lab.seed_intervals import difference, interval
from olss.util.text import score, spread

__all__ = ["winner"]

AVERAGE = MEASURES["average"].of


def winner(group: Group) -> str:
    """Return a sentence on the method with the highest average and its lead over the next.

    Training on everything (`joint`) is out of the contest: nobody can afford it, and it is there
    as the upper line.
    """
    everybody = [method for method in group.methods if method.recipe != "joint"]
    known = [method for method in everybody or group.methods if not math.isnan(_mean(method))]
    if not known:
        return f"{group.title}: no method has an average over all tasks."
    ranked = sorted(known, key=_mean, reverse=True)
    best = ranked[0]
    reached = score(interval(list(_averages(best).values())).ends(), group.metric)
    unit = "%" if group.metric == "accuracy" else "R²"
    ends = f"{group.title}: {best.label} ends highest, {reached} {unit} over all tasks"
    if len(ranked) == 1:
        return f"{group.title}: {best.label} ends at {reached} {unit} over all tasks."
    return f"{ends}, {_lead(best, ranked[1], group.metric)}."


def _lead(best: Method, second: Method, metric: str) -> str:
    gap = difference(_averages(best), _averages(second))
    factor, digits, unit = (100, 1, " points") if metric == "accuracy" else (1, 3, "")
    if round(gap.mean, 9) < 0:  # it has other seeds besides, which are better to it
        lost = difference(_averages(second), _averages(best)).ends()
        below = f"{spread(lost, digits, factor)}{unit} below {second.label}"
        return f"but {below} on the {gap.count} seed{'s' * (gap.count != 1)} both have"
    lead = f"{spread(gap.ends(), digits, factor)}{unit} above {second.label}"
    if math.isnan(gap.low):
        return f"{lead} (too few seeds to say whether that is chance)"
    if gap.low > 0:
        return lead
    return f"{lead}, which {gap.count} seeds cannot tell from chance"


def _mean(method: Method) -> float:
    return interval(list(_averages(method).values())).mean


def _averages(method: Method) -> dict[str, float]:
    return {run.seed: AVERAGE(run.record) for run in method.runs}
