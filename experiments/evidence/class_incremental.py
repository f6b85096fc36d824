"""Class-incremental CIFAR-100: methods under one protocol, and frozen features with moments."""

from __future__ import annotations

import csv
import math
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from olss.lab.report.statistics import Interval, interval, seconds
from olss.streams.record import Record
from olss.util.text import format_interval

from . import pages
from .pages import RESULTS, legend, plain, table

FOLDER = RESULTS / "class-incremental"
ANALYTIC = RESULTS / "analytic"
NET_BYTES = 4 * 1_109_240  # of the slim ResNet-18, which all methods with a net keep
SPLITS = {"analytic": "20 x 5", "analytic-10-tasks": "10 x 10", "analytic-5-tasks": "5 x 20"}
ROWS = 2_500
PASSES = 10_000  # of a task, for all methods; some were run with more besides
SHOWN = {  # method: words, colour
    "olss-replay": ("OLSS replay, recommended", "#009E73"),
    "olss-replay-transported": ("OLSS replay, transported", "#8BC34A"),
    "ensemble": ("frozen features and replay", "#C2185B"),
    "er": ("ER", "#8B4513"),
    "er-averaged": ("ER, mean weights", "#C49A6C"),
    "er-ace": ("ER-ACE", "#E69F00"),
    "der++": ("DER++, mended", "#56B4E9"),
    "icarl": ("iCaRL", "#7B3FA0"),
    "balanced": ("balanced memory alone", "#0072B2"),
    "gdumb": ("GDumb", "#444444"),
    "olss": ("OLSS, as in the paper", "#D55E00"),
    "ewc": ("EWC", "#CC79A7"),
    "sgd": ("SGD", "#999999"),
}
COLUMNS = [
    "method",
    "rows",
    "row_passes",
    "seeds",
    "average",
    "ci",
    "task1",
    "newest",
    "seconds_ratio",
]
FIGURE = (
    "![Accuracy over all classes so far, and on the first task, task after task]"
    "(images/class-incremental.png)"
)


class Line(NamedTuple):
    """What is told apart: a method, the rows it remembers, its row passes a task."""

    method: str
    rows: int
    passes: int

    @property
    def compared(self) -> bool:
        """Whether it stands beside the others: with the memory all have, or with none."""
        return self.rows in (0, ROWS)


Found = dict[Line, dict[int, Record]]


