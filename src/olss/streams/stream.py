"""Stream: a sequence of tasks, each made when it is asked for."""

from __future__ import annotations

import copy
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from olss.errors import InputError
from olss.streams.task import Task
from olss.util import checks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Stream"]


class Stream:
    """A sequence of tasks that can be gone through again and again.

    Made by `rotated`, `permuted`, `incremental`, `from_arrays`, `from_files` or
    `from_config`. Only the task asked for is in memory; asking twice gives the same bytes.

    Parameters
    ----------
    make : callable
        Makes task number i.
    names : sequence of str
        Name of each task.
    config : dict
        What the stream is, in JSON terms: `from_config` makes the same stream from it.
    classes : tuple of int or None
        All labels of all tasks, sorted; None when targets are real numbers.
    class_names : tuple of str or None
        What the labels 0, 1, ... mean, where that is known.
    scale : float
        See `Task`.
    hold_out : callable
        Makes the stream for tuning: ``hold_out(share, seed)``; see `validation`.

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
        """What the stream is: a copy, ready for JSON."""
        return copy.deepcopy(self._config)

    @property
    def seed(self) -> int:
        """Seed the stream was made with."""
        return int(self._config.get("seed", 0))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Task:
        if isinstance(number, slice):
            raise InputError(f"a stream gives one task at a time, found the slice {number!r}.")
        number = operator.index(number)
        if not -len(self) <= number < len(self):
            raise IndexError(f"task {number} of a stream of {len(self)} tasks")
        return self._make(number % len(self))

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def validation(self, share: float = 0.1, seed: int | None = None) -> Stream:
        """Return the stream to choose settings on: test rows are held-out training rows.

        The rows held out are never trained on in any task, and the test rows of this stream
        are not in the other at all. Disturbances change training rows only, so the held-out
        rows are clean.

        Parameters
        ----------
        share : float
            Share of the training rows to hold out, the same share of each class.
        seed : int, optional
            Seed of the choice; the stream's own by default.

        Examples
        --------
        >>> from olss.streams import permuted
        >>> tuning = permuted("digits", tasks=2).validation(share=0.25)
        >>> tuning[0]
        Task('permutation 1', 1078 training and 360 test rows of shape (8, 8), 10 classes)
        """
        if "validation" in self._config:
            raise InputError("validation was asked for twice: this stream is one for tuning.")
        seed = self.seed if seed is None else checks.seed(seed)
        return self._hold_out(checks.number("share", share, above=0, most=0.9), seed)

    def describe(self) -> str:
        """Return a table of the tasks: name, rows, classes. Makes every task once.

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
        target = "real targets" if self.classes is None else f"{len(self.classes)} classes"
        divided = "" if self.scale == 1 else f", divided by {self.scale:g}"
        shape = f"inputs of shape {task.X.shape[1:]}, {task.X.dtype}{divided}; {target}"
        return "\n".join([repr(self), shape, *lines])

    def preview(
        self, path: str | Path | None = None, *, tasks: int = 10, examples: int = 6
    ) -> Figure:
        """Return a picture of tasks across and training examples down, written to `path` if given.

        Parameters
        ----------
        path : str or Path, optional
            File to write: .png, .svg or .pdf.
        tasks, examples : int
            How many at most. Tasks are spread evenly over the stream.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from olss.streams.preview import draw_preview

        shown = min(checks.whole("tasks", tasks), len(self))
        numbers = np.unique(np.linspace(0, len(self) - 1, shown).round().astype(int)).tolist()
        examples = checks.whole("examples", examples)
        figure = draw_preview(numbers, self.__getitem__, self.class_names, examples)
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
    """Return ', key=value' for each option that is set, long ones cut short."""
    shown = {key: repr(value) for key, value in options.items() if value is not None}
    short = {key: text if len(text) <= 60 else text[:56] + " ..." for key, text in shown.items()}
    return "".join(f", {key}={text}" for key, text in short.items())
