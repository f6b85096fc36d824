"""Colours of methods and policies: the same in every report, figure and picture.

Okabe and Ito (2008), told apart by readers with any of the common colour deficiencies and in
grey by their lightness. A dash pattern is the second channel once the colours are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from olss.lab.report.statistics import FEW
from olss.util.files import open_atomic
from olss.util.text import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

__all__ = [
    "DASHES",
    "INK",
    "LOOK",
    "PLOTS",
    "POLICIES",
    "Style",
    "apart",
    "clusters",
    "draw_figures",
    "line_of",
    "policy_style",
    "styles",
]


GREY, ORANGE, SKY, GREEN = "#6b6b6b", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#C9B800", "#0072B2", "#D55E00", "#CC79A7"
# Okabe-Ito's yellow is darkened, since lines of it vanish on white paper; its black is grey,
# since black vanishes on a dark page.
PALETTE = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY, YELLOW)
USUAL = {
    "sgd": GREY, "ewc": ORANGE, "online-ewc": ORANGE, "si": ORANGE, "gem": BLUE, "a-gem": BLUE,
    "icarl": PURPLE, "er": SKY, "er-ace": SKY, "der": SKY, "der++": SKY, "gdumb": PURPLE,
    "olss": VERMILLION, "olss-replay": GREEN, "joint": YELLOW,
}  # fmt: skip
POLICIES = {
    "paper": VERMILLION, "weighted": BLUE, "balanced": GREEN, "balanced-random": ORANGE,
    "balanced-leverage": PURPLE, "reservoir": GREY, "recent": YELLOW,
}  # fmt: skip
DASHES = ((), (6, 2.5), (1.5, 2), (7, 2, 1.5, 2))


class Style(NamedTuple):
    """How a method is drawn: colour, and lengths of dashes and gaps (none: a full line)."""

    colour: str
    dash: tuple[float, ...] = ()


def styles(methods: Iterable[tuple[str, str, str | None]]) -> dict[str, Style]:
    """Return a style for each label; `methods` are label, recipe and, if it has one, policy.

    Methods of a kind have one colour and are told apart by dashes, the first without, so that
    reports of different experiments look alike; where a kind has more methods than there are
    dashes (a sweep), all but its first take what is free.

    Examples
    --------
    >>> found = styles([("SGD", "sgd", None), ("mine", "olss", "balanced"), ("er", "er", None)])
    >>> found["mine"] == policy_style("balanced")
    True
    """
    wishes = {label: _usual(recipe, policy) for label, recipe, policy in methods}
    taken: dict[str, Style] = {}
    for colour in PALETTE:
        kind = [label for label, usual in wishes.items() if usual == colour]
        for label, dash in zip(
            kind[: 1 if len(kind) > len(DASHES) else None], DASHES, strict=False
        ):
            taken[label] = Style(colour, dash)
    order = [Style(colour, dash) for dash in DASHES for colour in PALETTE]
    free = [style for style in order if style not in taken.values()]
    rest = [label for label in wishes if label not in taken]
    for number, label in enumerate(rest):
        taken[label] = free[number % len(free)]
    return {label: taken[label] for label in wishes}


def _usual(recipe: str, policy: str | None) -> str | None:
    if recipe == "olss" and policy in POLICIES:
        return POLICIES[policy]
    return USUAL.get(recipe)


def policy_style(policy: str, *, features: bool = False) -> Style:
    """Return how a policy is drawn; dashed where it scores features instead of rows."""
    return Style(POLICIES[policy], DASHES[1] if features else ())


def line_of(style: Style) -> dict[str, Any]:
    """Return a style as matplotlib's `plot` takes it."""
    colour: dict[str, Any] = {"color": style.colour}
    return colour | ({"linestyle": (0, style.dash)} if style.dash else {})


# ------------------------------------------------------------------ label placing


