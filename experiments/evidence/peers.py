"""Rows kept by other libraries and by olss: what `python -m benchmarks.peers` measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from olss.lab.report.figures import BLUE, GREY, VERMILLION

from . import pages
from .pages import RESULTS, table

Row = dict[str, str]
TITLES = {
    "file": "10 million rows in a file",
    "stream": "the same as 1,000 blocks",
    "digits": "60,000 images at once",
}
# What is said of a failure in few words, by how its reason begins.
SHORT = {
    "not done": "too slow",
    "MemoryError": "out of memory",
    "JaxRuntimeError: RESOURCE_EXHAUSTED": "out of memory",
    "cannot stream": "cannot stream",
    "needs classes": "needs classes",
    "has nothing": "has none",
}


def make() -> None:
    """Write the tables and the figure of what is in ``experiments/results/peers``."""
    measured, lasting = (read(RESULTS / "peers", n) for n in ("measurements", "properties"))
    if not measured:
        return
    for problem in TITLES:
        pages.fill(f"peers-{problem}", times(measured, problem))
    pages.fill("peers-properties", properties(measured, lasting))
    pages.draw("peers", "peers", lambda: figure(measured))


def read(folder: Path, name: str) -> list[Row]:
    """Return the lines of a file of results, none if it is not there."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def times(measured: list[Row], problem: str) -> str:
    """Return the table of one problem."""
    columns = [
        "",
        "processor seconds",
        "times reading alone",
        "memory, MB",
        "rows kept",
        "spectral error",
    ]
    lines = []
    for row in measured:
        if row["problem"] != problem or row["reason"].startswith(("needs classes", "NotImpl")):
            continue
        name = row["method"] if row["method"].startswith("reading") else method(row)
        if row["reason"]:
            lines.append([name, f"*{row['reason']}*", "", "", "", ""])
            continue
        kept = f"{int(row['kept']):,}" if row["error"] else ""
        cells = [f"{float(row['processor']):.2f}", f"{float(row['ratio']):.3g}", row["megabytes"]]
        lines.append([name, *cells, kept, row["error"]])
    return table(columns, lines)


def method(row: Row) -> str:
    """Return a method with the version of its library."""
    return f"{row['method']} ({row['version']})"


def properties(measured: list[Row], lasting: list[Row]) -> str:
    """Return what holds of each method whatever the problem."""
    columns = [
        "", "same seed, same rows", "unbiased: off by, z", "two can be merged", "continued later",
    ]  # fmt: skip
    lines = []
    for row in lasting:
        if row["reason"]:
            lines.append([row["method"], f"*{row['reason']}*", "", "", ""])
            continue
        large = [r["same"] for r in measured if r["method"] == row["method"] and r["same"]]
        same = row["same"] == "True" and "False" not in large
        lines.append(
            [row["method"], _yes(same), _bias(row), _yes(row["merged"]), _yes(row["continued"])]
        )
    return table(columns, lines, "---")


def _yes(value: Any) -> str:
    return "yes" if str(value) == "True" else "no"


def _bias(row: Row) -> str:
    off, z = float(row["off"]), float(row["z"])
    if math.isinf(z):
        return f"no: {off:+.1f}% with every seed"
    return f"{'yes' if abs(z) < 3 else 'no'}: {off:+.1f}%, {z:+.1f}"


def figure(measured: list[Row]) -> Figure:
    """Draw how long each method takes on each problem, and why it does not end."""
    names = list(dict.fromkeys(row["method"] for row in measured))
    names = [n for n in names if not n.startswith(("reading", "river"))][::-1]
    there = {row["problem"] for row in measured if row["ratio"]}
    titles = {problem: title for problem, title in TITLES.items() if problem in there}
    drawn = Figure(figsize=(9, 5.4), layout="constrained")
    axes = drawn.subplots(1, len(titles), sharey=True, squeeze=False)[0]
    for axis, (problem, title) in zip(axes, titles.items(), strict=True):
        axis.set(xscale="log", title=title, xlabel="seconds of processor time")
        axis.set(ylim=(-0.6, len(names)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        rows = {row["method"]: row for row in measured if row["problem"] == problem}
        done = {n: float(rows[n]["processor"]) for n in names if n in rows and rows[n]["ratio"]}
        reading = float(rows["reading alone"]["processor"])
        axis.axvline(reading, color=VERMILLION, linewidth=1, zorder=0)
        axis.text(reading, len(names) - 0.5, " reading alone", fontsize=7, color=VERMILLION)
        axis.set_xlim(reading / 2, 6 * max(done.values()))
        for name in names:
            if name not in rows:
                continue
            place = names.index(name)
            if name in done:
                colour = BLUE if name.startswith("olss") else GREY
                axis.barh(place, done[name], color=colour, height=0.7)
                axis.text(done[name], place, f" {done[name]:.2g}", va="center", fontsize=7)
            else:
                words = short(rows[name]["reason"])
                place_x = axis.get_xlim()[0] * 1.1
                axis.text(place_x, place, words, va="center", fontsize=7, style="italic")
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="y", visible=False)
    return drawn


def short(reason: str) -> str:
    """Return why a method failed in a word or two."""
    return next((words for begin, words in SHORT.items() if reason.startswith(begin)), "fails")
