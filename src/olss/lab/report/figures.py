"""Figures fit for a paper, drawn from the content of a report as SVG and PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olss.lab.report.plots import INK, PLOTS
from olss.util.files import whole_file

__all__ = ["LOOK", "draw_figures"]

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
            with whole_file(folder / f"{stem}.svg") as file:
                figure.savefig(file, format="svg", metadata={"Date": None})
            figure.set_layout_engine("none")  # laid out once is enough
            with whole_file(folder / f"{stem}.png") as file:
                figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
            names.append(stem)
    return names
