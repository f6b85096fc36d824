"""What policies do with wrong labels and pictures of noise."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from olss.lab.report.figures import line_kwargs
from olss.lab.report.statistics import interval

from . import pages
from .gather import Row, load, matching, mean_of
from .pages import CHOICES, legend, plain, table


def make() -> None:
    """Accuracy and share of noise held, by policy and level."""
    rows = load("noise")
    if not rows:
        return
    clean = [row for row in rows if not row["noise"]]
    kinds = {"label_noise": "wrong labels", "outliers": "pictures of noise"}
    names = ["reservoir", "paper", "weighted", "balanced", "balanced-leverage", "balanced-random"]
    names += ["paper, features", "weighted, features", "balanced, features"]
    for kind in kinds:
        lines = []
        for choice in names:
            cells = [plain(mean_of(clean, choice=choice))]
            for share in (0.1, 0.3):
                mine = matching(rows, noise=kind, share=share, choice=choice)
                held = interval([_noise_held(r) for r in mine])
                cells += [plain(interval([r["average"] for r in mine])), plain(held)]
            lines.append([choice, *cells])
        columns = ["memory", "clean", "10 %", "noise held", "30 %", "noise held"]
        pages.fill(f"noise-{kind}", table(columns, lines))
    pages.draw("noise", "noise", lambda: _noise_figure(rows, kinds, names))


def _noise_figure(rows: list[Row], kinds: dict[str, str], names: list[str]) -> Figure:
    figure = Figure(figsize=(9, 5))
    axes = figure.subplots(2, 2)
    for line, (kind, words) in zip(axes, kinds.items(), strict=True):
        for choice in names:
            mine = [r for r in rows if r["choice"] == choice and r["noise"] in ("", kind)]
            shares = sorted({r["share"] for r in mine})
            at = [[r for r in mine if r["share"] == share] for share in shares]
            for axis, value in zip(line, (lambda r: r["average"], _noise_held), strict=True):
                axis.plot(
                    [100 * s for s in shares], [np.mean([value(r) for r in part]) for part in at],
                    marker="o", markersize=3.5, label=choice, **line_kwargs(CHOICES[choice]),
                )  # fmt: skip
        line[0].set_ylabel("average accuracy, %", fontsize=8)
        line[1].set_ylabel("noise in the memory, %", fontsize=8)
        line[1].plot([0, 30], [0, 30], color="#999999", linewidth=0.8, linestyle=":")
        for axis in line:
            axis.set_xlabel(f"{words} in the stream, %", fontsize=8)
            axis.set_xticks([0, 10, 30])
    legend(figure, ncols=4)
    return figure


def _noise_held(row: Row) -> float:
    return 100.0 * row["disturbed"] / max(1, row["held"])
