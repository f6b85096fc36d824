"""Class labels as outputs of the net, and which classes compete for an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.errors import DataError, InputError

__all__ = ["COMPETING", "ClassMask", "Labels", "distinct"]


def distinct(labels: Any, name: str = "y") -> NDArray[Any]:
    """Return the labels there are, sorted, or say that they cannot be."""
    try:
        found = np.unique(np.asarray(labels))
    except TypeError as error:
        raise _mixed(name) from error
    if found.dtype.kind not in "biufUTO" or (found.dtype == object and isinstance(found[0], bytes)):
        raise DataError(f"{name} must hold labels that are text or numbers, found {found.dtype}.")
    return found


def _mixed(name: str) -> DataError:
    return DataError(
        f"{name} holds labels that cannot be sorted, such as None beside text; give all the same "
        "kind, and fill or drop rows without one."
    )


class Labels:
    """The classes of a run, sorted; class i is output i of the net.

    Examples
    --------
    >>> labels = Labels(["cat", "dog"])
    >>> labels.encode(["dog", "cat"])
    array([1, 0])
    >>> labels.decode(np.array([1]))
    array(['dog'], dtype='<U3')
    """

    def __init__(self, classes: Any = None) -> None:
        self.classes: NDArray[Any] | None = None
        if classes is not None:
            self.classes = distinct(classes, "classes")

    def __len__(self) -> int:
        return 0 if self.classes is None else len(self.classes)

    def encode(self, y: Any, name: str = "y") -> NDArray[np.int64]:
        """Return the outputs that stand for labels, or say which label is unknown."""
        y = np.asarray(y)
        if y.ndim != 1 or (y.dtype.kind == "f" and (y % 1 != 0).any()):
            raise DataError(
                f"{name} must hold one label a row, found {y.dtype} of shape {y.shape}. For "
                "numbers to predict, choose a loss for them: loss='l2', 'l1' or 'huber'."
            )
        if self.classes is None:
            self.classes = distinct(y, name)
        try:
            place = np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)
        except TypeError as error:
            raise _mixed(name) from error
        unknown = self.classes[place] != y
        if np.any(unknown):
            raise DataError(
                f"{name} holds the label {y[unknown].tolist()[0]!r}, which is none of the "
                f"{len(self)} classes the learner was started with; start it with all of them: "
                "learner.start(classes=...)."
            )
        return np.asarray(place, np.int64)

    def decode(self, outputs: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels outputs stand for."""
        assert self.classes is not None
        return self.classes[outputs]


COMPETING = {
    "seen": "all classes seen so far compete",
    "task": "only the classes of a row's own task compete, so the task is known",
    "all": "all classes compete from the start",
}


class ClassMask:
    """Which outputs of the net may answer, in training and in the test alike.

    Parameters
    ----------
    mode : str
        "seen": all classes seen so far compete, as in the paper. "task": only the classes of
        the row's own task, so the task must be known in the test too (GEM's setting; chance
        is one over the classes of a task). "all": every output.
    classes : int
        Number of outputs.
    """

    def __init__(self, mode: str, classes: int, device: torch.device | str = "cpu") -> None:
        self.mode = mode
        self.table = torch.zeros((0, classes), dtype=torch.bool, device=device)

    def open(self, present: Tensor) -> None:
        """Begin a task that holds the classes `present`."""
        row = self.table.new_zeros((1, self.table.shape[1]))
        row[0, present] = True
        self.load(torch.cat([self.table, row]))

    def load(self, table: Tensor) -> None:
        """Take the classes of each task, (tasks, classes) true where a task holds a class."""
        self.table = table
        self.seen = table.any(0)
        shut = ~(table if self.mode == "task" else self.seen)
        # An output of -inf takes no part in a softmax and gets no gradient.
        self.shut = torch.zeros_like(shut, dtype=torch.float32).masked_fill(shut, -torch.inf)
        self.open_to_all = self.mode == "all" or not shut.any()

    def apply(self, outputs: Tensor, task: Tensor | int | None) -> Tensor:
        """Set outputs that may not answer to minus infinity.

        `task` is the task of each row, or of all rows; only the head "task" reads it.
        """
        if self.open_to_all:
            return outputs
        if self.mode != "task":
            return outputs + self.shut
        if task is None:
            raise InputError("task must be given: with head='task' only its classes may answer.")
        return outputs + self.shut[task]
