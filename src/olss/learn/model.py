"""A net with everything needed to ask it: labels, a head, the scale of its inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from olss.errors import DataError, InputError
from olss.learn.answers import Answer
from olss.learn.augmentation import Augmentation
from olss.learn.batch import as_tensor
from olss.learn.heads import Head
from olss.learn.labels import Labels
from olss.learn.losses import Loss
from olss.learn.nets import build, penultimate
from olss.learn.parameter_vector import Flat
from olss.learn.seeds import Seeds
from olss.learn.training import Training

__all__ = ["Model"]

BLOCK = 1000  # rows the net answers at a time outside training
GRADIENT_FEATURES = 256


class Model:
    """A net that is made when the first rows come, and asked through here."""

    training: Training
    loss: Loss
    answer: Answer
    augmentation: Augmentation

    def begin(self, classes: Any, seed: int, device: str) -> None:
        """Forget the net and take the labels, the seed and the device of a new one."""
        self.seeds = Seeds(seed)
        self.device = torch.device(device)
        self.labels = Labels(None if self.loss.regression else classes)
        self.flat_targets = True
        self.shape: tuple[int, ...] | None = None

    def open(self, shape: tuple[int, ...], outputs: int, scale: float) -> None:
        """Make the net, when the shape of the rows is known."""
        self.shape, self.scale, self.out = shape, scale, outputs
        self.net = build(self.training.net, shape, outputs, self.seeds.number("init"))
        self.net.to(self.device).eval()
        self.flat = Flat(self.net)
        self.first = self.flat.state()
        self.head = Head(self.answer.compete, outputs, self.device)
        self.augmentation.check(shape)
        self._standard = self._standardisation(shape)
        wide = self.net(self.inputs(torch.zeros((2, *shape), device=self.device)))
        if wide.dim() != 2 or wide.shape[1] < outputs:
            raise InputError(
                f"the net must answer with {outputs} numbers a row, one for each class (or "
                f"target), found shape {tuple(wide.shape[1:])}."
            )

    def _standardisation(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
        """Return what is taken off the inputs and what they are divided by, or None."""
        setting = self.training
        if setting.input_mean is None and setting.input_std is None:
            return None
        wide = (shape[0], *(1,) * (len(shape) - 1)) if len(shape) == 3 else (shape[-1],)
        both = []
        for name, blank in (("input_mean", 0.0), ("input_std", 1.0)):
            values = getattr(setting, name)
            values = [blank] if values is None else values
            if len(values) not in (1, wide[0]):
                raise InputError(
                    f"{name} must have one number for each of the {wide[0]} channels or columns "
                    f"of a row, or one for all, found {len(values)}."
                )
            numbers = torch.tensor(values, dtype=self.flat.theta.dtype, device=self.device)
            both.append(numbers.expand(wide[0]).reshape(wide))
        return both[0], both[1]

    def checked(self, task: Any, X: Any, y: Any, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """Give inputs and targets as tensors and the classes a task holds, or say what is wrong."""
        X, y = as_tensor(X, self.device), np.asarray(y)
        if len(X) == 0 or len(X) != len(y):
            raise DataError(
                f"X{part} and y{part} must have the same number of rows, at least one; found "
                f"{len(X)} and {len(y)}."
            )
        if X.is_floating_point() and not X.isfinite().all():
            raise DataError(f"X{part} holds NaN or infinite values; fill or drop those rows.")
        if self.loss.regression:
            targets: Any = np.asarray(y, np.float32).reshape(len(y), -1)
            if not np.isfinite(targets).all():
                raise DataError(f"y{part} holds NaN or infinite values; fill or drop those rows.")
            present, outputs = np.arange(targets.shape[1]), targets.shape[1]
            self.flat_targets = y.ndim == 1
        else:
            classes = getattr(task, "classes", None)
            if self.labels.classes is None and classes is not None:
                self.labels = Labels(classes)
            targets = self.labels.encode(y, f"y{part}")
            present, outputs = np.unique(targets), len(self.labels)
            if classes is not None:
                present = np.union1d(present, self.labels.encode(np.asarray(classes), "classes"))
        shape, scale = tuple(X.shape[1:]), float(getattr(task, "scale", 1.0))
        if self.shape is None:
            self.open(shape, outputs, scale)
        if (shape, outputs, scale) != (self.shape, self.out, self.scale):
            raise DataError(
                f"all tasks must be alike: found rows of shape {shape} with {outputs} outputs and "
                f"scale {scale:g}, before it was {self.shape}, {self.out} and {self.scale:g}."
            )
        return X, self.tensor(targets), self.tensor(present)

    def tensor(self, values: Any) -> Tensor:
        """Give values as a tensor where the net lives."""
        return as_tensor(values, self.device)

    def inputs(self, X: Tensor) -> Tensor:
        """Turn rows into what the net takes: floats, divided by the scale of the data."""
        x = X.to(self.flat.theta.dtype) if X.dtype != self.flat.theta.dtype else X
        if self.scale != 1:
            x = x / self.scale if x is X else x.div_(self.scale)
        if self._standard is not None:
            mean, std = self._standard
            x = (x - mean).div_(std)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def forward(self, x: Tensor) -> Tensor:
        """Ask the net, and drop outputs beyond the number of classes."""
        if self.training.precision == "float32":
            outputs: Tensor = self.net(x)
        else:
            with torch.autocast(self.device.type, torch.bfloat16):
                outputs = self.net(x).float()
        return outputs if outputs.shape[1] == self.out else outputs[:, : self.out]

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Give the net's outputs for rows, (n, outputs), as no class were shut out."""
        blocks = [self.forward(self.inputs(block)) for block in torch.split(X, BLOCK)]
        return torch.cat(blocks) if blocks else X.new_empty((0, self.out), dtype=torch.float32)

    @torch.no_grad()
    def features(self, X: Any, kind: str = "penultimate") -> Tensor:
        """Give rows as the net sees them: what goes into its last layer, or that layer's gradient.

        The gradient is that of the last layer's weights at the label the net finds likeliest,
        ``(p - onehot) x [h, 1]`` (Ash et al. 2020), projected to few columns by signs at
        random, which keeps inner products on average.
        """
        hidden, outputs = self.hidden(self.tensor(X))
        return self._gradient_features(hidden, outputs) if kind == "gradient" else hidden

    @torch.no_grad()
    def hidden(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return what goes into the net's last layer, (n, k), and its outputs, (n, outputs)."""
        training = self.net.training
        self.net.eval()
        found = []
        for block in torch.split(X, BLOCK):
            found.append(penultimate(self.net, self.forward, self.inputs(block)))
        self.net.train(training)
        hidden, outputs = (torch.cat(parts) for parts in zip(*found, strict=True))
        return hidden.float(), outputs

    def _gradient_features(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        p = outputs.softmax(1)
        error = p - torch.nn.functional.one_hot(p.argmax(1), self.out)
        wide = torch.nn.functional.pad(hidden, (0, 1), value=1.0)
        rng = self.seeds.rng("features")
        signs = [
            self.tensor(2 * rng.integers(2, size=(side.shape[1], GRADIENT_FEATURES)) - 1).to(p)
            for side in (error, wide)
        ]
        return (error @ signs[0]) * (wide @ signs[1]) / math.sqrt(GRADIENT_FEATURES)
