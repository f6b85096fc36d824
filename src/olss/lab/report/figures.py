"""Figures of a report: SVG, which the page embeds, and PNG.

Lines are labelled at their ends instead of in a legend. Colours are those of Okabe and Ito (2008),
which readers with common colour deficiencies can tell apart, also in grey by their lightness; a
dash pattern is the second channel once the colours are used up. What belongs to one method carries
its number in an id (``method-3-...``), so that the page can hide it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.util.files import write_atomic
from olss.util.text import FEW, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

Stream = dict[str, Any]
Method = dict[str, Any]
GREY, ORANGE, SKY, GREEN = "#6b6b6b", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#C9B800", "#0072B2", "#D55E00", "#CC79A7"
# Okabe-Ito's yellow is darkened, since lines of it vanish on white paper; its black is grey,
# since black vanishes on a dark page.
PALETTE = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY, YELLOW)
RECIPES = {
    "sgd": GREY, "ewc": ORANGE, "online-ewc": ORANGE, "si": ORANGE, "gem": BLUE, "a-gem": BLUE,
    "icarl": PURPLE, "er": SKY, "er-ace": SKY, "der": SKY, "der++": SKY, "gdumb": PURPLE,
    "olss": VERMILLION, "olss-replay": GREEN, "analytic": BLUE, "joint": YELLOW,
}  # fmt: skip
POLICIES = {
    "paper": VERMILLION, "weighted": BLUE, "balanced": GREEN, "balanced-random": ORANGE,
    "balanced-leverage": PURPLE, "reservoir": GREY, "recent": YELLOW,
}  # fmt: skip
DASHES = ((), (6, 2.5), (1.5, 2), (7, 2, 1.5, 2))
PHASES = {"select": GREEN, "train": BLUE, "evaluate": "#BBBBBB"}
INK, GRID = "#333333", "#E4E4E4"
WIDTH = 4.2  # inches of a figure with one plot: readable on a phone
LINE = 0.125  # inches of a line of text
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
    "grid.color": GRID,
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


# ------------------------------------------------------------------ styles


class Style(NamedTuple):
    """How a method is drawn: colour, and lengths of dashes and gaps (none: a full line)."""

    colour: str
    dash: tuple[float, ...] = ()


def assign_styles(methods: Iterable[tuple[str, str, str | None]]) -> dict[str, Style]:
    """Return a style for each label; `methods` are label, recipe and, if it has one, policy.

    Methods of a kind share a colour and differ in their dashes, so that reports of different
    experiments look alike. Where a kind has more methods than there are dashes (a sweep), all but
    its first take what is free.

    Examples
    --------
    >>> found = assign_styles([("SGD", "sgd", None), ("mine", "olss", "balanced")])
    >>> found["mine"] == policy_style("balanced")
    True
    """
    wishes = {label: _usual_colour(recipe, policy) for label, recipe, policy in methods}
    taken: dict[str, Style] = {}
    for colour in PALETTE:
        kind = [label for label, usual in wishes.items() if usual == colour]
        kind = kind[:1] if len(kind) > len(DASHES) else kind
        taken |= {label: Style(colour, dash) for label, dash in zip(kind, DASHES, strict=False)}
    every = [Style(colour, dash) for dash in DASHES for colour in PALETTE]
    free = [style for style in every if style not in taken.values()]
    rest = [label for label in wishes if label not in taken]
    taken |= {label: free[number % len(free)] for number, label in enumerate(rest)}
    return {label: taken[label] for label in wishes}


def _usual_colour(recipe: str, policy: str | None) -> str | None:
    by_policy = recipe == "olss" and policy in POLICIES
    return POLICIES[str(policy)] if by_policy else RECIPES.get(recipe)


def policy_style(policy: str, *, features: bool = False) -> Style:
    """Return how a policy is drawn; dashed where it scores features instead of rows."""
    return Style(POLICIES[policy], DASHES[1] if features else ())


def line_kwargs(style: Style) -> dict[str, Any]:
    """Return a style as keyword arguments of matplotlib's `plot`."""
    colour: dict[str, Any] = {"color": style.colour}
    return colour | ({"linestyle": (0, style.dash)} if style.dash else {})


# ------------------------------------------------------------------ drawing


