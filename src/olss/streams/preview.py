"""A picture of a stream: tasks across, examples down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from olss.streams.stream import Stream

__all__ = ["draw_preview"]


def draw_preview(stream: Stream, path: str | Path | None, *, tasks: int, examples: int) -> Figure:
    """Draw the grid; see `Stream.preview`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "Stream.preview") from error
    shown = np.unique(np.linspace(0, len(stream) - 1, min(tasks, len(stream))).round().astype(int))
    figure = Figure(figsize=(1.1 * len(shown) + 0.3, 1.2 * examples + 0.6), dpi=120)
    grid = figure.subplots(examples, len(shown), squeeze=False)
    for column, number in enumerate(shown):
        task = stream[int(number)]
        grid[0, column].set_title(f"{number + 1}\n{_short(task.name)}", fontsize=7)
        for row, axes in enumerate(grid[:, column]):
            axes.set_axis_off()
            if row < len(task.X):
                _draw(axes, task.X[row], task.scale)
                axes.text(
                    0.5, -0.02, _target(stream, task.y[row]), fontsize=6, ha="center", va="top",
                    transform=axes.transAxes,
                )  # fmt: skip
    figure.tight_layout(pad=0.4)
    if path is not None:
        figure.savefig(path)
    return figure


def _draw(axes: Axes, example: NDArray[Any], scale: float) -> None:
    if example.ndim == 1:
        axes.plot(example, linewidth=0.8)
        return
    picture = example / scale
    if picture.ndim == 3:
        picture = np.moveaxis(picture, 0, -1)
        picture = picture if picture.shape[-1] == 3 else picture[..., 0]
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1 if scale != 1 else None)


def _target(stream: Stream, target: Any) -> str:
    if stream.classes is None:
        return f"{np.ravel(target)[0]:.3g}"
    return str(target) if stream.class_names is None else stream.class_names[int(target)]


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:16]} …"