def make() -> None:
    """Write the summary, the table and the figure of what has been run."""
    found = records()
    if not found:
        return
    lines = summary(found)
    with (FOLDER / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    pages.fill("class-incremental", f"{FIGURE}\n\n{_table(found)}")
    pages.fill("class-incremental-sizes", _sizes(found))
    pages.fill("class-incremental-line", _line(found))
    pages.draw("class-incremental", "class-incremental", lambda: _curves(found))
    frozen = _frozen("analytic")
    if frozen:
        pages.fill("analytic", _frozen_table(frozen, found))
        pages.fill("analytic-splits", _splits_table())
        pages.fill("analytic-mnist", _mnist_table())
        pages.fill("analytic-product", _product_table())
        pages.fill("analytic-line", _frozen_line(frozen, found))
        pages.draw("analytic", "analytic", lambda: _costs(frozen, found))


def records() -> Found:
    """Read the records by method, rows remembered and row passes, then by seed.

    A learner is called METHOD, METHOD-rows-N or METHOD-passes-N in the experiment, and
    -transported after these is a method of its own.
    """
    found: Found = {}
    for path in sorted(FOLDER.glob("*/seed-*/record.json")):
        record = Record.load(path.parent)
        label = path.parts[-3].removesuffix("-transported")
        method, _, rows = label.partition("-passes-")[0].partition("-rows-")
        method += path.parts[-3].removeprefix(label)
        size = int(rows) if rows else ROWS
        held = min(size, int(record.stored_examples[-1]))
        line = Line(method, held, int(record.row_passes.max()))
        found.setdefault(line, {})[record.seed] = record
    order = list(SHOWN)
    lines = sorted(found, key=lambda line: (-line.rows, order.index(line.method), line.passes))
    return {line: found[line] for line in lines}


def summary(found: Found) -> list[dict[str, Any]]:
    """Return a line for each method and number of rows; times beside SGD's, of the processor."""

    def spent(by_seed: dict[int, Record]) -> float:
        return float(np.mean([seconds(record) for record in by_seed.values()]))

    base = next((spent(found[line]) for line in found if line.method == "sgd"), math.nan)
    lines = []
    for line, by_seed in found.items():
        runs = list(by_seed.values())
        average = interval([100 * r.average_accuracy[-1] for r in runs])
        lines.append(
            {
                "method": line.method,
                "rows": line.rows,
                "row_passes": line.passes,
                "seeds": len(runs),
                "average": f"{average.mean:.2f}",
                "ci": f"{average.half:.2f}" if len(runs) > 1 else "",
                "task1": f"{100 * np.mean([r.accuracy[-1, 0] for r in runs]):.2f}",
                "newest": f"{100 * np.mean([r.accuracy[-1, -1] for r in runs]):.2f}",
                "seconds_ratio": f"{spent(by_seed) / base:.2f}" if base == base else "",
            }
        )
    return lines


def _table(found: Found) -> str:
    columns = ["", "rows", "row passes", "seeds", "average", "task 1", "newest task", "time / SGD"]
    times = [told["seconds_ratio"] or "—" for told in summary(found)]
    lines = []
    for (line, by_seed), time in zip(found.items(), times, strict=True):
        if not line.compared:
            continue
        runs = list(by_seed.values())
        scores = [
            [100 * record.average_accuracy[-1] for record in runs],
            [100 * record.accuracy[-1, 0] for record in runs],
            [100 * record.accuracy[-1, -1] for record in runs],
        ]
        # Which classes are first and last changes with the seed: a range says more than ±.
        cells = [_plain(interval(scores[0])), *map(_range, scores[1:])]
        words = [SHOWN[line.method][0], f"{line.rows:,}", f"{line.passes:,}", str(len(runs))]
        lines.append((-line.passes, -float(np.mean(scores[0])), [*words, *cells, time]))
    shown = [cells for _, _, cells in sorted(lines)]
    for record in _joint():
        score = f"{100 * record.average_accuracy[-1]:.1f}"
        passes = f"{int(record.row_passes.max()):,} in all"
        shown.insert(0, ["*all classes at once*", "all", passes, "1", score, "—", "—", "—"])
    return table(columns, shown)


def _plain(value: Interval) -> str:
    """Return a mean with half its interval or, of two seeds, their range."""
    return format_interval(value.content(), 1) if value.count == 2 else plain(value)


def _range(values: list[float]) -> str:
    """Return a mean with the lowest and highest value behind it, if there are several."""
    several = f" ({min(values):.0f}–{max(values):.0f})" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{several}"


def _joint() -> list[Record]:
    """Read the upper line, if it was run: one seed of all classes at once."""
    found = sorted((FOLDER / "class-incremental-joint").glob("joint/seed-*/record.json"))
    return [Record.load(path.parent) for path in found[:1]]


def _line(found: Found) -> str:
    """Return who wins by how much, in a sentence."""
    shown = {line: interval(_finals(found, line)) for line in found if line.compared}
    best, *others = sorted(shown, key=lambda line: (line.passes != PASSES, -shown[line].mean))

    def words(line: Line) -> str:
        return f"{SHOWN[line.method][0]} {_plain(shown[line])}"

    rest = "".join(f", {words(line)}" for line in others if line.passes == PASSES)
    more = ", ".join(words(line) for line in others if line.passes > PASSES)
    if more:
        rest += f"; with {max(line.passes for line in others):,} row passes {more}"
    seeds = {value.count for value in shown.values()}
    counts = f"{min(seeds)} to {max(seeds)} seeds" if len(seeds) > 1 else f"{max(seeds)} seeds"
    certain = "one seed" if seeds == {1} else f"{counts}, 95% confidence"
    return (
        "Incremental CIFAR-100, all methods under [one protocol](docs/class-incremental.md) "
        f"({ROWS:,} rows remembered, {PASSES:,} row passes a task, {certain}): "
        f"**{words(best)}**{rest}.\n"
    )


def _sizes(found: Found) -> str:
    sizes = sorted({line.rows for line in found if line.rows})
    lines = []
    for method in ("olss-replay", "olss-replay-transported", "er", "icarl"):
        of = {line.rows: line for line in found if line.method == method and line.passes <= PASSES}
        cells = [_plain(interval(_finals(found, of.get(size)))) for size in sizes]
        lines.append([SHOWN[method][0], *cells])
    return table(["", *(f"{size:,} rows" for size in sizes)], lines)


def _finals(found: Found, line: Line | None) -> list[float]:
    runs = found[line].values() if line else ()
    return [100 * float(record.average_accuracy[-1]) for record in runs]


def _curves(found: Found) -> Figure:
    figure = Figure(figsize=(9, 3.6))
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, words in zip(axes, ("average over classes so far", "task 1"), strict=True):
        for line, by_seed in found.items():
            if not line.compared:
                continue
            more = line.passes > PASSES
            curves = [
                100 * (r.average_accuracy if words != "task 1" else r.accuracy[:, 0])
                for r in by_seed.values()
            ]
            text, colour = SHOWN[line.method]
            text += f", {line.passes:,} row passes" * more
            x, mean = range(1, len(curves[0]) + 1), np.mean(curves, axis=0)
            axis.plot(x, mean, color=colour, label=text, linestyle="--" if more else "-")
            for curve in curves if len(curves) > 1 else ():
                axis.plot(x, curve, color=colour, linewidth=0.5, alpha=0.5)
        axis.set_title(words, fontsize=9)
        axis.set_xlabel("tasks learned", fontsize=8)
        axis.set_ylim(0, 100)
        axis.set_xticks([1, 5, 10, 15, 20])
    for record in _joint():
        score = 100 * float(record.average_accuracy[-1])
        axes[0].axhline(score, color="#444444", linestyle=":", label="all classes at once")
    axes[0].set_ylabel("accuracy, %", fontsize=8)
    legend(figure, ncols=4)
    return figure


# ------------------------------------------------------------------ frozen features and moments


def _frozen(experiment: str) -> dict[str, dict[int, Record]]:
    """Read the records of an experiment with analytic learners, by label and seed."""
    folder = ANALYTIC if experiment == "analytic" else ANALYTIC / experiment
    found: dict[str, dict[int, Record]] = {}
    for path in sorted(folder.glob("*/seed-*/record.json")):
        record = Record.load(path.parent)
        found.setdefault(path.parts[-3], {})[record.seed] = record
    return dict(sorted(found.items(), key=lambda item: _bytes(item[1])))


def _bytes(by_seed: dict[int, Record]) -> int:
    """Return all that is kept between tasks: rows or moments, and the net, if there is one."""
    record = next(iter(by_seed.values()))
    return int(record.stored_bytes[-1]) + (NET_BYTES if record.config.get("net") else 0)


def _average(by_seed: dict[int, Record]) -> str:
    return _plain(interval([100 * float(r.average_accuracy[-1]) for r in by_seed.values()]))


def _mean(by_seed: dict[int, Record]) -> float:
    return float(np.mean([r.average_accuracy[-1] for r in by_seed.values()]))


def _frozen_words(label: str, by_seed: dict[int, Record]) -> str:
    config = next(iter(by_seed.values())).config
    words = f"`analytic`, {config['learner']['centres']:,} centres"
    words += ", two layers" if config["learner"].get("layers", 1) == 2 else ""
    words += ", mirror images" if config["training"]["mirrored"] else ", no mirror images"
    return words + ("" if config["learner"]["classifier"] == "discriminant" else ", ridge")


def _frozen_table(frozen: dict[str, dict[int, Record]], found: Found) -> str:
    """Return what is stored, accuracy and time of frozen features, beside the best with a net."""
    columns = ["", "kept between tasks", "seeds", "average", "task 1", "newest task", "learning"]
    lines = {_frozen_words(label, by_seed): by_seed for label, by_seed in frozen.items()}
    for method in ("olss-replay", "olss-replay-transported", "er", "ensemble"):
        for line in (line for line in found if line.method == method and line.passes <= PASSES):
            kept = f"{line.rows:,} rows and the net"
            words = f"*{SHOWN[method][0]}, {kept}*"
            if method == "ensemble":
                centres = next(iter(found[line].values())).config["training"]["centres"]
                words = f"`analytic`, {centres:,} centres, times OLSS replay, {kept}"
            lines[words] = found[line]
    shown = []
    for words, by_seed in sorted(lines.items(), key=lambda item: _bytes(item[1])):
        runs = list(by_seed.values())
        minutes = np.mean([seconds(record) for record in runs]) / 60
        first, newest = ([100 * r.accuracy[-1, i] for r in runs] for i in (0, -1))
        average = f"**{_average(by_seed)}**" if words in lines and words[0] == "`" else ""
        shown.append(
            [words, f"{_bytes(by_seed) / 1e6:.1f} MB", str(len(runs)),
             average or _average(by_seed), _range(first), _range(newest), f"{minutes:.1f} min"]
        )  # fmt: skip
    for record in _joint():
        score = f"{100 * record.average_accuracy[-1]:.1f}"
        shown.append(["*all classes at once, the same net*", "all images", "1", score] + ["—"] * 3)
    return table(columns, shown)


def _splits_table() -> str:
    """Return the averages of frozen features by how the classes are split into tasks."""
    splits = {words: _frozen(name) for name, words in SPLITS.items()}
    labels = [label for label in splits["20 x 5"] if sum(label in f for f in splits.values()) > 1]
    lines = []
    for label in labels:
        cells = [
            f"{_average(f[label])} ({len(f[label])})" if label in f else "—"
            for f in splits.values()
        ]
        lines.append([_frozen_words(label, splits["20 x 5"][label]), *cells])
    return table(["", *(f"{words} classes" for words in splits)], lines)


def _mnist_table() -> str:
    """Return the averages on rotated and permuted digits, and what is kept."""
    words = {
        "analytic-patches": "`analytic`, patches (50 centres, 3 x 3 cells)",
        "analytic-random": "`analytic`, 2,000 random features",
        "er": "ER, 2,000 rows",
        "sgd": "SGD",
    }
    streams = [_frozen(f"analytic-mnist-{name}") for name in ("rotated", "permuted")]
    lines = []
    for label, text in words.items():
        runs = next((stream[label] for stream in streams if label in stream), None)
        if runs:
            record = next(iter(runs.values()))
            cells = [_average(stream[label]) if label in stream else "—" for stream in streams]
            held = f"{int(record.stored_bytes[-1]) / 1e6:.1f} MB"
            lines.append([text, held, str(len(runs)), *cells])
    return table(["", "kept, besides the net", "seeds", "rotated", "permuted"], lines)


def _product_table() -> str:
    """Return frozen features, replay and the product of both by what they keep."""
    path = ANALYTIC / "with-replay.csv"
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = {}
    for row in rows:
        frozen = f"`analytic`, {int(row['centres']):,} centres"
        replay = f"OLSS replay, {int(row['rows']):,} rows and the net"
        sizes = int(row["analytic_bytes"]), int(row["replay_bytes"])
        product = f"**{int(row['centres']):,} centres times replay to the power {row['power']}**"
        lines[frozen] = sizes[0], row["analytic"]
        lines[replay] = sizes[1], row["replay"]
        lines[product] = sum(sizes), row["product"]
    shown = [
        [words, f"{size / 1e6:.1f} MB", f"{float(score):.1f}"]
        for words, (size, score) in sorted(lines.items(), key=lambda item: item[1][0])
    ]
    return table(["", "kept between tasks", "average"], shown)


def _frozen_line(frozen: dict[str, dict[int, Record]], found: Found) -> str:
    """Return what frozen features reach, by what they keep, in a sentence."""

    def words(runs: dict[int, Record]) -> str:
        return f"{_average(runs)} with {_bytes(runs) / 1e6:.1f} MB"

    def is_best(runs: dict[int, Record]) -> bool:
        """Whether no other keeps about as little or less and is more accurate."""
        rivals = (other for other in frozen.values() if _bytes(other) <= 1.1 * _bytes(runs))
        return all(_mean(other) <= _mean(runs) for other in rivals)

    curve = [runs for runs in frozen.values() if is_best(runs)]
    replay = next((of for line, of in found.items() if line == ("olss-replay", ROWS, PASSES)), None)
    counts = sorted({len(runs) for runs in curve})
    seeds = f"{' to '.join(map(str, counts))} seeds each"
    beside = ""
    if replay:
        kept = f"{_bytes(replay) / 1e6:.1f} MB, its net included"
        beside = f"; replay of {ROWS:,} images, {_average(replay)} with {kept}"
    return (
        "Without storing an image, by frozen features and the moments of everything seen "
        f'(`recipe("analytic")`): **{", ".join(map(words, curve))}** ({seeds}){beside}.\n'
    )


def _bar(value: Interval) -> float:
    """Return half the interval or, of two seeds, half their range."""
    return (value.most - value.least) / 2 if value.count <= 2 else value.half


def _costs(frozen: dict[str, dict[int, Record]], found: Found) -> Figure:
    """Draw accuracy against all that is kept, and against processor time."""
    figure = Figure(figsize=(9, 3.8))
    left, right = figure.subplots(1, 2, sharey=True)
    curves: dict[str, tuple[str, list[dict[int, Record]]]] = {}
    for runs in frozen.values():
        config = next(iter(runs.values())).config
        if config["training"]["mirrored"]:
            several = config["learner"].get("layers", 1) == 2
            text = "frozen features" + (", two layers" if several else " and moments")
            colour = "#FF8A65" if several else "#D00000"
            curves.setdefault(text, (colour, []))[1].append(runs)
    analytic = set(curves)
    for line, by_seed in found.items():
        if line.passes <= PASSES:
            text, colour = SHOWN[line.method]
            curves.setdefault(text, (colour, []))[1].append(by_seed)
    for axis in (left, right):
        for text, (colour, several) in curves.items():
            ends = [
                interval([100 * r.average_accuracy[-1] for r in runs.values()]) for runs in several
            ]
            if axis is left:
                x = [_bytes(runs) / 1e6 for runs in several]
            else:
                x = [float(np.mean([seconds(r) for r in runs.values()])) / 60 for runs in several]
            order = np.argsort(x)
            # Replay takes as long whatever it keeps: a line would only go up and down.
            joined = axis is left or text in analytic
            axis.errorbar(
                np.array(x)[order], np.array([e.mean for e in ends])[order],
                np.array([_bar(e) for e in ends])[order], color=colour, marker="o", markersize=4,
                capsize=2, linewidth=1.2 if joined else 0, elinewidth=1.2, label=text,
            )  # fmt: skip
        for record in _joint():
            score = 100 * float(record.average_accuracy[-1])
            axis.axhline(
                score, color="#444444", linestyle=":", label="all classes at once, same net"
            )
        axis.set_xscale("log")
        axis.set_ylim(0, 60)
    left.set_xlabel("megabytes kept between tasks, the net included", fontsize=8)
    right.set_xlabel("minutes of one processor, selecting and training", fontsize=8)
    left.set_xticks([0.5, 1, 3, 10, 30, 100, 300], ["0.5", "1", "3", "10", "30", "100", "300"])
    right.set_xticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
    for axis in (left, right):
        axis.minorticks_off()
    left.set_ylabel("accuracy over 100 classes at the end, %", fontsize=8)
    legend(figure, ncols=4)
    return figure