def apart(values: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move values apart to at least a gap, in their order, near their place, within bounds.

    Where there are too many for the bounds, they go beyond the upper one.
    """

    def start(run: list[int]) -> float:
        wanted = sum(values[i] for i in run) / len(run) - gap * len(run) / 2
        return max(low, min(high - gap * len(run), wanted))

    runs: list[list[int]] = []  # of labels that touch
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        runs.append([i])
        while len(runs) > 1 and start(runs[-1]) < start(runs[-2]) + gap * len(runs[-2]):
            last = runs.pop()
            runs[-1] += last
    places = {i: start(run) + gap * (k + 0.5) for run in runs for k, i in enumerate(run)}
    return [places[i] for i in range(len(values))]


def clusters(values: list[float], width: float) -> list[list[int]]:
    """Put together values so near each other that labels of a width might overlap."""
    found: list[list[int]] = []
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        if found and values[i] - values[found[-1][-1]] < width:
            found[-1].append(i)
        else:
            found.append([i])
    return found


# ------------------------------------------------------------------ plots

Stream = dict[str, Any]
INK = "#333333"
LINE = 0.125  # inches of a line of text
PHASES = {"select": "#009E73", "train": "#0072B2", "evaluate": "#BBBBBB"}


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, squeeze=False)


# ------------------------------------------------------------------ curves


def _curves(stream: Stream) -> Figure:
    figure, axes = _figure(1, 2, 7.2, _height(stream))
    _lines(axes[0, 0], stream, "average", "Average over tasks seen", "tasks learned")
    _lines(axes[0, 1], stream, "first", "Task 1", "tasks learned")
    return figure


def _final(stream: Stream) -> Figure:
    figure, axes = _figure(1, 1, 4.6, _height(stream))
    _lines(axes[0, 0], stream, "final", "Each task after the last", "task")
    return figure


def _lines(axes: Axes, stream: Stream, curve: str, title: str, xlabel: str) -> None:
    factor, unit = _unit(stream)
    count = len(stream["tasks"])
    x = np.arange(1, count + 1)
    ends = []
    for method in stream["methods"]:
        found = {end: factor * _array(values) for end, values in method["curves"][curve].items()}
        line = line_of(Style(method["colour"], tuple(method["dash"])))
        axes.plot(x, found["mean"], marker="o" if count == 1 else None, **line)
        if len(found["runs"]):
            for run in found["runs"]:
                axes.plot(x, run, lw=0.6, alpha=0.55, **line)
        else:
            band = [_possible(found[end], stream) for end in ("low", "high")]
            axes.fill_between(x, *band, color=method["colour"], alpha=0.15, lw=0)
        if np.isfinite(found["mean"][-1]):
            ends.append((found["mean"][-1], method))
    axes.set(title=title, xlabel=xlabel, ylabel=unit, xlim=(1, max(count, 1.5)))
    _whole(axes)
    if factor == 100:
        axes.set_ylim(top=min(101, axes.get_ylim()[1]))
    _label_ends(axes, ends, _gap(stream))


def _height(stream: Stream) -> float:
    """Return inches enough for the names of all methods below each other."""
    return max(2.9, 0.9 + LINE * len(stream["methods"]))


def _gap(stream: Stream) -> float:
    """Return the height of a line of text as a share of the axes."""
    return LINE / (_height(stream) - 0.8)


def _label_ends(axes: Axes, ends: list[tuple[float, dict[str, Any]]], gap: float) -> None:
    """Write each line's name beside its end, moved apart where they would overlap."""
    bottom, top = axes.get_ylim()
    places = apart([y for y, _ in ends], (top - bottom) * gap, bottom, top)
    for (_, method), y in zip(ends, places, strict=True):
        axes.annotate(
            method["label"], (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", color=method["colour"], fontsize=7.5,
            annotation_clip=False,
        )  # fmt: skip


# ------------------------------------------------------------------ matrices and memory


def _matrices(stream: Stream) -> Figure:
    methods = stream["methods"]
    factor, unit = _unit(stream)
    columns = min(len(methods), 4)
    rows = -(-len(methods) // columns)
    figure, grid = _figure(rows, columns, 1.75 * columns + 0.8, 1.85 * rows + 0.4)
    count = len(stream["tasks"])
    low = min(np.nanmin(_array(m["accuracy"]), initial=1) for m in methods)
    for axes, method in zip(grid.flat, methods, strict=False):
        picture = axes.imshow(
            factor * _array(method["accuracy"]), cmap="cividis", vmin=factor * low,
            vmax=100 if factor == 100 else None, extent=(0.5, count + 0.5, count + 0.5, 0.5),
        )  # fmt: skip
        axes.set_title(method["label"], fontsize=8, color=method["colour"])
        axes.grid(visible=False)
        _whole(axes, 4)
    for axes in grid.flat[len(methods) :]:
        axes.set_axis_off()
    figure.supxlabel("tested on task", fontsize=8)
    figure.supylabel("after task", fontsize=8)
    figure.colorbar(picture, ax=grid, label=unit, shrink=0.8, aspect=30)
    return figure


def _memory(stream: Stream) -> Figure | None:
    methods = [m for m in stream["methods"] if np.any(_array(m["memory_rows"]))]
    if not methods:
        return None
    from matplotlib import colormaps

    columns = min(len(methods), 4)
    rows = -(-len(methods) // columns)
    figure, grid = _figure(rows, columns, 1.75 * columns + 0.8, 1.6 * rows + 0.4)
    count = len(stream["tasks"])
    colours = colormaps["cividis"](np.linspace(0, 1, count))
    for axes, method in zip(grid.flat, methods, strict=False):
        held = _array(method["memory_rows"])
        edges, steps = np.arange(count + 1) + 0.5, np.vstack([held, held[-1:]])
        axes.stackplot(edges, steps.T, colors=colours, step="post", lw=0)
        axes.set_title(method["label"], fontsize=8, color=method["colour"])
        _whole(axes, 4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axes in grid.flat[len(methods) :]:
        axes.set_axis_off()
    figure.supxlabel("tasks learned", fontsize=8)
    figure.supylabel("rows held", fontsize=8)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(1, max(count, 2)), "cividis")
    figure.colorbar(scale, ax=grid, label="rows of task", shrink=0.8, aspect=30, ticks=_ticks(8))
    return figure


# ------------------------------------------------------------------ costs


def _time(stream: Stream) -> Figure | None:
    methods = [m for m in stream["methods"] if m["values"]["seconds"]["mean"] is not None]
    if not methods:
        return None
    figure, grid = _figure(1, 1, 4.6, 0.28 * len(methods) + 0.95)
    axes = grid[0, 0]
    y = np.arange(len(methods))[::-1]
    left = np.zeros(len(methods))
    for phase, colour in PHASES.items():
        width = np.array([m["values"][phase]["mean"] or 0 for m in methods])
        axes.barh(y, width, 0.62, left, color=colour, label=phase, lw=0)
        left += width
    for place, total, method in zip(y, left, methods, strict=True):
        times = method["values"]["ratio"]["mean"]
        text = f"{format_number(total)} s" + (f", × {format_number(times)}" if times else "")
        axes.annotate(
            text, (total, place), (3, 0), textcoords="offset points", va="center", fontsize=7
        )
    axes.set(xlabel="seconds", title="Where the time goes (× SGD: select + train)")
    axes.set_yticks(y, [m["label"] for m in methods])
    axes.margins(x=0.24)
    axes.grid(axis="y", visible=False)
    figure.legend(ncols=3, frameon=False, loc="outside lower right", fontsize=7)
    return figure


def _pareto(stream: Stream) -> Figure:
    figure, axes = _figure(1, 2, 7.2, _height(stream))
    _scatter(axes[0, 0], stream, "seconds", "Accuracy against time", "seconds, select + train")
    _scatter(axes[0, 1], stream, "stored", "Accuracy against memory", "stored examples")
    return figure


def _scatter(axes: Axes, stream: Stream, cost: str, title: str, xlabel: str) -> None:
    factor, unit = _unit(stream)
    axes.set(title=title, xlabel=xlabel, ylabel=f"average {unit}")
    shown = [
        m
        for m in stream["methods"]
        if all(m["values"][one]["mean"] is not None for one in (cost, "average"))
    ]
    if not shown:
        return
    labelled = []
    for method in shown:
        x, y = method["values"][cost]["mean"], method["values"]["average"]
        axes.plot(x, factor * y["mean"], "o", ms=5, color=method["colour"])
        drawn = factor * _array(_beside(y))
        if len(y["each"]) < FEW:
            axes.plot([x] * len(drawn), drawn, "_", ms=6, color=method["colour"])
        else:
            axes.plot([x] * 2, _possible(drawn, stream), lw=1, color=method["colour"])
        labelled.append((x, factor * y["mean"], method))
    _costs_axis(axes, [x for x, _, _ in labelled])
    axes.margins(x=0.16, y=0.12)
    bottom, top = axes.get_ylim()
    across = (axes.transScale + axes.transLimits).transform([(x, 1) for x, _, _ in labelled])[:, 0]
    for near in clusters(across.tolist(), 0.14):
        heights = apart([labelled[i][1] for i in near], (top - bottom) * _gap(stream), bottom, top)
        for i, y in zip(near, heights, strict=True):
            x, _, method = labelled[i]
            axes.annotate(
                method["label"], (x, y), (6, 0), textcoords="offset points", fontsize=7,
                va="center", color=method["colour"],
            )  # fmt: skip


def _costs_axis(axes: Axes, costs: list[float]) -> None:
    """Make an axis for costs of different magnitude, with a place for none at all."""
    from matplotlib.ticker import LogLocator, NullFormatter, SymmetricalLogLocator

    some = [cost for cost in costs if cost > 0]
    if not some:
        axes.set_xticks([0])
        return
    if len(some) == len(costs):
        axes.set_xscale("log")
        narrow = max(some) < 100 * min(some)
        axes.xaxis.set_major_locator(LogLocator(subs=[1, 2, 5] if narrow else [1]))
    else:
        axes.set_xscale("symlog", linthresh=min(some))
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=min(some)))
    # Plain numbers: 20 is easier to read than a power of ten.
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _measures(stream: Stream) -> Figure | None:
    if len(stream["tasks"]) < 2:
        return None
    factor, unit = _unit(stream)
    methods = stream["methods"]
    shown = {"forgetting": "Forgetting", "backward": "Backward transfer"} | {
        "forward": "Forward transfer"
    }
    figure, grid = _figure(1, len(shown), 7.2, 0.24 * len(methods) + 0.95)
    y = np.arange(len(methods))[::-1]
    for axes, (key, title) in zip(grid[0], shown.items(), strict=True):
        for place, method in zip(y, methods, strict=True):
            value = method["values"][key]
            if value["mean"] is None:
                continue
            axes.plot(factor * value["mean"], place, "o", ms=5, color=method["colour"])
            drawn = factor * _array(_beside(value))
            marks = {"marker": "|", "lw": 0} if len(value["each"]) < FEW else {"lw": 1.2}
            axes.plot(drawn, [place] * len(drawn), color=method["colour"], **marks)
        axes.axvline(0, color=INK, lw=0.6)
        axes.set_title(title)
        axes.set_xlabel("points" if factor == 100 else unit)
        axes.set_yticks(y, [m["label"] for m in methods] if axes is grid[0, 0] else [])
        axes.set_ylim(-0.6, len(methods) - 0.4)
    return figure


def _beside(value: dict[str, Any]) -> list[float]:
    """Return what is drawn beside a mean: single values if they are few, else the interval."""
    known = [one for one in value["each"] if one is not None]
    if len(known) < 2:
        return []
    return known if len(known) < FEW else [value["low"], value["high"]]


def _possible(values: Any, stream: Stream) -> Any:
    """Return scores no interval can leave: 0 to 100 for accuracies."""
    return np.clip(values, 0, 100) if stream["metric"] == "accuracy" else values


def _whole(axes: Axes, most: int = 8) -> None:
    """Put ticks at whole numbers only."""
    axes.xaxis.set_major_locator(_ticks(most))


def _ticks(most: int) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(most, integer=True)


def _unit(stream: Stream) -> tuple[float, str]:
    return (100, "accuracy, %") if stream["metric"] == "accuracy" else (1, "R²")


def _array(values: Any) -> Any:
    """Return lists with None as an array with NaN."""
    return np.array(values, np.float64)


PLOTS: dict[str, Callable[[Stream], Figure | None]] = {
    "curves": _curves,
    "final": _final,
    "measures": _measures,
    "matrices": _matrices,
    "memory": _memory,
    "time": _time,
    "pareto": _pareto,
}


# ------------------------------------------------------------------ figures

LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.5,
    "text.color": INK,
    "text.parse_math": False,  # names of methods are not formulas
    "svg.fonttype": "none",
    "svg.hashsalt": "olss",
    "figure.constrained_layout.use": True,
}


def draw_figures(stream: dict[str, Any], folder: Path) -> list[str]:
    """Draw every figure of a stream into a folder; return their names without ending."""
    from matplotlib import rc_context

    names = []
    with rc_context(LOOK):
        for name, draw in PLOTS.items():
            figure = draw(stream)
            if figure is None:
                continue
            stem = f"{stream['id']}-{name}"
            with open_atomic(folder / f"{stem}.svg") as file:
                figure.savefig(file, format="svg", metadata={"Date": None})
            figure.set_layout_engine("none")  # laid out once is enough
            with open_atomic(folder / f"{stem}.png") as file:
                figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
            names.append(stem)
    return names
