"""The demo's picture: what is remembered, task after task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import MissingExtraError
from olss.streams.record import Record

__all__ = ["draw_demo", "spread"]

STYLES: dict[str, dict[str, Any]] = {
    "joint": {"color": "#8a8a8a", "linestyle": (0, (4, 2)), "linewidth": 1.6},
    "balanced": {"color": "#15803d", "linewidth": 2.6, "zorder": 4},
    "olss": {"color": "#c2410c", "linewidth": 2.6, "zorder": 4},
    "reservoir": {"color": "#2563a8", "linewidth": 1.8},
    "sgd": {"color": "#3f3f46", "linewidth": 1.8},
}
INK, FAINT = "#27272a", "#e4e4e7"


def draw_demo(
    records: Mapping[str, Sequence[Record]], titles: Mapping[str, str], path: Path
) -> None:
    """Draw a row for each stream: average accuracy on the left, task 1 on the right.

    Parameters
    ----------
    records : mapping of str to records
        Of each stream; the learner's label is in each record.
    titles : mapping of str to str
        What each stream is.
    path : Path
        File to write.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "The picture") from error
    figure = Figure(figsize=(9.6, 3.4 * len(records) + 0.5), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
    parts = figure.subfigures(len(records), 1, squeeze=False)[:, 0]
    for part, (name, runs) in zip(parts, records.items(), strict=True):
        part.suptitle(titles[name], x=0.012, ha="left", fontsize=11.5, weight="bold", color=INK)
        left, right = part.subplots(1, 2, sharey=True)
        _draw(left, runs, "average accuracy on the tasks so far, %", 0)
        _draw(right, runs, "accuracy on task 1, %", 1)
    figure.savefig(path, facecolor="white")


def _draw(axes: Any, records: Sequence[Record], title: str, column: int) -> None:
    curves: dict[str, list[Any]] = {}
    for record in records:
        curve = record.accuracy[:, 0] if column else record.average_accuracy
        curves.setdefault(record.config["learner"]["label"], []).append(100 * curve)
    means = {label: np.mean(curves[label], axis=0) for label in STYLES if label in curves}
    tasks = np.arange(1, len(next(iter(means.values()))) + 1)
    for label, mean in means.items():
        style = STYLES[label]
        if len(curves[label]) > 1:
            low, high = np.min(curves[label], axis=0), np.max(curves[label], axis=0)
            axes.fill_between(tasks, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.plot(tasks, mean, solid_capstyle="round", **style)
    places = spread([mean[-1] for mean in means.values()], gap=7.0, high=101)
    for label, place in zip(means, places, strict=True):
        text = {"color": STYLES[label]["color"], "va": "center", "fontsize": 9.5}
        weight = "bold" if label in ("olss", "balanced") else "normal"
        axes.text(tasks[-1] + 0.25, place, label, weight=weight, clip_on=False, **text)
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.set(xlim=(1, tasks[-1]), ylim=(0, 101), xticks=tasks, yticks=range(0, 101, 20))
    axes.set_xlabel("tasks learned", color=INK, fontsize=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK, labelsize=8.5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#a1a1aa")


def spread(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Move labels apart until each two are `gap` apart, none above `high`, order kept.

    Examples
    --------
    >>> spread([10.0, 11.0, 50.0], gap=4.0, high=100.0)
    [8.5, 12.5, 50.0]
    """
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    # Isotonic regression of what is left after taking the gaps away: pool neighbours that meet.
    pools: list[list[float]] = []
    for value in np.asarray(places, float)[order] - steps:
        pools.append([float(value)])
        while len(pools) > 1 and np.mean(pools[-2]) >= np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    flat = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools]) + steps
    flat = np.minimum(flat, high - gap * np.arange(len(places))[::-1])
    moved = np.empty(len(places))
    moved[order] = flat
    return [float(place) for place in moved]
