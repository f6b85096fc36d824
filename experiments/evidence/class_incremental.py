"""Class-incremental CIFAR-100 under one protocol: the summary, its table and its figure."""

from __future__ import annotations

import csv
import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from olss.lab.seed_intervals import interval
from olss.streams.record import Record

from . import pages
from .pages import RESULTS, legend, plain, table

FOLDER = RESULTS / "class-incremental"
ROWS = 2_500
SHOWN = {  # label in the experiment: words, colour
    "olss-replay": ("OLSS replay, recommended", "#009E73"),
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
Found = dict[tuple[str, int], dict[int, Record]]


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


def records() -> Found:
    """Read the records by method and rows remembered, then by seed."""
    found: Found = {}
    for path in sorted(FOLDER.glob("*/seed-*/record.json")):
        record = Record.load(path.parent)
        label, _, rows = path.parts[-3].partition("-rows-")
        size = int(rows) if rows else ROWS
        held = int(record.stored_examples[-1])
        found.setdefault((label, min(size, held) if held else 0), {})[record.seed] = record
    order = list(SHOWN)
    return dict(sorted(found.items(), key=lambda item: (-item[0][1], order.index(item[0][0]))))


def summary(found: Found) -> list[dict[str, Any]]:
    """Return a line for each method and number of rows; times beside SGD's, of the processor."""
    base = _cpu(found.get(("sgd", 0), {}))
    lines = []
    for (label, rows), by_seed in found.items():
        runs = list(by_seed.values())
        average = interval([100 * r.average_accuracy[-1] for r in runs])
        lines.append(
            {
                "method": label,
                "rows": rows,
                "row_passes": int(max(r.row_passes.max() for r in runs)),
                "seeds": len(runs),
                "average": f"{average.mean:.2f}",
                "ci": f"{average.half:.2f}" if len(runs) > 1 else "",
                "task1": f"{100 * np.mean([r.accuracy[-1, 0] for r in runs]):.2f}",
                "newest": f"{100 * np.mean([r.accuracy[-1, -1] for r in runs]):.2f}",
                "seconds_ratio": f"{_cpu(by_seed) / base:.2f}" if base == base else "",
            }
        )
    return lines


def _cpu(by_seed: dict[int, Record]) -> float:
    """Return the processor's seconds of selecting and training, averaged over seeds."""
    parts = [
        sum(record.task_cpu_seconds[phase].sum() for phase in ("select", "train"))
        for record in by_seed.values()
    ]
    return float(np.mean(parts)) if parts else math.nan


def _table(found: Found) -> str:
    columns = ["", "rows", "seeds", "average", "task 1", "newest task", "time / SGD"]
    times = {(line["method"], line["rows"]): line["seconds_ratio"] for line in summary(found)}
    lines = []
    for (label, rows), by_seed in found.items():
        if rows not in (0, ROWS):
            continue
        runs = list(by_seed.values())
        scores = [
            [100 * record.average_accuracy[-1] for record in runs],
            [100 * record.accuracy[-1, 0] for record in runs],
            [100 * record.accuracy[-1, -1] for record in runs],
        ]
        cells = [plain(interval(values)) for values in scores]
        time = times[label, rows] or "—"
        lines.append([SHOWN[label][0], f"{rows:,}", str(len(runs)), *cells, time])
    lines.sort(key=lambda line: -float(line[3].split()[0]))
    for path in sorted((FOLDER / "class-incremental-joint").glob("joint/seed-*/record.json")):
        score = f"{100 * Record.load(path.parent).average_accuracy[-1]:.1f}"
        lines.insert(0, ["*all classes at once*", "all", "1", score, "—", "—", "—"])
    return table(columns, lines)


def _line(found: Found) -> str:
    """Return who wins by how much, in a sentence."""
    shown = {
        SHOWN[label][0]: interval(_finals(found, label, rows))
        for (label, rows) in found
        if rows in (0, ROWS)
    }
    best, *others = sorted(shown, key=lambda name: -shown[name].mean)
    rest = "".join(f", {name} {plain(shown[name])}" for name in others)
    seeds = {value.count for value in shown.values()}
    words = "one seed" if seeds == {1} else f"{min(seeds)} to {max(seeds)} seeds, 95% confidence"
    if len(seeds) == 1 and seeds != {1}:
        words = f"{max(seeds)} seeds, 95% confidence"
    passes = max(int(r.row_passes.max()) for runs in found.values() for r in runs.values())
    return (
        "Incremental CIFAR-100, all methods under [one protocol](docs/class-incremental.md) "
        f"(2,500 rows remembered, {passes:,} row passes a task, {words}): "
        f"**{best} {plain(shown[best])}**{rest}.\n"
    )


def _sizes(found: Found) -> str:
    sizes = sorted({rows for _, rows in found if rows})
    lines = [
        [SHOWN[label][0], *(plain(interval(_finals(found, label, size))) for size in sizes)]
        for label in ("olss-replay", "er", "icarl")
    ]
    return table(["", *(f"{size:,} rows" for size in sizes)], lines)


def _finals(found: Found, label: str, size: int) -> list[float]:
    runs = found.get((label, size), {}).values()
    return [100 * float(record.average_accuracy[-1]) for record in runs]


def _curves(found: Found) -> Figure:
    figure = Figure(figsize=(9, 3.6))
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, words in zip(axes, ("average over classes so far", "task 1"), strict=True):
        for (label, rows), by_seed in found.items():
            if rows not in (0, ROWS):
                continue
            curves = [
                100 * (r.average_accuracy if words != "task 1" else r.accuracy[:, 0])
                for r in by_seed.values()
            ]
            text, colour = SHOWN[label]
            x = range(1, len(curves[0]) + 1)
            axis.plot(x, np.mean(curves, axis=0), color=colour, label=text)
            for curve in curves if len(curves) > 1 else ():
                axis.plot(x, curve, color=colour, linewidth=0.5, alpha=0.5)
        axis.set_title(words, fontsize=9)
        axis.set_xlabel("tasks learned", fontsize=8)
        axis.set_ylim(0, 100)
        axis.set_xticks([1, 5, 10, 15, 20])
    axes[0].set_ylabel("accuracy, %", fontsize=8)
    legend(figure, ncols=4)
    return figure
