"""Which classes compete for an answer."""

from __future__ import annotations

import torch
from torch import Tensor

from olss.errors import InputError

__all__ = ["COMPETING", "Head"]

COMPETING = {
    "seen": "all classes seen so far compete",
    "task": "only the classes of a row's own task compete, so the task is known",
    "all": "all classes compete from the start",
}


class Head:
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

    def mask(self, outputs: Tensor, task: Tensor | int | None) -> Tensor:
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
