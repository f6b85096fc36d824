"""A picture of a stream: tasks across, examples down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import MissingExtraError
from olss.streams.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_preview"]


def draw_preview(
    numbers: Sequence[int],
    make: Callable[[int], Task],
    class_names: tuple[str, ...] | None,
    examples: int,
) -> Figure:
    """Return the picture of the tasks of these numbers; see `Stream.preview`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "Stream.preview") from error
    figure = Figure(figsize=(1.1 * len(numbers) + 0.3, 1.2 * examples + 0.6), dpi=120)
    grid = figure.subplots(examples, len(numbers), squeeze=False)
    for column, number in enumerate(numbers):
        task = make(number)
        grid[0, column].set_title(f"{number + 1}\n{_short(task.name)}", fontsize=7)
        for row, axes in enumerate(grid[:, column]):
            axes.set_axis_off()
            if row < len(task.X):
                _draw(axes, task.X[row], task.scale)
                axes.text(
                    0.5, -0.02, _target(task, row, class_names), fontsize=6, ha="center", va="top",
                    transform=axes.transAxes,
                )  # fmt: skip
    figure.tight_layout(pad=0.4)
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


def _target(task: Task, row: int, class_names: tuple[str, ...] | None) -> str:
    target = task.y[row]
    if task.classes is None:
        return f"{np.ravel(target)[0]:.3g}"
    return str(target) if class_names is None else class_names[int(target)]


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:16]} …"
