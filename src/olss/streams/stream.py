"""Tasks and streams: training and test rows, made when they are asked for."""

from __future__ import annotations

import copy
import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError, MissingExtraError
from olss.util import checks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Stream", "Task", "hash_arrays", "sample_rows", "sample_stratified", "task_generator"]


def hash_arrays(*arrays: NDArray[Any] | None) -> str:
    """Return the SHA-256 of the dtypes, shapes and bytes of arrays."""
    state = hashlib.sha256()
    for array in arrays:
        if array is None:
            state.update(b"none")
            continue
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return state.hexdigest()


# The numbers are part of what a seed means: add some, but never change one.
PURPOSES: Final = {
    "angle": 0,
    "permutation": 1,
    "train rows": 2,
    "test rows": 3,
    "class order": 4,
    "split": 5,
    "label noise": 6,
    "outliers": 7,
    "imbalance": 8,
    "sizes": 9,
    "interleaving": 10,
    "validation": 11,
}


def task_generator(seed: int, purpose: str, task: int = 0) -> np.random.Generator:
    """Return the random generator of one purpose and task.

    Each has its own, so that asking for more rows does not change the permutations, and task 7 is
    the same whether or not tasks 1 to 6 were made before.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES[purpose], task)))


def sample_rows(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample `size` of the rows without replacement, in random order."""
    return rng.permutation(rows)[:size]


