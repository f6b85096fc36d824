"""Our learners beside Avalanche's: seconds for the same work, and accuracy."""

from __future__ import annotations

import csv

from matplotlib.figure import Figure

from olss.lab.report.statistics import Interval, difference, interval, log_ratio
from olss.util.text import format_interval

from . import pages
from .pages import RESULTS, ends, legend, plain, signed, table

FOLDER = "learners-avalanche"
NAMES = {
    "sgd": "naive (SGD)", "ewc": "EWC", "si": "SI", "er": "replay", "gem": "GEM",
    "der++": "DER++", "der++, equal steps": "DER++, equal steps", "icarl": "iCaRL",
}  # fmt: skip
SIDES = {"olss": ("olss", "#0072B2"), "avalanche": ("Avalanche 0.6.0", "#E69F00")}
STREAMS = {"permuted": "permuted MNIST", "split": "split MNIST"}
Found = dict[tuple[str, str], dict[str, dict[int, float]]]


def make() -> None:
    """Write the table and draw the figure of what was measured."""
    found = measured()
    if not found:
        return
    columns = [
        "", "olss, times the loop", "Avalanche, times the loop", "Avalanche by olss",
        "seeds", "olss, %", "Avalanche, %", "difference",
    ]  # fmt: skip
    for stream in STREAMS:
        lines = [_line(method, runs) for (of, method), runs in found.items() if of == stream]
        pages.fill(f"learners-{stream}", table(columns, lines))
    pages.draw(FOLDER, "learners-avalanche", lambda: _figure(found))


def measured() -> Found:
    """Return what each side took and reached, by stream and method, then column and seed."""
    path = RESULTS / FOLDER / "runs.csv"
    found: Found = {}
    if not path.exists():
        return found
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            runs = found.setdefault((row["stream"], row["method"]), {})
            for column, text in row.items():
                if column.endswith(("_seconds", "_accuracy")):
                    scale = 100 if column.endswith("_accuracy") else 1
                    runs.setdefault(column, {})[int(row["seed"])] = scale * float(text)
    return found


def _times(runs: dict[str, dict[int, float]], side: str, by: str = "plain") -> Interval:
    return log_ratio(runs[f"{side}_seconds"], runs[f"{by}_seconds"])


def _line(method: str, runs: dict[str, dict[int, float]]) -> list[str]:
    accuracy = [runs[f"{side}_accuracy"] for side in SIDES]
    return [
        NAMES[method],
        *(f"{_times(runs, side).mean:.2f}" for side in SIDES),
        format_interval(ends(_times(runs, "avalanche", "olss")), 1),
        str(len(accuracy[0])),
        *(plain(interval(list(values.values()))) for values in accuracy),
        signed(difference(*accuracy)),
    ]


def _figure(found: Found) -> Figure:
    figure = Figure(figsize=(9, 2.8))
    counts = [sum(of == stream for of, _ in found) for stream in STREAMS]
    axes = figure.subplots(1, 2, sharey=True, width_ratios=counts)
    for axis, (stream, title) in zip(axes, STREAMS.items(), strict=True):
        methods = [method for of, method in found if of == stream]
        for shift, (side, (name, colour)) in zip((-0.2, 0.2), SIDES.items(), strict=True):
            values = [_times(found[stream, method], side).mean for method in methods]
            places = [i + shift for i in range(len(methods))]
            bars = axis.bar(places, values, 0.38, color=colour, label=name)
            axis.bar_label(bars, fmt="%.1f", fontsize=7)
        axis.axhline(1, color="#444444", linewidth=0.8)
        axis.set_xticks(range(len(methods)), [NAMES[m].replace(", ", ",\n") for m in methods])
        axis.set_title(title)
        axis.grid(axis="x", visible=False)
    axes[0].set_ylabel("times a plain PyTorch loop", fontsize=8)
    legend(figure, ncols=2)
    return figure
