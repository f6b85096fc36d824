"""How a net is trained: batches, seeds, augmentation, and the settings every recipe shares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import pad

from olss.errors import InputError
from olss.learn.nets import Net, check_net
from olss.util import checks
from olss.util.checks import suggest

__all__ = [
    "AUGMENTATIONS",
    "ROW_LOSSES",
    "SCHEDULES",
    "Augmentation",
    "Examples",
    "Seeds",
    "Training",
    "as_tensor",
    "check_images",
    "loss_of_rows",
    "step_length",
]


@dataclass(frozen=True)
class Examples:
    """n rows: what goes into the net, the target, and where each row comes from.

    `index` is a row's position in everything seen, so it names the row for ever. `weight` is
    what a row stands for, `outputs` what the net once answered to it (NaN where unknown).
    """

    X: Tensor
    y: Tensor
    task: Tensor
    index: Tensor
    weight: Tensor | None = None
    outputs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> Examples:
        """Return some of the rows."""
        columns: list[Any] = [v if v is None else v.index_select(0, index) for v in self.values()]
        return Examples(*columns)

    def join(self, other: Examples | None) -> Examples:
        """Return these rows and then the others.

        Where only one side has weights or stored outputs, the other side's rows weigh one and
        have outputs unknown.
        """
        if other is None or len(other) == 0:
            return self
        pairs = zip(self._filled_like(other), other._filled_like(self), strict=True)
        columns: list[Any] = [None if a is None else torch.cat([a, b]) for a, b in pairs]
        return Examples(*columns)

    def _filled_like(self, other: Examples) -> list[Any]:
        weight, outputs = self.weight, self.outputs
        if weight is None and other.weight is not None:
            weight = other.weight.new_ones(len(self))
        if outputs is None and other.outputs is not None:
            outputs = other.outputs.new_full((len(self), other.outputs.shape[1]), torch.nan)
        return [self.X, self.y, self.task, self.index, weight, outputs]

    def values(self) -> list[Any]:
        """Return the columns in the order of the constructor."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def nbytes(self) -> int:
        """Bytes of what must be stored to have these rows again."""
        return sum(v.nbytes for v in self.values() if v is not None)


def as_tensor(values: Any, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor over the same memory where possible, read-only arrays included."""
    if isinstance(values, Tensor):
        return values.to(device)
    array = np.asarray(values)
    if any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        # Nothing here writes into rows, so a read-only array needs no copy.
        warnings.filterwarnings("ignore", message=".*not writ(e)?able.*")
        return torch.from_numpy(array).to(device)


# The numbers are part of what a seed means: never change one, only add.
PURPOSES = {"init": 0, "order": 1, "memory": 2, "net": 3, "parts": 4, "features": 5, "augment": 6}


class Seeds:
    """Generators that depend on the run's seed, the purpose and the task, and on nothing else.

    No state is carried from task to task, so a run that goes on after an interruption draws
    what it would have drawn, and a change in one purpose does not move another.

    Examples
    --------
    >>> seeds = Seeds(0)
    >>> bool((seeds.rng("order", 3).permutation(5) == seeds.rng("order", 3).permutation(5)).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = checks.seed(seed)

    def rng(self, purpose: str, task: int = 0) -> np.random.Generator:
        """Return the generator for a purpose in a task."""
        key = (PURPOSES[purpose], task)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def number(self, purpose: str, task: int = 0) -> int:
        """Return a seed for something that takes a number."""
        return int(self.rng(purpose, task).integers(2**63))


ROW_LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "l1": functional.l1_loss,
    "l2": functional.mse_loss,
    "huber": functional.huber_loss,
}


def loss_of_rows(name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each row, (n,). Regression averages over a row's targets."""
    values = ROW_LOSSES[name](outputs, y, reduction="none")
    return values if values.dim() == 1 else values.flatten(1).mean(1)


AUGMENTATIONS = ("none", "crop", "flip", "crop-flip")


class Augmentation:
    """Crops and flips the images of a training step; what is remembered and asked stays as it is.

    Parameters
    ----------
    augment : str
        "crop": each image is padded with zeros and cut back to its size at a random place.
        "flip": half of the images are mirrored, left for right. "crop-flip": both. "none".
    crop_padding : int
        Pixels of padding on each side.
    """

    def __init__(self, augment: str = "none", crop_padding: int = 4) -> None:
        self.augment = checks.choice("augment", augment, AUGMENTATIONS)
        self.padding = checks.integer("crop_padding", crop_padding) if "crop" in augment else 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless rows of this shape are images, or nothing is to be done."""
        if self.augment != "none":
            check_images(f"augment={self.augment!r}", shape)

    def __call__(self, X: Tensor, rng: np.random.Generator) -> Tensor:
        """Return n images changed, each in its own way, (n, height, width) or with channels.

        Numbers are drawn on the processor, so that a seed means the same on every device.
        """
        if self.augment == "none":
            return X
        images = X if X.dim() == 4 else X[:, None]
        count, _, height, width = images.shape
        top, left = rng.integers(2 * self.padding + 1, size=(2, count, 1))
        rows, columns = top + np.arange(height), left + np.arange(width)
        if "flip" in self.augment:
            flipped = rng.random(count) < 0.5
            columns[flipped] = columns[flipped, ::-1]
        if self.padding:
            images = pad(images, (self.padding,) * 4)
        number, row, column = (
            torch.from_numpy(np.ascontiguousarray(index)).to(X.device)
            for index in (np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :])
        )
        # The result is laid out channels last, which convolutions want anyway.
        changed = images.permute(0, 2, 3, 1)[number, row, column].permute(0, 3, 1, 2)
        return changed if X.dim() == 4 else changed[:, 0]


def check_images(setting: str, shape: tuple[int, ...]) -> None:
    """Raise unless rows of this shape are images, which `setting` is for."""
    if len(shape) not in (2, 3):
        raise InputError(
            f"{setting} is for images of shape (height, width) or (channels, height, width), "
            f"found rows of shape {shape}."
        )


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
            checks.integer(name, getattr(self, name))
        if self.threads is not None:
            checks.integer("threads", self.threads)
        for name in ("finish_epochs", "average_steps"):
            checks.integer(name, getattr(self, name), minimum=0)
        for name in ("lr", "finish_rate"):
            checks.number(name, getattr(self, name), above=0)
        checks.choice("schedule", self.schedule, SCHEDULES)
        checks.choice("precision", self.precision, PRECISIONS)
        checks.boolean("mirrored", self.mirrored)
        for name, above in (("input_std", 0), ("input_mean", None)):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence | None):
                raise InputError(f"{name} must be a list of numbers, found {values!r}.")
            for value in values or ():
                checks.number(name, value, above=above)
        self._check_optimiser()

    def _check_optimiser(self) -> None:
        """Raise unless the optimiser takes its settings, and a step as `Learner` gives it."""
        checks.number("momentum", self.momentum, minimum=0, below=1)
        checks.number("weight_decay", self.weight_decay, minimum=0)
        if str(self.optimizer).lower() not in OPTIMIZERS:
            raise InputError(
                f"optimizer must be one of torch's, found {self.optimizer!r}. "
                f"{suggest(str(self.optimizer).lower(), OPTIMIZERS)}"
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
        checks.number("momentum", optimiser.param_groups[0].get("momentum", 0), minimum=0, below=1)

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
