"""How a net is trained: batches of rows, seeds, augmentation, optimizers and their settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from olss.errors import InputError
from olss.learn.nets import Net, check_net
from olss.util import checks
from olss.util.checks import suggest

__all__ = ["Augmentation", "Batch", "Seeds", "Training", "as_tensor"]


@dataclass(frozen=True)
class Batch:
    """n rows with their targets and origin, as tensors: a batch, a training set or a buffer.

    `index` is the position of a row in everything seen and identifies it. `weight` is
    how many rows it stands for, `outputs` what the net once returned for it (NaN if unknown).
    """

    X: Tensor
    y: Tensor
    task: Tensor
    index: Tensor
    weight: Tensor | None = None
    outputs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def columns(self) -> dict[str, Tensor]:
        """Return the columns there are, by name."""
        return {name: column for name, column in vars(self).items() if column is not None}

    def take(self, index: Tensor) -> Batch:
        """Return some of the rows."""
        columns = {name: v for name, v in vars(self).items() if v is not None}
        return Batch(**{name: v.index_select(0, index) for name, v in columns.items()})

    def join(self, other: Batch | None) -> Batch:
        """Return these rows followed by the others.

        Where only one side has weights or stored outputs, the rows of the other side weigh one
        and have unknown outputs.
        """
        if other is None or len(other) == 0:
            return self
        first, second = self._filled_like(other).columns(), other._filled_like(self).columns()
        return Batch(**{name: torch.cat([first[name], second[name]]) for name in first})

    def _filled_like(self, other: Batch) -> Batch:
        filled = self
        if self.weight is None and other.weight is not None:
            filled = replace(filled, weight=other.weight.new_ones(len(self)))
        if self.outputs is None and other.outputs is not None:
            unknown = other.outputs.new_full((len(self), other.outputs.shape[1]), torch.nan)
            filled = replace(filled, outputs=unknown)
        return filled

    @property
    def nbytes(self) -> int:
        """Bytes it takes to store these rows."""
        return sum(column.nbytes for column in self.columns().values())


def as_tensor(values: Any, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor over the same memory where possible, read-only arrays included."""
    if isinstance(values, Tensor):
        return values.to(device)
    array = np.asarray(values)
    if min(array.strides, default=0) < 0 or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        # Nothing here writes into rows, so a read-only array needs no copy.
        warnings.filterwarnings("ignore", message=".*not writ(e)?able.*")
        return torch.from_numpy(array).to(device)


# The numbers are part of what a seed means: never change one, only add.
PURPOSES = {"init": 0, "order": 1, "memory": 2, "net": 3, "parts": 4, "features": 5, "augment": 6}


class Seeds:
    """Random generators that depend on the seed of the run, the purpose and the task alone.

    No state is kept between tasks: a resumed run draws the same numbers, and a change in one
    purpose does not affect another.

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
        """Return a seed for something that takes an integer."""
        return int(self.rng(purpose, task).integers(2**63))


class Augmentation:
    """Crop and flip the images of a training step; buffers and predictions use them unchanged.

    Parameters
    ----------
    augment : str
        "crop": pad each image with zeros and cut it back to its size at a random place. "flip":
        mirror half of the images, left to right. "crop-flip": both. "none".
    crop_padding : int
        Pixels of padding on each side.
    """

    def __init__(self, augment: str = "none", crop_padding: int = 4) -> None:
        self.augment = checks.choice("augment", augment, ("none", "crop", "flip", "crop-flip"))
        self.padding = checks.integer("crop_padding", crop_padding) if "crop" in augment else 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless rows of this shape are images, or there is nothing to do."""
        if self.augment != "none":
            check_images(f"augment={self.augment!r}", shape)

    def __call__(self, X: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images, (n, height, width) or with channels, each changed in its own way.

        Random numbers are drawn on the CPU, so that a seed means the same on every device.
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
        image, row, column = (
            torch.from_numpy(np.ascontiguousarray(index)).to(X.device)
            for index in (np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :])
        )
        # The result is laid out channels last, which convolutions want anyway.
        changed = images.permute(0, 2, 3, 1)[image, row, column].permute(0, 3, 1, 2)
        return changed if X.dim() == 4 else changed[:, 0]


def check_images(setting: str, shape: tuple[int, ...]) -> None:
    """Raise unless rows of this shape are images, which `setting` requires."""
    if len(shape) not in (2, 3):
        raise InputError(
            f"{setting} requires images of shape (height, width) or (channels, height, width), "
            f"found rows of shape {shape}."
        )


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
}
Scheduler = torch.optim.lr_scheduler.CosineAnnealingLR | None


