"""How a net is trained: the settings every recipe shares, and torch's optimisers by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from olss.errors import InputError
from olss.learn.nets import Net, check_net
from olss.util.checks import flag, known_name, nearest, number, whole

__all__ = ["SCHEDULES", "Training", "step_length"]

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("constant", "cosine")
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
        (20, 40, 80 and 160 maps), a module, a function that makes one, or its name as
        "module:Name".
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
        Of the learning rate within a task: "constant", or "cosine", down to 0.
    finish_epochs : int
        Passes over the memory at the end of a task, after it took the task in: a balanced
        memory makes a balanced finish.
    finish_rate : float
        The learning rate of the finish, as a multiple of `lr`.
    average_steps : int
        Steps that the net's weights are averaged over, the newest counting most; the mean
        answers, training goes on from the weights. 0: the weights answer themselves.
    mirrored : bool
        Whether the net is asked for an image and its mirror image, left for right, and the mean
        of the two answers: twice the time of an answer. For rows that `augment="flip"` is for.
    input_mean, input_std : list of float, optional
        Taken off the inputs, and what they are then divided by, after the division by the
        scale of the data: one number for each channel of an image or column of a row.
    precision : str
        "float32", or "bfloat16": the net computes in half precision where torch's autocast
        thinks it safe; parameters and losses stay in float32. Faster where the processor has
        instructions for it, slower where not.
    threads : int, optional
        Threads of the arithmetic in `run`; by default as many as torch has been given. Sums
        change in their last digits with their number, so the record has it, and the laboratory
        sets it to 1 unless the experiment says otherwise: the same settings give the same record
        anywhere, and one thread and several jobs use a machine best.
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
    finish_epochs: int = 0
    finish_rate: float = 0.1
    average_steps: int = 0
    mirrored: bool = False
    input_mean: Sequence[float] | None = None
    input_std: Sequence[float] | None = None
    precision: str = "float32"
    threads: int | None = None

    def __post_init__(self) -> None:
        check_net(self.net)
        for name in ("epochs", "batch"):
            whole(name, getattr(self, name))
        if self.threads is not None:
            whole("threads", self.threads)
        for name in ("finish_epochs", "average_steps"):
            whole(name, getattr(self, name), least=0)
        for name in ("lr", "finish_rate"):
            number(name, getattr(self, name), above=0)
        known_name("schedule", self.schedule, SCHEDULES)
        known_name("precision", self.precision, PRECISIONS)
        flag("mirrored", self.mirrored)
        for name, above in (("input_std", 0), ("input_mean", None)):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence | None):
                raise InputError(f"{name} must be a list of numbers, found {values!r}.")
            for value in values or ():
                number(name, value, above=above)
        self._check_optimiser()

    def _check_optimiser(self) -> None:
        """Raise unless the optimiser takes its settings, and a step as `Learner` gives it."""
        number("momentum", self.momentum, least=0, below=1)
        number("weight_decay", self.weight_decay, least=0)
        if str(self.optimizer).lower() not in OPTIMIZERS:
            raise InputError(
                f"optimizer must be one of torch's, found {self.optimizer!r}. "
                f"{nearest(str(self.optimizer).lower(), OPTIMIZERS)}"
            )
        if not isinstance(self.optimizer_settings, dict | None):
            raise InputError(
                f"optimizer_settings must be a table of names and values, found "
                f"{self.optimizer_settings!r}."
            )
        if self.optimizer.lower() == "sgd" and not self.optimizer_settings:
            return  # torch takes seconds to make its first optimiser
        trial = torch.zeros(1)
        trial.grad = torch.zeros(1)
        try:
            optimiser, _ = self.optimiser(trial, 1)
            optimiser.step()
        except (TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"optimizer {self.optimizer!r} is of no use here: {error}.") from error
        number("momentum", optimiser.param_groups[0].get("momentum", 0), least=0, below=1)

    def optimiser(self, theta: Tensor, steps: int, rate: float = 1.0) -> tuple[Any, Any]:
        """Return the optimiser of a task and the schedule of its learning rate.

        `rate` multiplies the learning rate.
        """
        named = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        settings: dict[str, Any] = {name: value for name, value in named.items() if value}
        settings |= self.optimizer_settings or {}
        try:
            optimiser = OPTIMIZERS[self.optimizer.lower()]([theta], lr=rate * self.lr, **settings)
        except TypeError as error:
            raise InputError(f"optimizer {self.optimizer!r} does not take it: {error}.") from error
        schedulers = torch.optim.lr_scheduler
        if self.schedule == "cosine":
            return optimiser, schedulers.CosineAnnealingLR(optimiser, steps)
        return optimiser, _Constant()


def step_length(optimiser: Any) -> float | None:
    """Return how far a lasting gradient of 1 moves a parameter in a step; None if not SGD.

    Momentum adds up past gradients: ``lr (1 + momentum + momentum^2 + ...)``.
    """
    if type(optimiser) is not torch.optim.SGD:
        return None
    group = optimiser.param_groups[0]
    if not group["momentum"]:
        return float(group["lr"])
    return float(group["lr"] * (1 - group["dampening"]) / (1 - group["momentum"]))


class _Constant:
    """Leaves the learning rate as it is."""

    def step(self) -> None:
        """Do nothing."""
