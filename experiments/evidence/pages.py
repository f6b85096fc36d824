"""Write tables and figures into the pages that have a place for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from olss.lab.report.figures import LOOK, policy_style
from olss.lab.report.statistics import Interval
from olss.util.text import format_interval

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

CHOICES = {  # what a memory keeps by, and how it is drawn
    "paper": policy_style("paper"),
    "weighted": policy_style("weighted"),
    "reservoir": policy_style("reservoir"),
    "balanced": policy_style("balanced"),
    "balanced-leverage": policy_style("balanced-leverage"),
    "balanced-random": policy_style("balanced-random"),
    "recent": policy_style("recent"),
    "weighted, features": policy_style("weighted", features=True),
    "balanced, features": policy_style("balanced", features=True),
    "paper, features": policy_style("paper", features=True),
}
SIZES = (200, 500, 2_000, 10_000)
STREAMS = ("permuted", "rotated")


def legend(figure: Figure, ncols: int) -> None:
    """Name every line of a figure once, below it."""
    shown: dict[str, Any] = {}
    for axis in figure.axes:
        handles, names = axis.get_legend_handles_labels()
        shown |= dict(zip(names, handles, strict=True))
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=ncols, frameon=False,
        fontsize=8,
    )  # fmt: skip


def by_memory(axis: Any) -> None:
    """Let an axis run over the sizes of memories."""
    axis.set_xscale("log")
    axis.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axis.minorticks_off()


def draw(folder: str, name: str, make: Callable[[], Figure]) -> None:
    """Draw a figure beside its data, and into the documentation."""
    with rc_context(LOOK):
        figure = make()
        figure.savefig(RESULTS / folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(
            ROOT / "docs" / "images" / f"{name}.png", dpi=150, metadata={"Software": None}
        )


def fill(name: str, text: str) -> None:
    """Write a table into every page that has a place for it."""
    place = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    pages = [*PAGES, *RESULTS.glob("*/README.md")]
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = place.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", before)
        if after != before:
            page.write_text(after, encoding="utf-8")


def write(name: str, text: str) -> None:
    """Write a page of its own."""
    (ROOT / name).write_text(text, encoding="utf-8")


def table(columns: list[str], lines: list[list[str]], rule: str = "---:") -> str:
    """Return a table in Markdown."""
    rules = ["---", *(rule for _ in columns[1:])]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [columns, rules, *lines])


def ends(value: Interval) -> dict[str, float | None]:
    """Return mean and interval alone: the pages have an interval from any number of seeds."""
    return {key: number for key, number in value.content().items() if key != "count"}


def plain(value: Interval) -> str:
    """Return a mean, in per cent, and half its interval."""
    return format_interval(ends(value), 1)


def signed(value: Interval) -> str:
    """Return a difference with its sign, bold where its interval leaves out zero."""
    clear = value.count > 1 and abs(value.mean) > value.half
    text = format_interval(ends(value), 1, signed=True)
    return f"**{text}**" if clear else text


def bars(values: Iterable[Interval]) -> list[float]:
    """Return half the interval of each, none for one seed: what error bars show."""
    return [0.0 if math.isnan(value.half) else value.half for value in values]
