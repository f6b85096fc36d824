"""Policies and methods at equal memory."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from olss.lab.report.figures import DASHES, POLICIES, Style, assign_styles, line_kwargs
from olss.lab.report.statistics import difference

from . import pages
from .gather import Row, load, matching, mean_of, select
from .pages import CHOICES, SIZES, STREAMS, bars, by_memory, legend, plain, signed, table


def make() -> None:
    """Policies and methods at equal memory: two figures, four tables."""
    rows = load("equal-memory")
    if not rows:
        return
    pages.draw("equal-memory", "policies", lambda: _policies(rows))
    pages.draw("equal-memory", "methods", lambda: _methods(rows))
    for stream in STREAMS:
        mine = matching(rows, stream=stream)
        pages.fill(f"policies-{stream}", _policy_table(mine))
        pages.fill(f"methods-{stream}", _method_table(mine))


def _regime(regime: str) -> dict[str, str]:
    return {"recipe": "olss", "regime": regime}


def _policies(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(9.5, 5.4))
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    names = {
        "sketch": "on the sketch alone",
        "mix": "on a mix of constant size",
        "replay": "by replay",
    }
    for line, stream in zip(axes, STREAMS, strict=True):
        for axis, (regime, words) in zip(line, names.items(), strict=True):
            mine = matching(rows, stream=stream, **_regime(regime))
            for number, choice in enumerate(CHOICES):
                ends = [(s * 1.03 ** (number - 4), _against(mine, choice, s)) for s in SIZES]
                ends = [(s, e) for s, e in ends if e.count]
                if choice in ("reservoir", "recent") or not ends:
                    continue
                axis.errorbar(
                    [s for s, _ in ends], [e.mean for _, e in ends],
                    bars(e for _, e in ends), label=choice,
                    **line_kwargs(CHOICES[choice]), marker="o", markersize=3.5, capsize=2,
                )  # fmt: skip
            axis.axhline(0, color=CHOICES["reservoir"].colour, linewidth=1)
            axis.set_ylim(-12, 18)
            by_memory(axis)
            axis.set_title(f"{stream}, trained {words}", fontsize=8)
        line[0].set_ylabel("points above a reservoir", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("rows remembered of 200,000", fontsize=8)
    legend(figure, ncols=7)
    return figure


def _against(rows: list[Row], choice: str, size: int) -> Any:
    """Compare a policy with a reservoir of the same size, seed by seed."""
    return difference(
        select(rows, choice=choice, memory=size), select(rows, choice="reservoir", memory=size)
    )


METHODS: dict[str, dict[str, Any]] = {
    "replay + distillation, balanced": {"recipe": "olss+der++", "policy": "balanced"},
    "DER++ (the same with a reservoir)": {"recipe": "der++"},
    "replay, balanced": {**_regime("replay"), "choice": "balanced"},
    "replay, reservoir (ER)": {**_regime("replay"), "choice": "reservoir"},
    "mix, balanced": {**_regime("mix"), "choice": "balanced"},
    "mix, reservoir": {**_regime("mix"), "choice": "reservoir"},
    "sketch alone, balanced": {**_regime("sketch"), "choice": "balanced"},
    "sketch alone, reservoir": {**_regime("sketch"), "choice": "reservoir"},
    "sketch alone, paper": {**_regime("sketch"), "choice": "paper"},
    "GEM": {"recipe": "gem"},
}
# The colour says the policy, the dashes how it is trained.
FULL, DASHED, DOTTED, _ = DASHES
LINES = {
    "replay + distillation, balanced": Style(POLICIES["balanced"], FULL),
    "DER++ (the same with a reservoir)": Style(POLICIES["reservoir"], FULL),
    "replay, balanced": Style(POLICIES["balanced"], DASHED),
    "replay, reservoir (ER)": Style(POLICIES["reservoir"], DASHED),
    "sketch alone, balanced": Style(POLICIES["balanced"], DOTTED),
    "sketch alone, paper": Style(POLICIES["paper"], DOTTED),
    "GEM": assign_styles([("GEM", "gem", None)])["GEM"],
}


def _methods(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(9, 3.6))
    for axis, stream in zip(figure.subplots(1, 2, sharey=True), STREAMS, strict=True):
        mine = matching(rows, stream=stream)
        for name, style in LINES.items():
            ends = [(s, mean_of(mine, memory=s, **METHODS[name])) for s in SIZES]
            ends = [(s, e) for s, e in ends if e.count]
            axis.errorbar(
                [s for s, _ in ends], [e.mean for _, e in ends],
                bars(e for _, e in ends), **line_kwargs(style),
                marker="o", markersize=3.5, capsize=2, label=name,
            )  # fmt: skip
        by_memory(axis)
        axis.set_title(f"{stream} MNIST", fontsize=9)
        axis.set_xlabel("rows remembered of 200,000", fontsize=8)
        axis.set_ylabel("average accuracy, %", fontsize=8)
    legend(figure, ncols=4)
    return figure


def _policy_table(rows: list[Row]) -> str:
    lines = []
    for regime in ("sketch", "mix", "replay"):
        mine = matching(rows, **_regime(regime))
        base = [mean_of(mine, choice="reservoir", memory=s) for s in SIZES]
        lines.append([f"**{regime}**: reservoir", *(plain(value) for value in base)])
        for choice in CHOICES:
            cells = [_against(mine, choice, size) for size in SIZES]
            if choice != "reservoir" and any(cell.count for cell in cells):
                lines.append([f"{regime}: {choice}", *map(signed, cells)])
    return table(["", *(f"{size:,} rows" for size in SIZES)], lines)


def _method_table(rows: list[Row]) -> str:
    lines = [
        [name, *(plain(mean_of(rows, memory=s, **how)) for s in SIZES)]
        for name, how in METHODS.items()
    ]
    return table(["", *(f"{size:,} rows" for size in SIZES)], lines)
