"""Labels of any kind as the numbers of the net's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError

__all__ = ["Labels", "distinct"]


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
