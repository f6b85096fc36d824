"""A net with what it takes to train and query it: class labels, input scale, device, seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from olss.errors import DataError, InputError
from olss.learn.nets import (
    ParameterVector,
    WeightAverage,
    build_net,
    penultimate_features,
    stage_features,
)
from olss.learn.training import Seeds, Training, as_tensor, check_images
from olss.streams.record import COMPETING

__all__ = ["COMPETING", "Model", "score_answers"]

BLOCK = 1000  # rows in a forward pass outside training


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
            self.classes = unique_labels(classes, "classes")

    def __len__(self) -> int:
        return 0 if self.classes is None else len(self.classes)

    def encode(self, y: Any, name: str = "y") -> NDArray[np.int64]:
        """Return the outputs of labels; without classes yet, those of `y` become the classes."""
        y = np.asarray(y)
        if y.ndim != 1 or (y.dtype.kind == "f" and (y % 1 != 0).any()):
            raise DataError(
                f"{name} must hold one label per row, found {y.dtype} of shape {y.shape}. For "
                "regression, choose loss='l2', 'l1' or 'huber'."
            )
        if self.classes is None:
            self.classes = unique_labels(y, name)
        try:
            place = np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)
        except TypeError as error:
            raise _unsortable(name) from error
        unknown = self.classes[place] != y
        if np.any(unknown):
            raise DataError(
                f"{name} holds the label {y[unknown].tolist()[0]!r}, which is none of the "
                f"{len(self)} classes the learner was started with. Pass all of them to "
                "learner.start(classes=...), or a Stream or a list of tasks to run."
            )
        return np.asarray(place, np.int64)

    def decode(self, outputs: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels of outputs."""
        assert self.classes is not None
        return self.classes[outputs]


def unique_labels(labels: Any, name: str = "y") -> NDArray[Any]:
    """Return the different labels, sorted, or raise if they cannot be."""
    try:
        found = np.unique(np.asarray(labels))
    except TypeError as error:
        raise _unsortable(name) from error
    if found.dtype.kind not in "biufUTO" or (found.dtype == object and isinstance(found[0], bytes)):
        raise DataError(f"{name} must hold strings or numbers as labels, found {found.dtype}.")
    return found


def labels_of(tasks: Sequence[Any]) -> NDArray[Any]:
    """Return all labels of tasks, those of test rows too, sorted."""
    found = [
        unique_labels(y, name) for t in tasks for y, name in ((t.y, "y"), (t.y_test, "y_test"))
    ]
    if len({labels.dtype.kind in "UTO" for labels in found if len(labels)}) > 1:
        raise DataError("y holds strings in some tasks and numbers in others. Use one type.")
    return np.unique([label for labels in found for label in labels])


def _unsortable(name: str) -> DataError:
    return DataError(
        f"{name} holds labels that cannot be sorted, such as None among strings. Use one type, "
        "and fill or drop rows without a label."
    )


class ClassMask:
    """Which classes compete, in training and in prediction alike; see `COMPETING`."""

    def __init__(self, mode: str, classes: int, device: torch.device | str = "cpu") -> None:
        self.mode = mode
        self.table = torch.zeros((0, classes), dtype=torch.bool, device=device)

    def begin_task(self, present: Tensor) -> None:
        """Add a task that holds the classes `present`."""
        row = self.table.new_zeros((1, self.table.shape[1]))
        row[0, present] = True
        self.load(torch.cat([self.table, row]))

    def load(self, table: Tensor) -> None:
        """Set the classes of each task."""
        self.table = table
        self.seen = table.any(0)
        closed = ~(table if self.mode == "task" else self.seen)
        # An output of -inf does not contribute to a softmax and gets no gradient.
        self.added = torch.zeros_like(closed, dtype=torch.float32).masked_fill(closed, -torch.inf)
        self.is_open = self.mode == "all" or not closed.any()

    def apply(self, outputs: Tensor, task: Tensor | int | None) -> Tensor:
        """Set outputs that do not compete to minus infinity.

        `task` is the task of each row, or of all rows; only the mode "task" reads it.
        """
        if self.is_open:
            return outputs
        if self.mode != "task":
            return outputs + self.added
        if task is None:
            raise InputError("task is required: with head='task' only its classes compete.")
        return outputs + self.added[task]


