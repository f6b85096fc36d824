"""Losses: what is learned from the labels of a step's rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from olss.errors import InputError
from olss.learn.model import Model
from olss.learn.replay import TrainingSet
from olss.learn.training import ROW_LOSSES, Examples, loss_of_rows
from olss.util import checks

__all__ = [
    "LOSSES",
    "AsymmetricLoss",
    "IcarlLoss",
    "LogitAdjustedLoss",
    "Loss",
    "old_class_loss",
]


class Loss:
    """The mean loss over the rows of a step: the base of other losses.

    Parameters
    ----------
    loss : str
        "cross-entropy" for classes; "l1", "l2" or "huber" for numbers.
    weighted_loss : bool
        Whether rows count by their weight in the memory.
    beta : float, optional
        What the mean over replayed rows counts beside the mean over the others, which counts 1:
        the loss is the mean of the two. None: all rows of a step count alike.
    """

    parts_rows = False  # whether new rows and remembered ones must come apart

    def __init__(
        self, loss: str = "cross-entropy", weighted_loss: bool = False, beta: float | None = None
    ) -> None:
        self.kind = checks.choice("loss", loss, ROW_LOSSES)
        self.weighted = checks.boolean("weighted_loss", weighted_loss)
        self.beta = None if beta is None else checks.number("beta", beta, minimum=0)

    @property
    def regression(self) -> bool:
        """Whether targets are numbers."""
        return self.kind != "cross-entropy"

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        """See what a task is trained on; its rows may be given more columns."""
        return training

    def __call__(self, model: Model, outputs: Tensor, batch: Examples, replayed: int) -> Tensor:
        """Return the loss of a step whose last `replayed` rows come from the memory."""
        return self.joined(self.of_rows(model, outputs, batch), batch, replayed)

    def of_rows(self, model: Model, outputs: Tensor, batch: Examples) -> Tensor:
        """Return the loss of each row at its label, (n,)."""
        return loss_of_rows(self.kind, model.mask.apply(outputs, batch.task), batch.y)

    def weight(self, replayed: int) -> float:
        """Return what the loss counts beside a penalty of weight 1."""
        return 1.0 if self.beta is None or not replayed else 1 + self.beta

    def joined(self, values: Tensor, batch: Examples, replayed: int) -> Tensor:
        """Return the mean of the rows' losses, the replayed ones weighing beta in all."""
        weight = batch.weight if self.weighted else None
        if self.beta is None or not replayed:
            return _mean(values, weight)
        cut = len(values) - replayed
        parts = (None, None) if weight is None else (weight[:cut], weight[cut:])
        own = _mean(values[:cut], parts[0])
        if not self.beta:  # losses of replayed rows do not count, and may be infinite
            return own
        return (own + self.beta * _mean(values[cut:], parts[1])) / (1 + self.beta)


class LogitAdjustedLoss(Loss):
    """Cross-entropy that expects each class as often as it comes (Menon et al. 2021).

    With p_c what class c is expected to count in the loss of a step, the net is trained on
    ``z_c + tau log p_c`` and asked for ``z``: what comes often need not be answered often.
    Also called balanced softmax (Ren et al. 2020).

    Parameters
    ----------
    tau : float
        How much of the imbalance is taken out; 0 is plain cross-entropy.
    weighted_loss, beta
        As in `Loss`.
    """

    def __init__(
        self, tau: float = 1.0, weighted_loss: bool = False, beta: float | None = None
    ) -> None:
        super().__init__("cross-entropy", weighted_loss, beta)
        self.tau = checks.number("tau", tau, minimum=0)

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        """Count the classes."""
        shares = training.class_shares(model.out, self.weighted, self.beta)
        self.shift = self.tau * shares.log() if self.tau else 0.0
        return training

    def of_rows(self, model: Model, outputs: Tensor, batch: Examples) -> Tensor:
        """Return the loss of each row, (n,)."""
        return super().of_rows(model, outputs + self.shift, batch)


class AsymmetricLoss(Loss):
    """ER-ACE (Caccia et al. 2022): new rows do not push old classes down.

    New rows are learned with a softmax over the classes of the current task alone, replayed
    rows over all classes seen; the two means are added. The memory must hold rows of the
    current task, else the new classes are only ever pushed down by the replayed rows. A finish
    has remembered rows alone.
    """

    parts_rows = True
    has_new = True

    def __init__(self) -> None:
        super().__init__("cross-entropy", beta=1.0)

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        """See whether there are new rows."""
        self.has_new = bool((training.rows.task == model.tasks).all())
        return training

    def weight(self, replayed: int) -> float:
        """Return 1: the sum of two means counts what new rows' labels count in it."""
        return 1.0

    def __call__(self, model: Model, outputs: Tensor, batch: Examples, replayed: int) -> Tensor:
        """Return the sum of the two means."""
        count = len(batch) - replayed if self.has_new else 0
        new = torch.arange(len(batch), device=outputs.device) < count
        shut = new[:, None] & ~model.mask.table[-1]
        means = super().__call__(model, outputs.masked_fill(shut, -torch.inf), batch, replayed)
        return 2 * means if replayed else means


class IcarlLoss(Loss):
    """iCaRL's loss: labels for new classes, the net's old answers for old ones.

    What the net answers before a task is asked once for all rows of its training set; see
    `old_class_loss`.
    """

    def __init__(self) -> None:
        super().__init__("cross-entropy")

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        """Ask the net as it is for its answers."""
        self.old = model.mask.seen & ~model.mask.table[-1]
        if not self.old.any():
            return training

        def asked(rows: Examples) -> Examples:
            return dataclasses.replace(rows, outputs=model.outputs(rows.X))

        replay = None if training.replay is None else asked(training.replay)
        return dataclasses.replace(training, rows=asked(training.rows), replay=replay)

    def __call__(self, model: Model, outputs: Tensor, batch: Examples, replayed: int) -> Tensor:
        """Return the loss of a step."""
        before = outputs.detach() if batch.outputs is None else batch.outputs
        return old_class_loss(outputs, batch.y, before, model.mask.seen, self.old)


LOSSES: dict[str, Callable[..., Loss]] = {
    **dict.fromkeys(ROW_LOSSES, Loss),
    "logit-adjusted": LogitAdjustedLoss,
    "er-ace": AsymmetricLoss,
    "icarl": IcarlLoss,
}


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def old_class_loss(outputs: Tensor, y: Tensor, before: Tensor, seen: Tensor, old: Tensor) -> Tensor:
    """Return iCaRL's loss (Rebuffi et al. 2017): a logistic loss for each class seen so far.

    The target is the label for the task's new classes and, for `old` classes, what the net
    answered `before` the task. Summed over classes, averaged over rows.
    """
    if y.dim() != 1:
        raise InputError("iCaRL's loss is for classes.")
    labels = functional.one_hot(y, outputs.shape[1]).to(outputs.dtype)
    targets = labels.where(~old, before.sigmoid())
    losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return losses.masked_fill(~seen, 0.0).sum(1).mean()