def sample_stratified(
    y: NDArray[Any] | None, rows: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sample `size` of the rows, sorted, in proportion to the classes up to one row.

    Rows are shuffled within each class and taken at equal distances from a random start
    (systematic sampling), so that each is taken with probability size / n. `y` holds the labels of
    the rows, or None for no strata.
    """
    order = rng.permutation(len(rows))
    if y is not None:
        order = order[np.argsort(y[order], kind="stable")]
    start = int(rng.integers(len(rows)))
    picked = (np.arange(size) * len(rows) + start) // max(1, size)
    return np.sort(rows[order[picked]])


Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Training and test rows of one task.

    Parameters
    ----------
    name : str
        Name for tables and figures.
    X, X_test : array (n, ...), (m, ...)
        Inputs. Images stay ``uint8`` (28 x 28, or channels first: 3 x 32 x 32).
    y, y_test : array (n,), (m,)
        Integer labels (``int64``), the same in all tasks of a stream; or numeric targets of
        shape (n,) or (n, outputs).
    classes : tuple of int or None
        The labels of this task; None for a numeric target.
    scale : float
        Divide inputs by this before a network sees them: 255 for ``uint8`` images.
    disturbed : bool array (n,) or None
        Which training rows were corrupted (a wrong label, an outlier).

    Examples
    --------
    >>> from olss.streams import permuted
    >>> task = permuted("digits", tasks=3)[1]
    >>> task
    Task('permutation 2', 1438 training and 359 test rows of shape (8, 8), 10 classes)
    >>> float((task.X / task.scale).max())
    1.0
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    classes: tuple[int, ...] | None
    scale: float = 1.0
    disturbed: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        kind = "numeric target" if self.classes is None else f"{len(self.classes)} classes"
        rows = f"{len(self.X)} training and {len(self.X_test)} test rows"
        return f"Task({self.name!r}, {rows} of shape {self.X.shape[1:]}, {kind})"


class Stream:
    """A sequence of tasks that can be iterated again and again.

    Made by `rotated`, `permuted`, `incremental`, `from_arrays`, `from_files` or `from_config`. Only
    the task asked for is in memory; asking twice gives the same bytes.

    Parameters
    ----------
    make : callable
        Makes task i.
    names : sequence of str
        Name of each task.
    config : dict
        What the stream is, as JSON: `from_config` makes the same stream from it.
    classes : tuple of int or None
        The labels of all tasks, sorted; None for numeric targets.
    hold_out : callable
        Makes the stream for tuning, ``hold_out(share, seed)``; see `validation`.
    class_names : tuple of str or None
        Names of the labels 0, 1, ..., if known.
    scale : float
        See `Task`.

    Examples
    --------
    >>> from olss.streams import rotated
    >>> stream = rotated("digits", tasks=3, train_rows=100, seed=0)
    >>> stream
    Stream(rotated, dataset='digits', tasks=3, angles='even', resample='bilinear',
           train_rows=100, seed=0)
    >>> for task in stream:
    ...     print(task.name, task.X.shape, task.X_test.shape)
    0 degrees (100, 8, 8) (359, 8, 8)
    90 degrees (100, 8, 8) (359, 8, 8)
    180 degrees (100, 8, 8) (359, 8, 8)
    """

    def __init__(
        self,
        make: Callable[[int], Task],
        names: Sequence[str],
        config: dict[str, Any],
        classes: tuple[int, ...] | None,
        hold_out: Callable[[float, int], Stream],
        class_names: tuple[str, ...] | None = None,
        scale: float = 1.0,
    ) -> None:
        self._make = make
        self._hold_out = hold_out
        # As JSON gives it back, so that a saved config equals a live one.
        self._config: dict[str, Any] = json.loads(json.dumps(config))
        self.names = tuple(names)
        self.classes = classes
        self.class_names = class_names
        self.scale = scale

    @property
    def config(self) -> dict[str, Any]:
        """What the stream is, ready for JSON; a copy."""
        return copy.deepcopy(self._config)

    @property
    def seed(self) -> int:
        """Seed of the stream."""
        return int(self._config.get("seed", 0))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Task:
        if isinstance(number, slice):
            raise InputError(f"index must be one task, found the slice {number!r}.")
        number = operator.index(number)
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range: the stream has {len(self)} tasks.")
        return self._make(number % len(self))

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def validation(self, share: float = 0.1, seed: int | None = None) -> Stream:
        """Return the stream for tuning, whose test rows are held-out training rows.

        Held-out rows are in no task's training rows, and the test rows of this stream are not used
        at all. Corruptions change training rows only, so held-out rows are clean.

        Parameters
        ----------
        share : float
            Fraction of the training rows to hold out, stratified by class.
        seed : int, optional
            Seed of the split; that of the stream by default.

        Examples
        --------
        >>> from olss.streams import permuted
        >>> tuning = permuted("digits", tasks=2).validation(share=0.25)
        >>> tuning[0]
        Task('permutation 1', 1078 training and 360 test rows of shape (8, 8), 10 classes)
        """
        if "validation" in self._config:
            raise InputError("validation() of a stream for tuning is not supported: call it once.")
        seed = self.seed if seed is None else checks.seed(seed)
        return self._hold_out(checks.number("share", share, above=0, maximum=0.9), seed)

    def describe(self) -> str:
        """Return a table of the tasks: name, rows, classes. Every task is made once.

        Examples
        --------
        >>> from olss.streams import incremental
        >>> print(incremental("digits", tasks=5, order="natural").describe())
        Stream(incremental, dataset='digits', tasks=5, order='natural', seed=0)
        inputs of shape (8, 8), uint8, divided by 16; 10 classes
        task  training  test  classes  name
           1       288    72        2  classes 0 1
           2       288    72        2  classes 2 3
           3       290    73        2  classes 4 5
           4       288    72        2  classes 6 7
           5       284    70        2  classes 8 9
        """
        lines = ["task  training  test  classes  name"]
        for number, task in enumerate(self, start=1):
            classes = "-" if task.classes is None else str(len(task.classes))
            lines.append(
                f"{number:4d}  {len(task.X):8d} {len(task.X_test):5d}  {classes:>7s}  {task.name}"
            )
        target = "numeric target" if self.classes is None else f"{len(self.classes)} classes"
        divided = "" if self.scale == 1 else f", divided by {self.scale:g}"
        shape = f"inputs of shape {task.X.shape[1:]}, {task.X.dtype}{divided}; {target}"
        return "\n".join([repr(self), shape, *lines])

    def preview(
        self, path: str | Path | None = None, *, tasks: int = 10, examples: int = 6
    ) -> Figure:
        """Plot training examples, a column for each task, and write them to `path` if given.

        Parameters
        ----------
        path : str or Path, optional
            File to write: .png, .svg or .pdf.
        tasks, examples : int
            Maximum of each. Tasks are spread evenly over the stream.

        Returns
        -------
        matplotlib.figure.Figure
        """
        shown = min(checks.integer("tasks", tasks), len(self))
        numbers = np.unique(np.linspace(0, len(self) - 1, shown).round().astype(int)).tolist()
        examples = checks.integer("examples", examples)
        figure = _plot_preview(numbers, self.__getitem__, self.class_names, examples)
        if path is not None:
            figure.savefig(path)
        return figure

    def __repr__(self) -> str:
        config = self.config
        steps = config.pop("steps", [])
        validation = config.pop("validation", None)
        text = f"Stream({config.pop('name')}{_options(config)})"
        if validation:
            text += f".validation({_options(validation)[2:]})"
        return text + "".join(f" + {step.pop('name')}({_options(step)[2:]})" for step in steps)


def _options(options: dict[str, Any]) -> str:
    """Return ', key=value' for each option that is set, long values shortened."""
    shown = {key: repr(value) for key, value in options.items() if value is not None}
    short = {key: text if len(text) <= 60 else text[:56] + " ..." for key, text in shown.items()}
    return "".join(f", {key}={text}" for key, text in short.items())


def _plot_preview(
    numbers: Sequence[int],
    make: Callable[[int], Task],
    class_names: tuple[str, ...] | None,
    examples: int,
) -> Figure:
    """Plot the tasks with these indices; see `Stream.preview`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "Stream.preview") from error
    figure = Figure(figsize=(1.1 * len(numbers) + 0.3, 1.2 * examples + 0.6), dpi=120)
    grid = figure.subplots(examples, len(numbers), squeeze=False)
    for column, number in enumerate(numbers):
        task = make(number)
        grid[0, column].set_title(f"{number + 1}\n{_shorten(task.name)}", fontsize=7)
        for row, axes in enumerate(grid[:, column]):
            axes.set_axis_off()
            if row < len(task.X):
                _plot_example(axes, task.X[row], task.scale)
                label = _target_text(task, row, class_names)
                place = {"ha": "center", "va": "top", "transform": axes.transAxes}
                axes.text(0.5, -0.02, label, fontsize=6, **place)
    figure.tight_layout(pad=0.4)
    return figure


def _plot_example(axes: Axes, example: NDArray[Any], scale: float) -> None:
    if example.ndim == 1:
        axes.plot(example, linewidth=0.8)
        return
    picture = example / scale
    if picture.ndim == 3:
        picture = np.moveaxis(picture, 0, -1)
        picture = picture if picture.shape[-1] == 3 else picture[..., 0]
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1 if scale != 1 else None)


def _target_text(task: Task, row: int, class_names: tuple[str, ...] | None) -> str:
    target = task.y[row]
    if task.classes is None:
        return f"{np.ravel(target)[0]:.3g}"
    return str(target) if class_names is None else class_names[int(target)]


def _shorten(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:16]} …"