@dataclass(frozen=True)
class Training:
    """Settings of the training loop.

    Parameters
    ----------
    net : str, nn.Module or callable
        "mlp" (two layers of 400, as in the paper), "mlp-100-100" (any widths), "resnet18"
        (20, 40, 80 and 160 maps), a module, or a function that returns one.
    lr : float
        Learning rate.
    epochs : int
        Passes over a task's training set.
    batch : int
        Rows of a step; a single row left over joins the step before it.
    optimizer : str
        "sgd" (plain, as in the paper) or the name of another optimizer of torch; a new one for
        each task.
    momentum, weight_decay : float
        Passed to the optimizer where they are not 0.
    optimizer_settings : dict, optional
        Anything else the optimizer takes.
    schedule : str
        Of the learning rate within a task: "constant", or "cosine", down to 0.
    finish_epochs : int
        Passes over the buffer at the end of a task, after the task was added to it.
    finish_rate : float
        The learning rate of the finish, as a multiple of `lr`.
    average_steps : int
        Steps over which the net's weights are averaged, the newest counting most; the average
        predicts, training continues from the weights. 0: the weights predict.
    mirrored : bool
        Whether to average the outputs for an image and its mirror image, left to right, which
        doubles the time of a prediction. For images that `augment="flip"` suits.
    input_mean, input_std : list of float, optional
        Subtracted from the inputs, and what they are then divided by, after the division by the
        scale of the data: one number for each channel of an image or column of a row.
    precision : str
        "float32", or "bfloat16": half precision where torch's autocast considers it safe, which
        is faster on processors with instructions for it and slower on others.
    threads : int, optional
        Threads of the arithmetic in `run`; by default torch's current number, and 1 in the
        laboratory. Sums differ in their last digits with it, so the record states it.
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
        checks.integer("epochs", self.epochs)
        checks.integer("batch", self.batch)
        if self.threads is not None:
            checks.integer("threads", self.threads)
        checks.integer("finish_epochs", self.finish_epochs, minimum=0)
        checks.integer("average_steps", self.average_steps, minimum=0)
        checks.number("lr", self.lr, above=0)
        checks.number("finish_rate", self.finish_rate, above=0)
        checks.choice("schedule", self.schedule, ("constant", "cosine"))
        checks.choice("precision", self.precision, ("float32", "bfloat16"))
        checks.boolean("mirrored", self.mirrored)
        _check_numbers("input_mean", self.input_mean)
        _check_numbers("input_std", self.input_std, above=0)
        self._check_optimizer()

    def _check_optimizer(self) -> None:
        """Raise unless the optimizer takes its settings, and a step as `Learner` makes it."""
        checks.number("momentum", self.momentum, minimum=0, below=1)
        checks.number("weight_decay", self.weight_decay, minimum=0)
        if str(self.optimizer).lower() not in OPTIMIZERS:
            raise InputError(
                f"optimizer {self.optimizer!r} is not one of torch's. "
                f"{suggest(str(self.optimizer).lower(), OPTIMIZERS)}"
            )
        if not isinstance(self.optimizer_settings, dict | None):
            raise InputError(
                f"optimizer_settings must be a table of names and values, found "
                f"{self.optimizer_settings!r}."
            )
        if self.optimizer.lower() == "sgd" and not self.optimizer_settings:
            return  # torch takes seconds to make its first optimizer
        trial = torch.zeros(1)
        trial.grad = torch.zeros(1)
        try:
            optimizer, _ = self.make_optimizer(trial, 1)
            optimizer.step()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"optimizer {self.optimizer!r} cannot be used: {error}.") from error
        checks.number("momentum", optimizer.param_groups[0].get("momentum", 0), minimum=0, below=1)

    def make_optimizer(
        self, theta: Tensor, steps: int, rate: float = 1.0
    ) -> tuple[torch.optim.Optimizer, Scheduler]:
        """Return the optimizer of a task, at `rate` times the learning rate, and its scheduler."""
        named = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        settings: dict[str, Any] = {name: value for name, value in named.items() if value}
        settings |= self.optimizer_settings or {}
        optimizer = OPTIMIZERS[self.optimizer.lower()]([theta], lr=rate * self.lr, **settings)
        if self.schedule == "constant":
            return optimizer, None
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def step_length(optimizer: torch.optim.Optimizer) -> float | None:
    """Return how far a lasting gradient of 1 moves a parameter in a step; None if not SGD.

    Momentum sums past gradients: ``lr (1 + momentum + momentum^2 + ...)``.
    """
    if type(optimizer) is not torch.optim.SGD:
        return None
    group = optimizer.param_groups[0]
    if not group["momentum"]:
        return float(group["lr"])
    return float(group["lr"] * (1 - group["dampening"]) / (1 - group["momentum"]))


def _check_numbers(name: str, values: Any, above: float | None = None) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence | None):
        raise InputError(f"{name} must be a list of numbers, found {values!r}.")
    for value in values or ():
        checks.number(name, value, above=above)
