"""How a net is trained: the settings every recipe shares, and torch's optimisers by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from olss.common.near_names import nearest
from olss.errors import InputError
from olss.learn.heads import HEADS
from olss.learn.losses import LOSSES
from olss.learn.memories import positive
from olss.learn.nets import Net, describe

__all__ = ["SCHEDULES", "Training"]

SCHEDULES = ("constant", "cosine", "linear", "one-cycle")
OPTIMIZERS: dict[str, Any] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
}


@dataclass(frozen=True)
class Training:
    """Settings of the training loop.

    Parameters
    ----------
    net : str, nn.Module or callable
        "mlp" (two layers of 400, as in the paper), "mlp-100-100" (any widths), "resnet18"
        (20, 40, 80 and 160 maps), a module, or a function that makes one.
    lr : float
        Learning rate.
    epochs : int
        Passes over a task's training set.
    batch : int
        Rows of a step; a single row left over joins the step before it.
    optimizer : str
        "sgd" (plain, as in the paper) or the name of another of torch's optimisers; a new one
        for each task.
    momentum, weight_decay : float
        Given to the optimiser where they are not 0.
    optimizer_settings : dict, optional
        Anything else the optimiser takes.
    schedule : str
        Of the learning rate within a task: "constant", "cosine", "linear" (both to 0) or
        "one-cycle".
    loss : str
        "cross-entropy" for classes; "l1", "l2" or "huber" for numbers.
    weighted_loss : bool
        Whether rows count in the loss by their weight in the memory.
    head : str
        Which classes compete: "seen", "task", "all" or "nearest-mean"; see `heads.Head`.
    threads : int
        Threads of the arithmetic in `run`. Sums change in their last digits with the number
        of threads, so it is a setting of its own and not whatever the machine has: the same
        settings give the same record anywhere. One thread and several jobs use a machine
        best; large nets alone on a machine want more.
    """

    net: Net = "mlp"
    lr: float = 0.1
    epochs: int = 1
    batch: int = 200
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer_settings: dict[str, Any] | None = None
    schedule: str = "constant"
    loss: str = "cross-entropy"
    weighted_loss: bool = False
    head: str = "seen"
    threads: int = 1

    def __post_init__(self) -> None:
        describe(self.net)
        for name in ("epochs", "batch", "threads"):
            positive(name, getattr(self, name))
        if isinstance(self.lr, bool) or not isinstance(self.lr, (int, float)) or not self.lr > 0:
            raise InputError(f"lr must be a number above 0, found {self.lr!r}.")
        for name, known in (
            ("loss", tuple(LOSSES)),
            ("head", tuple(HEADS)),
            ("schedule", SCHEDULES),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} must be one of {', '.join(known)}, found {getattr(self, name)!r}."
                )
        if self.optimizer.lower() not in OPTIMIZERS:
            raise InputError(
                f"optimizer must be one of torch's, found {self.optimizer!r}. "
                f"{nearest(self.optimizer.lower(), OPTIMIZERS)}"
            )
        if self.head == "nearest-mean" and self.regression:
            raise InputError("head='nearest-mean' is for classes, found a loss for numbers.")

    @property
    def regression(self) -> bool:
        """Whether targets are numbers."""
        return self.loss != "cross-entropy"

    def optimiser(self, theta: Tensor, steps: int) -> tuple[Any, Any]:
        """Make the optimiser of a task and the schedule of its learning rate, or None."""
        named = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        settings: dict[str, Any] = {name: value for name, value in named.items() if value}
        settings |= self.optimizer_settings or {}
        try:
            optimiser = OPTIMIZERS[self.optimizer.lower()]([theta], lr=self.lr, **settings)
        except TypeError as error:
            raise InputError(f"optimizer {self.optimizer!r} does not take it: {error}.") from error
        schedulers = torch.optim.lr_scheduler
        if self.schedule == "cosine":
            return optimiser, schedulers.CosineAnnealingLR(optimiser, steps)
        if self.schedule == "linear":
            return optimiser, schedulers.LinearLR(optimiser, 1.0, 0.0, steps)
        if self.schedule == "one-cycle":
            cycles = bool(self.momentum) or "betas" in optimiser.defaults
            return optimiser, schedulers.OneCycleLR(
                optimiser, self.lr, total_steps=max(2, steps), cycle_momentum=cycles
            )
        return optimiser, None
