"""Task: what is learned in one go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Task"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Training and test rows of one task.

    Parameters
    ----------
    name : str
        What the task is, for tables and pictures.
    X, X_test : array (n, ...), (m, ...)
        Inputs. Images stay ``uint8`` (28 x 28, or channels first: 3 x 32 x 32).
    y, y_test : array (n,), (m,)
        Whole-number labels (``int64``), the same numbers in all tasks of a stream; or real
        targets of shape (n,) or (n, outputs).
    classes : tuple of int or None
        The labels this task has; None when the targets are real numbers.
    scale : float
        Inputs divided by this lie in a range fit for a network: 255 for ``uint8`` images.
    disturbed : bool array (n,) or None
        Which training rows a disturbance changed (a wrong label, an outlier).

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
        kind = "real targets" if self.classes is None else f"{len(self.classes)} classes"
        rows = f"{len(self.X)} training and {len(self.X_test)} test rows"
        return f"Task({self.name!r}, {rows} of shape {self.X.shape[1:]}, {kind})"
