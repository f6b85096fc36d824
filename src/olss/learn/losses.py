"""Losses: what a step learns from the labels of its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from olss.learn.buffers import TrainingSet
from olss.learn.model import Model
from olss.learn.training import Batch
from olss.util import checks

__all__ = ["LOSSES", "AsymmetricLoss", "IcarlLoss", "LogitAdjustedLoss", "Loss", "row_losses"]

ROW_LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "l1": functional.l1_loss,
    "l2": functional.mse_loss,
    "huber": functional.huber_loss,
}


def row_losses(kind: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each row, (n,). Regression averages over a row's targets."""
    values = ROW_LOSSES[kind](outputs, y, reduction="none")
    return values if values.dim() == 1 else values.flatten(1).mean(1)


class Loss:
    """The mean loss over the rows of a step: the base of other losses.

    Parameters
    ----------
    loss : str
        "cross-entropy" for classes; "l1", "l2" or "huber" for regression.
    weighted_loss : bool
        Whether rows count by their weight in the buffer.
    beta : float, optional
        What the mean over replayed rows counts beside the mean over the others, which counts 1:
        the loss is the mean of the two. None: all rows of a step count alike.
    """

    separates_replayed = False  # whether new and replayed rows must be told apart

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
        """Inspect what a task is trained on; return it, perhaps with more columns."""
        return training

    def __call__(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor:
        """Return the loss of a step whose last `replayed` rows come from the buffer."""
        values = row_losses(self.kind, model.mask.apply(outputs, batch.task), batch.y)
        weight = batch.weight if self.weighted else None
        if self.beta is None or not replayed:
            return _mean(values, weight)
        cut = len(values) - replayed
        new = _mean(values[:cut], None if weight is None else weight[:cut])
        if not self.beta:  # losses of replayed rows do not count, and may be infinite
            return new
        past = _mean(values[cut:], None if weight is None else weight[cut:])
        return (new + self.beta * past) / (1 + self.beta)

    def weight(self, replayed: int) -> float:
        """Return what the loss counts beside a regularizer of weight 1."""
        return 1.0 if self.beta is None or not replayed else 1 + self.beta


class LogitAdjustedLoss(Loss):
    """Cross-entropy that expects each class as often as it occurs (Menon et al. 2021).

    With p_c the expected share of class c in the loss of a step, the net is trained on
    ``z_c + tau log p_c`` and predicts by ``z``: frequent classes need no larger outputs.
    Also called balanced softmax (Ren et al. 2020).

    Parameters
    ----------
    tau : float
        How much of the imbalance is removed; 0 is plain cross-entropy.
    weighted_loss, beta
        As in `Loss`.
    """

    def __init__(
        self, tau: float = 1.0, weighted_loss: bool = False, beta: float | None = None
    ) -> None:
        super().__init__("cross-entropy", weighted_loss, beta)
        self.tau = checks.number("tau", tau, minimum=0)

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        shares = training.class_shares(model.out, self.weighted, self.beta)
        self.shift = self.tau * shares.log() if self.tau else 0.0
        return training

    def __call__(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor:
        return super().__call__(model, outputs + self.shift, batch, replayed)


class AsymmetricLoss(Loss):
    """ER-ACE (Caccia et al. 2022): new rows do not push old classes down.

    New rows are learned with a softmax over the classes of the current task alone, replayed
    rows over all classes seen; the two means are added. The buffer must hold rows of the
    current task, or the replayed rows would only ever push the new classes down. A finish has
    replayed rows alone.
    """

    separates_replayed = True
    has_new_rows = True

    def __init__(self) -> None:
        super().__init__("cross-entropy", beta=1.0)

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        self.has_new_rows = bool((training.rows.task == model.tasks).all())
        return training

    def weight(self, replayed: int) -> float:
        return 1.0

    def __call__(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor:
        count = len(batch) - replayed if self.has_new_rows else 0
        new = torch.arange(len(batch), device=outputs.device) < count
        closed = new[:, None] & ~model.mask.table[-1]
        means = super().__call__(model, outputs.masked_fill(closed, -torch.inf), batch, replayed)
        return 2 * means if replayed else means


class IcarlLoss(Loss):
    """iCaRL's loss: labels for new classes, the net's earlier outputs for old ones.

    The outputs before a task are computed once for all rows of its training set; see
    `old_class_loss`.
    """

    def __init__(self) -> None:
        super().__init__("cross-entropy")

    def begin_task(self, model: Model, training: TrainingSet) -> TrainingSet:
        self.old = model.mask.seen & ~model.mask.table[-1]
        if not self.old.any():
            return training

        def with_outputs(rows: Batch) -> Batch:
            return dataclasses.replace(rows, outputs=model.outputs(rows.X))

        replay = None if training.replay is None else with_outputs(training.replay)
        return dataclasses.replace(training, rows=with_outputs(training.rows), replay=replay)

    def __call__(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor:
        before = outputs.detach() if batch.outputs is None else batch.outputs
        return old_class_loss(outputs, batch.y, before, model.mask.seen, self.old)


LOSSES: dict[str, Callable[..., Loss]] = {
    **dict.fromkeys(ROW_LOSSES, Loss),
    "logit-adjusted": LogitAdjustedLoss,
    "er-ace": AsymmetricLoss,
    "icarl": IcarlLoss,
}


def old_class_loss(outputs: Tensor, y: Tensor, before: Tensor, seen: Tensor, old: Tensor) -> Tensor:
    """Return iCaRL's loss (Rebuffi et al. 2017): a logistic loss for each class seen so far.

    The target is the label for the task's new classes and, for `old` classes, what the net
    returned `before` the task. Summed over classes, averaged over rows.
    """
    labels = functional.one_hot(y, outputs.shape[1]).to(outputs.dtype)
    targets = labels.where(~old, before.sigmoid())
    losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return losses.masked_fill(~seen, 0.0).sum(1).mean()


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()
