"""The loss of one row, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

__all__ = ["ROW_LOSSES", "loss_of_rows"]

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
