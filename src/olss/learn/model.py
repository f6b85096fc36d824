"""A net with everything needed to train and query it: parameters, labels, input scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from olss.errors import DataError, InputError
from olss.learn.labels import ClassMask, Labels
from olss.learn.nets import build, is_named, penultimate, stages
from olss.learn.training import Examples, Seeds, Training, as_tensor, check_images, loss_of_rows

__all__ = ["Model", "ParameterVector", "WeightAverage"]


class ParameterVector:
    """The trainable parameters of a net as one vector `theta`, their gradients as `gradient`.

    The net's parameters and their ``.grad`` are views into the two vectors: a change of either
    side is a change of the other, and nothing is copied in a step. Convolutions are fastest with
    `channels_last`, and views of what they give, such as ``x.view(len(x), -1)``, not to be had.
    """

    def __init__(self, net: nn.Module, channels_last: bool = False) -> None:
        self.net = net
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("The net has no trainable parameter.")
        kinds = {str(p.dtype) for p in self.parameters}
        if len(kinds) > 1:
            raise InputError(f"The net mixes parameters of {', '.join(sorted(kinds))}; use one.")
        self.strides = [_laid_out(p.detach(), channels_last).stride() for p in self.parameters]
        self.theta = torch.empty_like(torch.cat([p.detach().flatten() for p in self.parameters]))
        for p, value in zip(self.parameters, self.split(self.theta), strict=True):
            value.copy_(p.detach())
        self.gradient = torch.zeros_like(self.theta)
        for p, value, grad in zip(
            self.parameters, self.split(self.theta), self.split(self.gradient), strict=True
        ):
            p.data = value
            p.grad = grad
        self.theta.grad = self.gradient

    def split(self, vector: Tensor) -> list[Tensor]:
        """View a vector as tensors of the parameters' shapes."""
        pieces = torch.split(vector, [p.numel() for p in self.parameters])
        return [
            piece.as_strided(p.shape, stride)
            for piece, p, stride in zip(pieces, self.parameters, self.strides, strict=True)
        ]

    def buffers(self) -> dict[str, Tensor]:
        """Return what the net keeps beside its trainable parameters, such as running means."""
        frozen = {name: p for name, p in self.net.named_parameters() if not p.requires_grad}
        return frozen | dict(self.net.named_buffers())

    def state(self) -> dict[str, Tensor]:
        """Copy everything the net holds."""
        kept = {f"buffer.{name}": value.detach().clone() for name, value in self.buffers().items()}
        return {"theta": self.theta.clone(), **kept}

    def load(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave, in place."""
        self.theta.copy_(state["theta"])
        with torch.no_grad():
            for name, value in self.buffers().items():
                value.copy_(state[f"buffer.{name}"])


def _laid_out(p: Tensor, channels_last: bool) -> Tensor:
    """Return a parameter without gaps; kernels laid out channels last if so wished."""
    last = channels_last and p.dim() == 4
    return p.contiguous(memory_format=torch.channels_last) if last else p.contiguous()


class WeightAverage:
    """Averages the weights of a net over the last steps of training (Polyak & Juditsky 1992).

    Steps at a constant rate never come to rest: the weights go on moving around what they learn,
    and the last layer towards the classes of the last few steps. Their mean is at rest and is as
    ready for the next task, since training goes on from the weights themselves.

    Within the first `steps` steps the mean is plain, from then on it is exponential: a step
    counts ``1 / steps``. The net's buffers, such as running means, are averaged alike.

    Parameters
    ----------
    flat : ParameterVector
    steps : int
        How far back the mean reaches; 0: there is none, and nothing is done.

    Attributes
    ----------
    state : dict of Tensor
        What lives on from task to task: the weights training goes on from, and how many steps
        were averaged. The mean itself is in the net between tasks.
    """

    def __init__(self, flat: ParameterVector, steps: int) -> None:
        self.params, self.steps = flat, steps
        self.state: dict[str, Tensor] = {}

    def begin(self, restart: bool = False) -> None:
        """Let the weights of training be in the net; `restart`: those it has, as the first."""
        if not self.steps:
            return
        self.mean, self.count = self.params.state(), 0
        if self.state and not restart:
            self.count = int(self.state["steps"])
            self.params.load(self.state)

    def after_step(self) -> None:
        """Take the weights of a step into the mean."""
        if not self.steps:
            return
        self.count = min(self.count + 1, self.steps)
        now = {f"buffer.{name}": value for name, value in self.params.buffers().items()}
        for name, value in {"theta": self.params.theta, **now}.items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, 1 / self.count)
            else:
                self.mean[name].copy_(value)

    def end(self) -> None:
        """Let the mean be in the net, and keep the weights of training for the next task."""
        if not self.steps:
            return
        self.state = {**self.params.state(), "steps": torch.tensor(self.count)}
        self.params.load(self.mean)


BLOCK = 1000  # rows the net answers at a time outside training
GRADIENT_FEATURES = 256


class Model:
    """A net that is made when the first rows come, and asked through here.

    Parameters
    ----------
    training : Training
    kind : str
        The loss of a row, see `row_losses`: for classes or for numbers.
    compete : str
        Which classes compete, see `labels.ClassMask`.
    classes : array-like or None
        All labels that will ever come. None: those of the first task.
    seed : int
    device : str

    Attributes
    ----------
    net : nn.Module
    flat : ParameterVector
        Its parameters as one vector.
    average : WeightAverage
        Their mean, which answers between tasks.
    mask : ClassMask
        The classes seen so far.
    out : int
        Classes, or targets.
    tasks : int
        Tasks learned, which is the number of the one being learned.
    seeds : Seeds
    """

    def __init__(
        self, training: Training, kind: str, compete: str, classes: Any, seed: int, device: str
    ) -> None:
        self.training, self.kind, self.compete = training, kind, compete
        self.regression = kind != "cross-entropy"
        self.seeds = Seeds(seed)
        self.device = torch.device(device)
        self.labels = Labels(None if self.regression else classes)
        self.flat_targets = True
        self.shape: tuple[int, ...] | None = None
        self.tasks = 0

    def open(self, shape: tuple[int, ...], outputs: int, scale: float) -> None:
        """Make the net, when the shape of the rows is known."""
        if self.training.mirrored:
            check_images("mirrored=True", shape)
        self.scale, self.out = scale, outputs
        self.net = build(self.training.net, shape, outputs, self.seeds.number("init"))
        self.net.to(self.device).eval()
        self.channels_last = is_named(self.training.net)
        self.params = ParameterVector(self.net, self.channels_last)
        self.first = self.params.state()
        self.average = WeightAverage(self.params, self.training.average_steps)
        self.mask = ClassMask(self.compete, outputs, self.device)
        self._standard = self._standardisation(shape)
        wide = self.net(self.inputs(torch.zeros((2, *shape), device=self.device)))
        tensor = isinstance(wide, Tensor)
        if not tensor or wide.dim() != 2 or wide.shape[1] < outputs:
            found = f"shape {tuple(wide.shape[1:])}" if tensor else f"a {type(wide).__name__}"
            raise InputError(
                f"the net must answer with {outputs} numbers a row, one for each class (or "
                f"target), found {found}."
            )
        self.shape = shape

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
            numbers = torch.tensor(values, dtype=self.params.theta.dtype, device=self.device)
            both.append(numbers.expand(wide[0]).reshape(wide))
        return both[0], both[1]

    def checked(self, task: Any, X: Any, y: Any, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, targets and the classes a task holds, or raise with what is wrong."""
        X, y = self.rows(X, part), np.asarray(y)
        if y.ndim == 0:
            raise DataError(f"y{part} must hold a label or number for each row, found {y}.")
        if len(X) == 0 or len(X) != len(y):
            raise DataError(
                f"X{part} and y{part} must have the same number of rows, at least one; found "
                f"{len(X)} and {len(y)}."
            )
        classes = getattr(task, "classes", None)
        if self.labels.classes is None and classes is not None:
            self.labels = Labels(classes)
        targets = self.targets(y, part)
        outputs = targets.shape[1] if self.regression else len(self.labels)
        present = np.arange(outputs) if self.regression else np.unique(targets)
        if classes is not None and not self.regression:
            present = np.union1d(present, self.labels.encode(np.asarray(classes), "classes"))
        shape, scale = tuple(X.shape[1:]), float(getattr(task, "scale", 1.0))
        if self.shape is None:
            self.open(shape, outputs, scale)
        if (shape, outputs, scale) != (self.shape, self.out, self.scale):
            raise DataError(
                f"all tasks must be alike: found rows of shape {shape} with {outputs} outputs and "
                f"scale {scale:g}, before it was {self.shape}, {self.out} and {self.scale:g}."
            )
        if self.regression:
            self.flat_targets = y.ndim == 1
        return X, self.tensor(targets), self.tensor(present)

    def rows(self, X: Any, part: str = "") -> Tensor:
        """Return rows as a tensor, or raise with what is wrong with them."""
        try:
            rows = as_tensor(X, self.device)
        except (TypeError, ValueError) as error:
            raise DataError(f"X{part} must be an array of numbers: {error}.") from error
        if rows.dim() < 2:
            raise DataError(
                f"X{part} must have rows and columns, found shape {tuple(rows.shape)}; "
                "X.reshape(-1, 1) makes rows of one column."
            )
        if rows.is_floating_point() and not rows.isfinite().all():
            raise DataError(f"X{part} holds NaN or infinite values; fill or drop those rows.")
        return rows

    def targets(self, y: Any, part: str = "") -> NDArray[Any]:
        """Return targets as the net's outputs have them: numbers of classes, or floats (n, k)."""
        if not self.regression:
            return self.labels.encode(y, f"y{part}")
        try:
            targets: NDArray[Any] = np.asarray(y, np.float32).reshape(len(y), -1)
        except (TypeError, ValueError) as error:
            raise DataError(f"y{part} must hold numbers with this loss: {error}.") from error
        if not np.isfinite(targets).all():
            raise DataError(f"y{part} holds NaN or infinite values; fill or drop those rows.")
        return targets

    def score(self, answers: Tensor, targets: Tensor) -> float:
        """Return the accuracy of answers (n, outputs), or R squared where targets are numbers.

        NaN where all targets are the same: R squared is not defined.
        """
        if not self.regression:
            return float((answers.argmax(1) == targets).double().mean())
        targets = targets.double()
        spread = (targets - targets.mean(0)).square().sum()
        if spread == 0:
            return math.nan
        return float(1 - (answers.double() - targets).square().sum() / spread)

    @contextmanager
    def looking_ahead(self, present: Tensor) -> Iterator[None]:
        """Let the classes `present` compete for a while; then be as before, the net too."""
        table, now = self.mask.table, self.params.state()
        self.mask.open(present)
        try:
            yield
        finally:
            self.params.load(now)
            self.mask.load(table)

    def tensor(self, values: Any) -> Tensor:
        """Return values as a tensor where the net lives."""
        return as_tensor(values, self.device)

    def inputs(self, X: Tensor) -> Tensor:
        """Turn rows into what the net takes: floats, divided by the scale of the data."""
        x = X.to(self.params.theta.dtype) if X.dtype != self.params.theta.dtype else X
        if self.scale != 1:
            x = x / self.scale if x is X else x.div_(self.scale)
        if self._standard is not None:
            mean, std = self._standard
            x = (x - mean).div_(std)
        last = self.channels_last and x.dim() == 4
        return x.contiguous(memory_format=torch.channels_last) if last else x

    def forward(self, x: Tensor) -> Tensor:
        """Ask the net, and drop outputs beyond the number of classes."""
        if self.training.precision == "float32":
            outputs: Tensor = self.net(x)
        else:
            with torch.autocast(self.device.type, torch.bfloat16):
                outputs = self.net(x).float()
        return outputs if outputs.shape[1] == self.out else outputs[:, : self.out]

    def label_loss(self, batch: Examples) -> Tensor:
        """Return the mean loss of rows at their labels, whatever else a learner's loss is."""
        outputs = self.mask.apply(self.forward(self.inputs(batch.X)), batch.task)
        return loss_of_rows(self.kind, outputs, batch.y).mean()

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Return the net's outputs for rows, (n, outputs), as no class were shut out."""
        blocks = [self.forward(self.inputs(block)) for block in torch.split(X, BLOCK)]
        return torch.cat(blocks) if blocks else X.new_empty((0, self.out), dtype=torch.float32)

    def views(self, X: Tensor) -> list[Tensor]:
        """Return the forms rows are asked in, whose answers are averaged."""
        return [X, X.flip(-1)] if self.training.mirrored else [X]

    @torch.no_grad()
    def features(self, X: Any, kind: str = "penultimate") -> Tensor:
        """Return rows as the net sees them: what enters its last layer, or that layer's gradient.

        The gradient is that of the last layer's weights at the label the net finds likeliest,
        ``(p - onehot) x [h, 1]`` (Ash et al. 2020), projected to few columns by signs at
        random, which keeps inner products on average.
        """
        hidden, outputs = self.hidden(self.tensor(X))
        return self._gradient_features(hidden, outputs) if kind == "gradient" else hidden

    @torch.no_grad()
    def hidden(self, X: Tensor, layers: str = "last") -> tuple[Tensor, Tensor]:
        """Return what goes into the net's last layer, (n, k), and its outputs, (n, outputs).

        With ``layers="stages"`` what its last stages see, see `nets.stages`.
        """
        look = stages if layers == "stages" else penultimate
        training = self.net.training
        self.net.eval()
        found = []
        for block in torch.split(X, BLOCK):
            found.append(look(self.net, self.forward, self.inputs(block)))
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
