"""Heads that correct the net's own outputs, fitted on the remembered rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from olss.errors import InputError
from olss.learn.answers import Fitted, class_weights, minimise
from olss.learn.model import Model
from olss.learn.nets import last_linear

__all__ = ["BiasCorrected", "WeightAligned"]


class WeightAligned(Fitted):
    """The net with the weights of new classes made as long as the old ones (Zhao et al. 2020).

    The outputs of the newest task's classes are scaled by the mean norm of the old classes'
    weights in the last layer over that of the new ones; biases stay.
    """

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Compare the lengths of the weights."""
        layer = self._layer(model)
        norms = layer.weight.detach()[: model.out].double().norm(dim=1)
        new = model.head.table[-1]
        old = model.head.seen & ~new
        self.factor, self.bias = torch.ones_like(norms), torch.zeros_like(norms)
        if layer.bias is not None:
            self.bias = layer.bias.detach()[: model.out].double()
        if old.any():
            self.factor[new] = norms[old].mean() / norms[new].mean().clamp(min=1e-12)

    @torch.no_grad()
    def _layer(self, model: Model) -> nn.Linear:
        """Return the layer whose outputs are the net's."""
        x = model.inputs(torch.zeros((2, *(model.shape or ())), device=model.device))
        layer, _, own, outputs = last_linear(model.net, model.net, x)
        if own.shape != outputs.shape or not torch.equal(own, outputs):
            raise InputError(
                "head='weight-aligned' scales what the net's last linear layer gives, and this net "
                "changes it afterwards; let the net end with that layer."
            )
        return layer

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return the outputs with those of new classes scaled."""
        return (outputs - self.bias) * self.factor + self.bias


class BiasCorrected(Fitted):
    """The net with a scale and a bias for new classes, fitted on remembered rows (Wu et al. 2019).

    ``a z_c + b`` for the classes c of the newest task, z_c for the others; a and b minimise the
    cross-entropy of the remembered rows, each class counting alike.
    """

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fit the scale and the bias."""
        self.new = model.head.table[-1]
        self.scale_bias = torch.tensor([1.0, 0.0], dtype=outputs.dtype, device=outputs.device)
        if not (model.head.seen & ~self.new).any():
            return
        rows, fitted = class_weights(labels), self.scale_bias.clone().requires_grad_()

        def loss() -> Tensor:
            scores = model.head.mask(self._corrected(outputs, fitted), None)
            losses = functional.cross_entropy(scores, labels, reduction="none")
            return (rows * losses).sum()

        minimise(loss, [fitted])
        self.scale_bias = fitted.detach()

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return the outputs with those of new classes corrected."""
        return self._corrected(outputs, self.scale_bias)

    def _corrected(self, outputs: Tensor, scale_bias: Tensor) -> Tensor:
        return torch.where(self.new, outputs * scale_bias[0] + scale_bias[1], outputs)
