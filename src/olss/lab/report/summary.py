"""Who wins, and by how much: the sentence at the top of a report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.lab.protocol import (
    PROTOCOL_SETTINGS,
    protocol_words,
    set_on_purpose,
    setting,
    shared_settings,
)
from olss.lab.report.claims import own_claims, paper_claims
from olss.lab.report.collect import Collection, Group, Method
from olss.lab.report.figures import Style, assign_styles
from olss.lab.report.statistics import (
    LEVEL,
    MEASURES,
    Interval,
    difference,
    interval,
    log_ratio,
    phase_seconds,
    seconds,
)
from olss.streams.record import PHASES, Record
from olss.util.text import FEW, format_interval, format_score

__all__ = ["plain", "summarize", "winner"]


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
    reached = format_score(interval(list(_averages(best).values())).content(), group.metric)
    unit = "%" if group.metric == "accuracy" else "R²"
    ends = f"{group.title}: {best.label} ends highest, {reached} {unit} over all tasks"
    if len(ranked) == 1:
        return f"{group.title}: {best.label} ends at {reached} {unit} over all tasks."
    return f"{ends}, {_lead(best, ranked[1], group.metric)}."


def _lead(best: Method, second: Method, metric: str) -> str:
    gap = difference(_averages(best), _averages(second))
    factor, digits, unit = (100, 1, " points") if metric == "accuracy" else (1, 3, "")
    if round(gap.mean, 9) < 0:  # it has other seeds besides, which are better to it
        lost = difference(_averages(second), _averages(best)).content()
        below = f"{format_interval(lost, digits, factor)}{unit} below {second.label}"
        return f"but {below} on the {gap.count} seed{'s' * (gap.count != 1)} both have"
    lead = f"{format_interval(gap.content(), digits, factor)}{unit} above {second.label}"
    if math.isnan(gap.low):
        return f"{lead} (too few seeds to say whether that is chance)"
    if gap.low > 0:
        return lead
    return f"{lead}, which {gap.count} seeds cannot tell from chance"


def _mean(method: Method) -> float:
    return interval(list(_averages(method).values())).mean


def _averages(method: Method) -> dict[str, float]:
    return {run.seed: AVERAGE(run.record) for run in method.runs}


# ------------------------------------------------------------------ summary

Floats = NDArray[np.float64]


def summarize(collection: Collection) -> dict[str, Any]:
    """Compute the whole content of a report."""
    import olss

    looks = assign_styles(
        (m.label, m.recipe, m.learner.get("policy"))
        for group in collection.groups
        for m in group.methods
    )
    claims = [
        claim
        for group in collection.groups
        for found in (paper_claims(group), own_claims(group))
        for claim in found
    ]
    content = {
        "format": "olss-report",
        "version": 1,
        "olss": olss.__version__,
        "level": LEVEL,
        "measures": {name: [m.title, m.definition] for name, m in MEASURES.items()},
        "streams": [_group(group, looks) for group in collection.groups],
        "claims": [asdict(claim) for claim in claims],
        "problems": [asdict(problem) for problem in collection.problems],
    }
    clean: dict[str, Any] = plain(content)
    return clean


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no arrays, None for what is not a finite number."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Interval):
        return plain(asdict(value))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return round(value, 6) if isinstance(value, float) else value


def _group(group: Group, looks: dict[str, Style]) -> dict[str, Any]:
    shared, own = _settings(group)
    sgd = next((m for m in group.methods if m.recipe == "sgd"), None)
    return {
        "id": group.slug,
        "title": group.title,
        "winner": winner(group),
        "protocol": group.protocol,
        "protocol_words": protocol_words(
            group.stream,
            len(group.tasks),
            shared,
            group.compete if group.metric == "accuracy" else None,
        ),
        "metric": group.metric,
        "stream": group.stream,
        "tasks": group.tasks,
        "methods": [
            _method(method, looks[method.label], sgd) | {"settings": own[method.label]}
            for method in group.methods
        ],
    }


def _method(method: Method, look: Style, sgd: Method | None) -> dict[str, Any]:
    def over_seeds(of: Callable[[Record], float]) -> dict[str, Any]:
        each = [of(run.record) for run in method.runs]
        return asdict(interval(each)) | {"each": each}

    def stacked(of: Callable[[Record], Any]) -> NDArray[Any]:
        return np.stack([of(run.record) for run in method.runs])

    own, base = (
        {run.seed: seconds(run.record) for run in m.runs} if m else {} for m in (method, sgd)
    )
    return {
        "label": method.label,
        "recipe": method.recipe,
        "colour": look.colour,
        "dash": list(look.dash),
        "seeds": [run.seed for run in method.runs],
        "missing": method.missing,
        "values": {name: over_seeds(measure.of) for name, measure in MEASURES.items()}
        | {
            "seconds": over_seeds(seconds),
            "ratio": log_ratio(own, base),
            **{p: over_seeds(lambda r, p=p: phase_seconds(r)[p]) for p in PHASES},  # type: ignore[misc]
            "stored": over_seeds(lambda r: float(r.stored_examples[-1])),
            "disturbed": over_seeds(
                lambda r: float(r.disturbed_rows[-1] / max(1, r.stored_examples[-1]))
            ),
            "bytes": over_seeds(lambda r: float(r.stored_bytes[-1])),
            "peak": over_seeds(lambda r: float(r.peak_memory) or math.nan),
            "steps": over_seeds(lambda r: float(r.steps.sum())),
        },
        "curves": {
            "average": _curve(stacked(lambda r: r.average_accuracy)),
            "first": _curve(stacked(lambda r: r.accuracy[:, 0])),
            "final": _curve(stacked(lambda r: r.accuracy[-1])),
        },
        "accuracy": stacked(lambda r: r.accuracy).mean(axis=0),
        "memory_rows": stacked(lambda r: r.memory_rows).mean(axis=0),
        "runs": [
            {
                "seed": run.seed,
                "average": run.record.average_accuracy,
                "accuracy": run.record.accuracy,
                "seconds": run.record.seconds,
                "versions": run.record.versions,
            }
            for run in method.runs
        ],
    }


def _curve(values: Floats) -> dict[str, Any]:
    """Return the mean of curves (seeds, points) with its interval, and the curves if few."""
    points = [interval(column).content() for column in values.T]
    keys = ("mean", "low", "high", "least", "most", "count")
    few = values.tolist() if 1 < len(values) < FEW else []
    return {key: [point[key] for point in points] for key in keys} | {"runs": few}


def _settings(group: Group) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the training settings all methods share, and each method's own in words."""
    whole = {
        m.label: {"net": m.config.get("net")} | dict(m.config.get("training", {}))
        for m in group.methods
    }
    shared = shared_settings(list(whole.values()))
    purposely = {label: set_on_purpose(settings) for label, settings in whole.items()}
    own = {}
    for method in group.methods:
        mine = purposely[method.label]
        training = {
            key: mine[key]
            for key in dict.fromkeys([*PROTOCOL_SETTINGS, *mine])
            if key in mine and any(other.get(key) != mine[key] for other in purposely.values())
        }
        learner = {
            key: value
            for key, value in set_on_purpose(method.learner).items()
            if key not in ("label", "recipe")
            # A share is of a mix of current and remembered rows.
            and not (key == "share" and method.learner.get("regime") != "mix")
        }
        own[method.label] = ", ".join(setting(k, v) for k, v in (training | learner).items())
    return shared, own
