"""Everything a report says, as one JSON-able dictionary; tables, figures and page read it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.lab.protocol import (
    PROTOCOL_SETTINGS,
    describe_protocol,
    describe_setting,
    drop_defaults,
    shared_settings,
)
from olss.lab.report.claims import own_claims, paper_claims
from olss.lab.report.collect import Collection, Group, Method
from olss.lab.report.figures import Style, assign_styles
from olss.lab.report.statistics import (
    LEVEL,
    MEASURES,
    difference,
    interval,
    log_ratio,
    phase_seconds,
    seconds,
)
from olss.streams.record import PHASES, Record
from olss.util.text import FEW, format_interval, format_score

__all__ = ["summarize"]


def summarize(collection: Collection) -> dict[str, Any]:
    """Compute the whole content of a report."""
    import olss

    groups = collection.groups
    styles = assign_styles(
        (m.label, m.recipe, m.learner.get("policy")) for group in groups for m in group.methods
    )
    claims = [claim for g in groups for of in (paper_claims, own_claims) for claim in of(g)]
    content: dict[str, Any] = _to_json(
        {
            "format": "olss-report",
            "version": 1,
            "olss": olss.__version__,
            "level": LEVEL,
            "measures": {name: [m.title, m.definition] for name, m in MEASURES.items()},
            "streams": [_summarize_group(group, styles) for group in groups],
            "claims": [asdict(claim) for claim in claims],
            "problems": [asdict(problem) for problem in collection.problems],
        }
    )
    return content


def _to_json(value: Any) -> Any:
    """Return a value as JSON has it: no arrays, None for what is not a finite number."""
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return _to_json(value.tolist())
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _summarize_group(group: Group, styles: dict[str, Style]) -> dict[str, Any]:
    shared, own = _describe_settings(group)
    compete = group.compete if group.metric == "accuracy" else None
    sgd = next((m for m in group.methods if m.recipe == "sgd"), None)
    return {
        "id": group.slug,
        "title": group.title,
        "winner": describe_winner(group),
        "protocol": group.protocol,
        "protocol_words": describe_protocol(group.stream, len(group.tasks), shared, compete),
        "metric": group.metric,
        "stream": group.stream,
        "tasks": group.tasks,
        "methods": [
            _summarize_method(method, styles[method.label], sgd) | {"settings": own[method.label]}
            for method in group.methods
        ],
    }


def _summarize_method(method: Method, style: Style, sgd: Method | None) -> dict[str, Any]:
    records = [run.record for run in method.runs]

    def over_seeds(of: Callable[[Record], float]) -> dict[str, Any]:
        each = [of(record) for record in records]
        return asdict(interval(each)) | {"each": each}

    def spent_in(phase: str) -> dict[str, Any]:
        return over_seeds(lambda record: phase_seconds(record)[phase])

    accuracy = np.stack([record.accuracy for record in records])
    own, base = (
        {run.seed: seconds(run.record) for run in m.runs} if m else {} for m in (method, sgd)
    )
    return {
        "label": method.label,
        "recipe": method.recipe,
        "colour": style.colour,
        "dash": list(style.dash),
        "seeds": [run.seed for run in method.runs],
        "missing": method.missing,
        "values": {name: over_seeds(measure.of) for name, measure in MEASURES.items()}
        | {phase: spent_in(phase) for phase in PHASES}
        | {
            "seconds": over_seeds(seconds),
            "ratio": asdict(log_ratio(own, base)),
            "stored": over_seeds(lambda r: float(r.stored_examples[-1])),
            "disturbed": over_seeds(
                lambda r: float(r.disturbed_rows[-1] / max(1, r.stored_examples[-1]))
            ),
            "bytes": over_seeds(lambda r: float(r.stored_bytes[-1])),
            "peak": over_seeds(lambda r: float(r.peak_memory) or math.nan),
            "steps": over_seeds(lambda r: float(r.steps.sum())),
        },
        "curves": {
            "average": _curve(np.stack([record.average_accuracy for record in records])),
            "first": _curve(accuracy[:, :, 0]),
            "final": _curve(accuracy[:, -1]),
        },
        "accuracy": accuracy.mean(axis=0),
        "memory_rows": np.mean([record.memory_rows for record in records], axis=0),
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


def _curve(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the mean of curves (seeds, points) with its interval, and the curves if few."""
    points = [asdict(interval(column)) for column in values.T]
    keys = ("mean", "low", "high", "least", "most", "count")
    few = values.tolist() if 1 < len(values) < FEW else []
    return {key: [point[key] for point in points] for key in keys} | {"runs": few}


def _describe_settings(group: Group) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the training settings all methods share, and each method's own in words."""
    whole = [{"net": m.config.get("net"), **m.config.get("training", {})} for m in group.methods]
    chosen = [drop_defaults(settings) for settings in whole]
    own = {}
    for method, mine in zip(group.methods, chosen, strict=True):
        training = {
            key: mine[key]
            for key in dict.fromkeys([*PROTOCOL_SETTINGS, *mine])
            if key in mine and any(other.get(key) != mine[key] for other in chosen)
        }
        learner = drop_defaults(method.learner)
        if learner.get("regime") != "mix":
            learner.pop("share", None)  # of a mix of current and remembered rows
        words = [
            describe_setting(key, value)
            for key, value in (training | learner).items()
            if key not in ("label", "recipe")
        ]
        own[method.label] = ", ".join(words)
    return shared_settings(whole), own


def describe_winner(group: Group) -> str:
    """Return a sentence on the method with the highest average and its lead over the next.

    Training on everything (`joint`) does not compete: it is there as the upper bound.
    """
    competing = [method for method in group.methods if method.recipe != "joint"]
    averages = {method.label: _averages(method) for method in competing or group.methods}
    means = {label: interval(list(scores.values())) for label, scores in averages.items()}
    ranked = [label for label, value in means.items() if not math.isnan(value.mean)]
    ranked.sort(key=lambda label: means[label].mean, reverse=True)
    if not ranked:
        return f"{group.title}: no method has an average over all tasks."
    best, *others = ranked
    unit = "%" if group.metric == "accuracy" else "R²"
    score = f"{format_score(means[best].content(), group.metric)} {unit} over all tasks"
    if not others:
        return f"{group.title}: {best} ends at {score}."
    lead = _describe_lead(averages[best], averages[others[0]], others[0], group.metric)
    return f"{group.title}: {best} ends highest, {score}, {lead}."


def _describe_lead(best: dict[str, float], second: dict[str, float], name: str, metric: str) -> str:
    gap = difference(best, second)
    factor, digits, unit = (100, 1, " points") if metric == "accuracy" else (1, 3, "")
    if round(gap.mean, 9) < 0:  # its mean is higher thanks to seeds that the other lacks
        lost = difference(second, best).content()
        below = f"{format_interval(lost, digits, factor)}{unit} below {name}"
        return f"but {below} on the {gap.count} seed{'s' * (gap.count != 1)} both have"
    lead = f"{format_interval(gap.content(), digits, factor)}{unit} above {name}"
    if math.isnan(gap.low):
        return f"{lead} (too few seeds to say whether that is chance)"
    return lead if gap.low > 0 else f"{lead}, which {gap.count} seeds cannot tell from chance"


def _averages(method: Method) -> dict[str, float]:
    return {run.seed: MEASURES["average"].of(run.record) for run in method.runs}