class Model:
    """A net that is built when the first rows arrive, and everything needed to query it.

    `kind` is the loss of a row, see `losses.ROW_LOSSES`; `compete` a key of `COMPETING`; `classes`
    all labels that will ever occur, or None: those of the first task.
    """

    net: nn.Module
    params: ParameterVector
    average: WeightAverage  # of the weights: it predicts between tasks
    mask: ClassMask  # the classes seen so far
    out: int  # number of classes, or of regression targets
    tasks: int  # tasks learned, which is the number of the one being learned

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

    def build(self, shape: tuple[int, ...], outputs: int, scale: float) -> None:
        """Build the net for rows of `shape`."""
        if self.training.mirrored:
            check_images("mirrored=True", shape)
        self.scale, self.out = scale, outputs
        self.net = build_net(self.training.net, shape, outputs, self.seeds.number("init"))
        self.net.to(self.device).eval()
        self.channels_last = isinstance(self.training.net, str)
        self.params = ParameterVector(self.net, self.channels_last)
        self.first = self.params.state()
        self.average = WeightAverage(self.params, self.training.average_steps)
        self.mask = ClassMask(self.compete, outputs, self.device)
        self._mean = self._per_channel("input_mean", self.training.input_mean, shape)
        self._std = self._per_channel("input_std", self.training.input_std, shape)
        found = self.net(self.inputs(torch.zeros((2, *shape), device=self.device)))
        if not isinstance(found, Tensor) or found.dim() != 2 or found.shape[1] < outputs:
            is_tensor = isinstance(found, Tensor)
            what = f"shape {tuple(found.shape[1:])}" if is_tensor else f"a {type(found).__name__}"
            raise InputError(
                f"net must return {outputs} numbers per row, one for each class (or target), found "
                f"{what}."
            )
        self.shape = shape

    def _per_channel(self, name: str, values: Any, shape: tuple[int, ...]) -> Tensor | None:
        """Return a number for each channel or column as a tensor that inputs broadcast with."""
        if values is None:
            return None
        wide = (shape[0], *(1,) * (len(shape) - 1)) if len(shape) == 3 else (shape[-1],)
        if len(values) not in (1, wide[0]):
            raise InputError(
                f"{name} must have one number for each of the {wide[0]} channels or columns of a "
                f"row, or one for all, found {len(values)}."
            )
        numbers = torch.tensor(values, dtype=self.params.theta.dtype, device=self.device)
        return numbers.expand(wide[0]).reshape(wide)

    # ------------------------------------------------------------------ data that arrives

    def check_task(self, task: Any, X: Any, y: Any, suffix: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, targets and the classes of a task; build the net for the first one.

        Raises
        ------
        DataError
            If they cannot be learned, or are unlike those of earlier tasks; it names the argument
            with `suffix`.
        """
        X, y = check_rows(X, self.device, suffix), np.asarray(y)
        if y.ndim == 0 or len(X) == 0 or len(X) != len(y):
            found = f"{len(X)} rows and y{suffix} of shape {y.shape}"
            raise DataError(
                f"X{suffix} and y{suffix} must have the same number of rows, at least one; found "
                f"{found}."
            )
        classes = getattr(task, "classes", None)
        if self.labels.classes is None and classes is not None:
            self.labels = Labels(classes)
        targets = self.targets(y, suffix)
        outputs = targets.shape[1] if self.regression else len(self.labels)
        present = np.arange(outputs) if self.regression else np.unique(targets)
        if classes is not None and not self.regression:
            present = np.union1d(present, self.labels.encode(np.asarray(classes), "classes"))
        shape, scale = tuple(X.shape[1:]), float(getattr(task, "scale", 1.0))
        if self.shape is None:
            self.build(shape, outputs, scale)
        if (shape, outputs, scale) != (self.shape, self.out, self.scale):
            raise DataError(
                f"X{suffix} and y{suffix} must be like those of earlier tasks: found rows of shape "
                f"{shape} with {outputs} outputs and scale {scale:g}, after {self.shape}, "
                f"{self.out} and {self.scale:g}."
            )
        if self.regression:
            self.flat_targets = y.ndim == 1
        return X, self.tensor(targets), self.tensor(present)

    def targets(self, y: Any, suffix: str = "") -> NDArray[Any]:
        """Return targets in the form of the net's outputs: class numbers, or floats (n, k)."""
        return check_numbers(y, suffix) if self.regression else self.labels.encode(y, f"y{suffix}")

    def tensor(self, values: Any) -> Tensor:
        """Return values as a tensor on the net's device."""
        return as_tensor(values, self.device)

    # ------------------------------------------------------------------ the net

    def inputs(self, X: Tensor) -> Tensor:
        """Convert rows to what the net takes: floats, scaled and standardized."""
        x = X.to(self.params.theta.dtype) if X.dtype != self.params.theta.dtype else X
        if self.scale != 1:
            x = x / self.scale if x is X else x.div_(self.scale)
        if self._mean is not None:
            x = x - self._mean
        if self._std is not None:
            x = x / self._std
        last = self.channels_last and x.dim() == 4
        return x.contiguous(memory_format=torch.channels_last) if last else x

    def forward(self, x: Tensor) -> Tensor:
        """Return the net's outputs, without those beyond the number of classes."""
        if self.training.precision == "float32":
            outputs: Tensor = self.net(x)
        else:
            with torch.autocast(self.device.type, torch.bfloat16):
                outputs = self.net(x).float()
        return outputs if outputs.shape[1] == self.out else outputs[:, : self.out]

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Return the net's outputs for rows, (n, outputs), as if all classes competed."""
        blocks = [self.forward(self.inputs(block)) for block in torch.split(X, BLOCK)]
        return torch.cat(blocks) if blocks else X.new_empty((0, self.out), dtype=torch.float32)

    def views(self, X: Tensor) -> list[Tensor]:
        """Return the forms of rows over which predictions are averaged."""
        return [X, X.flip(-1)] if self.training.mirrored else [X]

    @torch.no_grad()
    def hidden(self, X: Tensor, layers: str = "last") -> tuple[Tensor, Tensor]:
        """Return the input of the net's last layer, (n, k), and its outputs, (n, outputs).

        With ``layers="stages"`` the features of its last stages, see `nets.stage_features`.
        """
        extract = stage_features if layers == "stages" else penultimate_features
        training = self.net.training
        self.net.eval()
        blocks = [
            extract(self.net, self.forward, self.inputs(block)) for block in torch.split(X, BLOCK)
        ]
        self.net.train(training)
        hidden, outputs = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return hidden.float(), outputs

    def features(self, X: Any) -> Tensor:
        """Return the input of the net's last layer for rows, (n, k)."""
        return self.hidden(self.tensor(X))[0]

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Tensor]:
        """Copy what changes with a task: parameters, their average, the classes of each task."""
        state = {"classes": self.mask.table}
        state |= {f"net.{name}": value.clone() for name, value in self.params.tensors().items()}
        return state | {f"average.{name}": value for name, value in self.average.state.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.params.load(strip_prefix("net.", state))
        self.average.state = strip_prefix("average.", state)
        self.mask.load(state["classes"])


def strip_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def check_device(device: str) -> None:
    """Raise unless torch can compute on the device."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"device must be one torch can use here, found {device!r}: {why}"
        ) from error


def check_task(task: Any, fields: Sequence[str]) -> None:
    """Raise unless a task has what is asked of it."""
    if missing := [name for name in fields if not hasattr(task, name)]:
        raise InputError(
            f"task must have {', '.join(fields)}, like olss.streams.Task; found a "
            f"{type(task).__name__} without {', '.join(missing)}. olss.streams.from_arrays makes "
            "tasks of a list of (X, y)."
        )


def check_rows(X: Any, device: torch.device | str, suffix: str = "") -> Tensor:
    """Return rows as a tensor, or raise if nothing can be learned from them."""
    try:
        rows = as_tensor(X, device)
    except (TypeError, ValueError) as error:
        raise DataError(f"X{suffix} must be an array of numbers: {error}.") from error
    if rows.dim() < 2:
        raise DataError(
            f"X{suffix} must have rows and columns, found shape {tuple(rows.shape)}. "
            "X.reshape(-1, 1) makes rows of one column."
        )
    if rows.is_floating_point() and not rows.isfinite().all():
        raise DataError(f"X{suffix} holds NaN or infinite values. Fill or drop those rows.")
    return rows


def check_numbers(y: Any, suffix: str = "") -> NDArray[Any]:
    """Return the targets of a regression as floats (n, targets), or raise."""
    try:
        targets: NDArray[Any] = np.asarray(y, np.float32).reshape(len(y), -1)
    except (TypeError, ValueError) as error:
        raise DataError(f"y{suffix} must hold numbers for regression: {error}.") from error
    if not np.isfinite(targets).all():
        raise DataError(f"y{suffix} holds NaN or infinite values. Fill or drop those rows.")
    return targets


def score_answers(answers: Tensor, targets: Tensor, regression: bool) -> float:
    """Return the accuracy of answers (n, outputs), or R squared in regression.

    NaN where all targets are the same, since R squared is not defined.
    """
    if not regression:
        return float((answers.argmax(1) == targets).double().mean())
    targets = targets.double()
    spread = (targets - targets.mean(0)).square().sum()
    if spread == 0:
        return math.nan
    return float(1 - (answers.double() - targets).square().sum() / spread)
