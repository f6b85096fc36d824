"""A sketch as a figure: rows by task and class, weights, what was seen against what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from olss.diagnostics.describe import Description, along_stream, short_names
from olss.errors import InputError, MissingExtraError
from olss.memory.state import State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_sketch"]

BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6b6b6b"
# Okabe and Ito (2008), yellow darkened: told apart with any of the common colour deficiencies.
CLASSES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#C9B800", "#6b6b6b")
TASKS = 40  # bars drawn; with more, tasks are gathered


def plot_sketch(state: State, described: Description | None, stands: bool) -> Figure:
    """Return the figure of `Sketch.plot`; `stands`: whether weights say what rows stand for."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "plot()") from error
    if described is None:
        raise InputError("the sketch is empty: there is nothing to plot yet.")
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    tasks, weights, stream = figure.subplots(1, 3, gridspec_kw={"width_ratios": (4, 3, 4)})
    _bars(tasks, described.tasks, described.counts, described.classes)
    _weights(weights, state.rows["weight"])
    _stream(stream, state, stands)
    for axes in (tasks, weights, stream):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    figure.suptitle(f"{len(state.rows):,} rows kept of {state.seen:,} seen", fontsize=11)
    return figure


def _bars(axes: Axes, tasks: list[Any], counts: Any, classes: list[Any] | None) -> None:
    """Draw rows by task, each class on top of the one before."""
    if len(tasks) > TASKS:
        counts = np.array([part.sum(axis=0) for part in np.array_split(counts, TASKS)])
    place, bottom = np.arange(len(counts)), np.zeros(len(counts))
    shown = counts.shape[1] if classes is None else min(len(classes), len(CLASSES))
    for k in range(shown):
        last = classes is not None and k == shown - 1 < len(classes) - 1
        height = counts[:, k:].sum(axis=1) if last else counts[:, k]
        name = None if classes is None else "others" if last else _plain(classes[k])
        axes.bar(place, height, bottom=bottom, color=CLASSES[k], label=name, width=0.85)
        bottom = bottom + height
    if len(tasks) <= 12:
        names = [_plain(name) for name in short_names([str(task) for task in tasks])]
        axes.set_xticks(place, names, fontsize=8)
        if max(map(len, names)) > 3:
            axes.tick_params(axis="x", rotation=90)
    if classes is not None:
        axes.margins(y=0.3)  # room for the legend
        axes.legend(fontsize=7, frameon=False, ncols=4, title="class", title_fontsize=7)
    axes.set(title="rows kept by task", xlabel="task" if len(tasks) <= TASKS else "tasks, in order")


def _weights(axes: Axes, weight: Any) -> None:
    low, high = float(weight.min()), float(weight.max())
    if high <= low * (1 + 1e-9):
        axes.bar([0], [len(weight)], color=BLUE, width=0.4)
        axes.set_xticks([0], [f"{low:.4g}"])
        axes.set_xlim(-1, 1)
    else:
        axes.hist(weight, bins=np.unique(np.geomspace(low, high, 25)).tolist(), color=BLUE)
        axes.set_xscale("log")
    axes.set(title="rows kept by weight", xlabel="rows seen that a row stands for")


def _stream(axes: Axes, state: State, stands: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    found = along_stream(state)
    axes.stairs(
        found.kept / found.seen, found.edges, fill=True, color=BLUE, alpha=0.35, label="kept"
    )
    if stands:
        axes.stairs(found.stands / found.seen, found.edges, color=VERMILLION, label="stands for")
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1, label="seen")
    axes.set(title="along the stream, in parts of what was seen", xlabel="row of the stream")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.25)  # room for the legend
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")


def _plain(value: Any) -> str:
    """Return a name short enough for an axis; a dollar sign would start a formula."""
    text = str(value)
    text = text if len(text) <= 16 else f"…{text[-15:]}"
    return text.replace("$", r"\$")
