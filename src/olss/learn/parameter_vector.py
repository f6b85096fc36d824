"""A net's parameters as one vector, so that penalties and projections are vector arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from olss.errors import InputError

__all__ = ["Flat"]


class Flat:
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
