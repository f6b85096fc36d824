"""The demo's picture: what is remembered, task after task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import MissingExtraError
from olss.lab.report.label_placing import apart
from olss.lab.report.palette import line_of, styles
from olss.streams.record import Record
from olss.util.files import whole_file

__all__ = ["draw_demo"]

STRONG = ("olss", "balanced")  # what the demo is about
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
    with whole_file(path) as file:
        figure.savefig(file, format="png", facecolor="white")


def _draw(axes: Any, records: Sequence[Record], title: str, column: int) -> None:
    curves: dict[str, list[Any]] = {}
    methods = []
    for record in records:
        learner = record.config["learner"]
        curve = record.accuracy[:, 0] if column else record.average_accuracy
        curves.setdefault(learner["label"], []).append(100 * curve)
        methods.append((learner["label"], learner["recipe"], learner.get("policy")))
    looks = {label: line_of(style) for label, style in styles(methods).items()}
    means = {label: np.mean(several, axis=0) for label, several in curves.items()}
    tasks = np.arange(1, len(next(iter(means.values()))) + 1)
    for label, mean in means.items():
        width = 2.6 if label in STRONG else 1.7
        axes.plot(tasks, mean, solid_capstyle="round", linewidth=width, **looks[label])
        for single in curves[label] if len(curves[label]) > 1 else ():
            axes.plot(tasks, single, linewidth=0.6, alpha=0.55, **looks[label])
    # Names are seven per cent high.
    places = apart([float(mean[-1]) for mean in means.values()], 7.0, 0.0, 104.5)
    for label, place in zip(means, places, strict=True):
        text = {"color": looks[label]["color"], "va": "center", "fontsize": 9.5}
        weight = "bold" if label in STRONG else "normal"
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