def draw_figures(stream: Stream, folder: Path) -> dict[str, str]:
    """Draw every figure of a stream into a folder, as SVG and PNG."""
    from matplotlib import rc_context

    drawn = {}
    with rc_context(LOOK):
        for name, plot in PLOTS.items():
            figure = plot(stream)
            if figure is None:
                continue
            _make_ids_unique(figure)
            svg = io.BytesIO()
            figure.savefig(svg, format="svg", dpi=200, metadata={"Date": None})
            figure.set_layout_engine("none")  # one layout serves both forms
            png = io.BytesIO()
            figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
            write_atomic(folder / f"{stream['id']}-{name}.svg", svg.getvalue())
            write_atomic(folder / f"{stream['id']}-{name}.png", png.getvalue())
            drawn[name] = svg.getvalue().decode()
    return drawn


def _make_ids_unique(figure: Figure) -> None:
    marked = [artist for artist in figure.findobj() if artist.get_gid()]
    for number, artist in enumerate(marked):
        artist.set_gid(f"{artist.get_gid()}-{number}")


def _new_figure(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def _plot_curves(stream: Stream, curve: str, what: str, xlabel: str) -> Figure:
    figure, axes = _new_figure(_height(stream))
    draw_curves(axes, stream, curve)
    axes.set(xlabel=xlabel, ylabel=what.format(_unit(stream)[1]))
    return figure


def draw_curves(axes: Axes, stream: Stream, curve: str) -> None:
    """Plot a score over tasks: means with bands or, from few seeds, with every seed."""
    factor, _ = _unit(stream)
    count, ends = len(stream["tasks"]), []
    x = np.arange(1, count + 1)
    for number, method in enumerate(stream["methods"]):
        values = {key: factor * _array(at) for key, at in method["curves"][curve].items()}
        line = _line(method, number)
        axes.plot(x, values["mean"], marker="o" if count == 1 else None, **line)
        if len(values["runs"]):
            for run in values["runs"]:
                axes.plot(x, run, lw=0.6, alpha=0.55, **line)
        else:
            low, high = (_clip(values[end], stream) for end in ("low", "high"))
            band = {"color": line["color"], "gid": line["gid"], "alpha": 0.15, "lw": 0}
            axes.fill_between(x, low, high, **band)
        if np.isfinite(values["mean"][-1]):
            ends.append((float(values["mean"][-1]), number))
    axes.set_xlim(1, max(count, 1.5))
    axes.xaxis.set_major_locator(_integer_ticks())
    if factor == 100:
        axes.set_ylim(top=min(101, axes.get_ylim()[1]))
    _label(axes, stream, [(1.0, y, number) for y, number in ends], xcoords="axes fraction")


def _plot_measure(stream: Stream, key: str, title: str) -> Figure | None:
    """Plot a measure of every method: means with intervals or, from few seeds, with every seed."""
    if len(stream["tasks"]) < 2:
        return None
    factor, unit = _unit(stream)
    methods = stream["methods"]
    figure, axes = _new_figure(0.24 * len(methods) + 0.75)
    for number, method in enumerate(methods):
        value, line = method["values"][key], _line(method, number, solid=True)
        if value["mean"] is None:
            continue
        place = len(methods) - 1 - number
        axes.plot(factor * value["mean"], place, "o", ms=5, **line)
        around = factor * _array(_values_around(value))
        marks = {"marker": "|", "lw": 0} if len(value["each"]) < FEW else {"lw": 1.2}
        axes.plot(around, [place] * len(around), **marks, **line)
    axes.axvline(0, color=INK, lw=0.6)
    axes.set_xlabel(f"{title}, {'points' if factor == 100 else unit}")
    _label_rows(axes, methods, list(range(len(methods))))
    return figure


def _plot_time(stream: Stream) -> Figure | None:
    """Plot where the time of a run goes, as stacked bars."""
    shown = [
        n for n, m in enumerate(stream["methods"]) if m["values"]["seconds"]["mean"] is not None
    ]
    methods = [stream["methods"][number] for number in shown]
    if not methods:
        return None
    figure, axes = _new_figure(0.28 * len(methods) + 0.9)
    y, left = np.arange(len(methods))[::-1], np.zeros(len(methods))
    for phase, colour in PHASES.items():
        width = np.array([m["values"][phase]["mean"] or 0 for m in methods])
        bars = axes.barh(y, width, 0.62, left, color=colour, label=phase, lw=0)
        left += width
        for bar, number in zip(bars, shown, strict=True):
            bar.set_gid(f"method-{number}")
    for place, total, number in zip(y, left, shown, strict=True):
        ratio = stream["methods"][number]["values"]["ratio"]["mean"]
        text = f"{format_number(total)} s" + (f", × {format_number(ratio)}" if ratio else "")
        axes.annotate(
            text, (total, place), (3, 0), textcoords="offset points", va="center", fontsize=7,
            gid=f"method-{number}",
        )  # fmt: skip
    axes.set_xlabel("seconds (× SGD, select + train)")
    axes.margins(x=0.3)
    _label_rows(axes, methods, shown)
    figure.legend(ncols=3, frameon=False, loc="outside lower right", fontsize=7)
    return figure


def _plot_costs(stream: Stream, cost: str, xlabel: str) -> Figure:
    """Plot the average score against a cost."""
    factor, unit = _unit(stream)
    figure, axes = _new_figure(_height(stream))
    axes.set(xlabel=xlabel, ylabel=f"average {unit}")
    points = []
    for number, method in enumerate(stream["methods"]):
        x, score = method["values"][cost]["mean"], method["values"]["average"]
        if x is None or score["mean"] is None:
            continue
        line = _line(method, number, solid=True)
        axes.plot(x, factor * score["mean"], "o", ms=5, **line)
        around = _clip(factor * _array(_values_around(score)), stream)
        marks = {"marker": "_", "ms": 6, "lw": 0} if len(score["each"]) < FEW else {"lw": 1}
        axes.plot([x] * len(around), around, **marks, **line)
        points.append((x, factor * score["mean"], number))
    if points:
        _scale_costs(axes, [x for x, _, _ in points])
        axes.margins(x=0.16, y=0.12)
        _label(axes, stream, points)
    return figure


def _scale_costs(axes: Axes, costs: list[float]) -> None:
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


def _plot_matrices(stream: Stream) -> Figure:
    """Plot every task's score after every task, a panel for each method."""
    factor, unit = _unit(stream)
    count = len(stream["tasks"])
    figure, panels = _new_panels(stream["methods"], list(range(len(stream["methods"]))), 1.85)
    low = min(np.nanmin(_array(m["accuracy"]), initial=1) for m in stream["methods"])
    for axes, method in panels:
        picture = axes.imshow(
            factor * _array(method["accuracy"]), cmap="cividis", vmin=factor * low,
            vmax=100 if factor == 100 else None, extent=(0.5, count + 0.5, count + 0.5, 0.5),
        )  # fmt: skip
        axes.grid(visible=False)
    figure.supxlabel("tested on task", fontsize=8)
    figure.supylabel("after task", fontsize=8)
    _add_colour_bar(figure, picture, unit)
    return figure


def _plot_memory(stream: Stream) -> Figure | None:
    """Plot how many rows of each task are held after each task, a panel for each method."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = [n for n, m in enumerate(stream["methods"]) if np.any(_array(m["memory_rows"]))]
    if not shown:
        return None
    count = len(stream["tasks"])
    figure, panels = _new_panels(stream["methods"], shown, 1.6)
    colours = colormaps["cividis"](np.linspace(0, 1, count))
    for axes, method in panels:
        held = _array(method["memory_rows"])
        edges, steps = np.arange(count + 1) + 0.5, np.vstack([held, held[-1:]])
        areas = axes.stackplot(edges, steps.T, colors=colours, step="post", lw=0)
        for area in areas:
            area.set_rasterized(True)  # one image instead of a path of 80 points for each task
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.supxlabel("tasks learned", fontsize=8)
    figure.supylabel("rows held", fontsize=8)
    scale = ScalarMappable(Normalize(1, max(count, 2)), "cividis")
    _add_colour_bar(figure, scale, "rows of task", ticks=_integer_ticks())
    return figure


def _new_panels(
    methods: Sequence[Method], shown: Sequence[int], height: float
) -> tuple[Figure, list[tuple[Axes, Method]]]:
    """Return a figure with a titled panel for each of the methods of these numbers."""
    from matplotlib.figure import Figure

    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(1.75 * columns + 0.8, height * rows + 0.4))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    panels = []
    for axes, number in zip(grid, shown, strict=False):
        method = methods[number]
        axes.set_gid(f"method-{number}")
        axes.set_title(_shorten(method["label"], 20), fontsize=8, color=method["colour"])
        axes.xaxis.set_major_locator(_integer_ticks(4))
        panels.append((axes, method))
    return figure, panels


def _add_colour_bar(figure: Figure, scale: Any, label: str, **options: Any) -> None:
    bar = figure.colorbar(scale, ax=figure.axes, label=label, shrink=0.8, aspect=30, **options)
    assert bar.solids is not None
    bar.solids.set_rasterized(True)  # one image instead of 256 paths


# ------------------------------------------------------------------ labels and numbers


def space_labels(values: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move values apart to at least a gap, keeping their order, within bounds.

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


def _group_near(values: list[float], width: float) -> list[list[int]]:
    """Group values so near each other that labels of a width might overlap."""
    found: list[list[int]] = []
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        if found and values[i] - values[found[-1][-1]] < width:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _label(
    axes: Axes, stream: Stream, points: list[tuple[float, float, int]], xcoords: str = "data"
) -> None:
    """Write each method's name beside its point, moved up or down where they would overlap."""
    bottom, top = axes.get_ylim()
    gap = LINE / (_height(stream) - 0.7) * (top - bottom)
    across = [x for x, _, _ in points]
    if xcoords == "data":
        places = (axes.transScale + axes.transLimits).transform([(x, 1) for x in across])
        across = places[:, 0].tolist()
    # A character is about 2% as wide as the axes.
    longest = max((len(stream["methods"][number]["label"]) for _, _, number in points), default=0)
    for near in _group_near(across, min(0.02 * longest, 0.5)):
        heights = space_labels([points[i][1] for i in near], gap, bottom, top)
        for i, y in zip(near, heights, strict=True):
            x, _, number = points[i]
            method = stream["methods"][number]
            axes.annotate(
                _shorten(method["label"]), (x, y), (5, 0), xycoords=(xcoords, "data"),
                textcoords="offset points", va="center", color=method["colour"], fontsize=7.5,
                annotation_clip=False, gid=f"method-{number}",
            )  # fmt: skip


def _label_rows(axes: Axes, methods: Sequence[Method], numbers: Sequence[int]) -> None:
    """Name the rows of a chart, the first method at the top."""
    axes.set_yticks(range(len(methods))[::-1], [_shorten(m["label"]) for m in methods])
    for text, number in zip(axes.get_yticklabels(), numbers, strict=True):
        text.set_gid(f"method-{number}")
    axes.set_ylim(-0.6, len(methods) - 0.4)
    axes.grid(axis="y", visible=False)


def _shorten(label: str, most: int = 36) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _line(method: Method, number: int, *, solid: bool = False) -> dict[str, Any]:
    style = Style(method["colour"], () if solid else tuple(method["dash"]))
    return line_kwargs(style) | {"gid": f"method-{number}"}


def _height(stream: Stream) -> float:
    """Return inches enough for the names of all methods below each other."""
    return max(2.7, 0.8 + LINE * len(stream["methods"]))


def _values_around(value: dict[str, Any]) -> list[float]:
    """Return what is drawn around a mean: the seeds if they are few, otherwise the interval."""
    known = [one for one in value["each"] if one is not None]
    if len(known) < 2:
        return []
    return known if len(known) < FEW else [value["low"], value["high"]]


def _clip(values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Keep intervals of accuracies within 0 and 100."""
    return np.clip(values, 0, 100) if stream["metric"] == "accuracy" else values


def _integer_ticks(most: int = 8) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(most, integer=True)


def _unit(stream: Stream) -> tuple[float, str]:
    return (100, "accuracy, %") if stream["metric"] == "accuracy" else (1, "R²")


def _array(values: Any) -> NDArray[np.float64]:
    """Return lists with None as an array with NaN."""
    return np.array(values, np.float64)


PLOTS: dict[str, Callable[[Stream], Figure | None]] = {
    "average": partial(_plot_curves, curve="average", what="average {}", xlabel="tasks learned"),
    "first": partial(_plot_curves, curve="first", what="task 1, {}", xlabel="tasks learned"),
    "final": partial(_plot_curves, curve="final", what="after the last task, {}", xlabel="task"),
    "time": _plot_time,
    "forgetting": partial(_plot_measure, key="forgetting", title="forgetting"),
    "backward": partial(_plot_measure, key="backward", title="backward transfer"),
    "forward": partial(_plot_measure, key="forward", title="forward transfer"),
    "cost-seconds": partial(_plot_costs, cost="seconds", xlabel="seconds, select + train"),
    "cost-memory": partial(_plot_costs, cost="stored", xlabel="stored examples"),
    "memory": _plot_memory,
    "matrices": _plot_matrices,
}
