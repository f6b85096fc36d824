"""Losses by name, for classes and for numbers."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from olss.errors import InputError

__all__ = ["LOSSES", "loss_of_rows", "mean_loss", "old_class_loss", "stored_output_loss"]

LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "l1": functional.l1_loss,
    "l2": functional.mse_loss,
    "huber": functional.huber_loss,
}


def loss_of_rows(name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Give the loss of each row, (n,). Regression averages over a row's targets."""
    values = LOSSES[name](outputs, y, reduction="none")
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def mean_loss(name: str, outputs: Tensor, y: Tensor, share: Tensor | None = None) -> Tensor:
    """Give the mean over the rows, or their sum weighted by `share`, (n,)."""
    if share is None:
        return LOSSES[name](outputs, y)
    return (loss_of_rows(name, outputs, y) * share).sum()


def stored_output_loss(outputs: Tensor, stored: Tensor, rows: int) -> Tensor:
    """Squared distance to stored outputs: the alpha term of DER (Buzzega et al. 2020).

    ``sum_i mean_c (z_ic - s_ic)^2 / rows`` over the rows i that have stored outputs (NaN marks
    those that have none) and all outputs c: those of classes to come too, which keeps new
    classes from taking over old rows.
    """
    known = ~stored[:, :1].isnan()
    return (outputs - stored).where(known, 0.0).square().mean(1).sum() / rows


def old_class_loss(outputs: Tensor, y: Tensor, before: Tensor, seen: Tensor, old: Tensor) -> Tensor:
    """Give iCaRL's loss (Rebuffi et al. 2017): a logistic loss for each class seen so far.

    The target is the label for the task's new classes and, for `old` classes, what the net
    answered `before` the task. Summed over classes, averaged over rows.
    """
    if y.dim() != 1:
        raise InputError("iCaRL's loss is for classes.")
    labels = functional.one_hot(y, outputs.shape[1]).to(outputs.dtype)
    targets = labels.where(~old, before.sigmoid())
    losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return losses.masked_fill(~seen, 0.0).sum(1).mean()
