"""Heads that answer from a net's features, fitted on the remembered rows.

All take `head_layers`: "last", what goes into the net's last layer; or "stages", with that the maps
of the last two stages of a net of convolutions, averaged over 2 x 2 cells (`nets.stages`). Earlier
layers forget less, and where on an image something is tells classes apart.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from olss.learn.answers import Fitted, class_weights, minimise
from olss.learn.model import Model
from olss.util.checks import known_name, number, share

__all__ = ["Discriminant", "Logistic", "NearestMean", "Product", "Ridge", "nearest_mean"]

LAYERS = ("last", "stages")
FOLDS = 5


class _OnFeatures(Fitted):
    """Answers from features."""

    def __init__(self, head_layers: str = "last") -> None:
        super().__init__()
        self.layers = known_name("head_layers", head_layers, LAYERS)


class NearestMean(_OnFeatures):
    """The nearest mean of remembered rows (Rebuffi et al. 2017)."""

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Keep the remembered features."""
        self.remembered, self.of, self.classes = hidden, labels, model.out

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return minus the squared distance to each mean."""
        return nearest_mean(hidden, self.remembered, self.of, self.classes)


class _Linear(_OnFeatures):
    """Linear in features of length one."""

    weight: Tensor
    bias: Tensor

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return ``W h + b``."""
        return functional.normalize(hidden) @ self.weight.T + self.bias


class Ridge(_Linear):
    """Ridge regression on remembered rows.

    Regresses the indicators of the classes on features of length one, with an intercept:
    ``W = Y' D H (H' D H + lambda I)^-1``, H centred, D giving each class the same weight. It
    is made of the memory's Gram matrix in feature space, the object leverage is made of.

    Parameters
    ----------
    ridge : float
        lambda, as a multiple of the mean of the diagonal of ``H' D H``.
    """

    def __init__(self, ridge: float = 0.1, head_layers: str = "last") -> None:
        super().__init__(head_layers)
        self.ridge = number("ridge", ridge, above=0)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Solve for the weights."""
        weight = class_weights(labels)[:, None]
        unit = functional.normalize(hidden)
        targets = functional.one_hot(labels, model.out).to(unit)
        centre, share = (weight * unit).sum(0), (weight * targets).sum(0)
        H = unit - centre
        gram = H.T @ (weight * H)
        gram.diagonal().add_(self.ridge * gram.diagonal().mean() + 1e-12)
        self.weight = torch.linalg.solve(gram, H.T @ (weight * (targets - share))).T
        self.bias = share - self.weight @ centre


class Discriminant(_Linear):
    """The linear discriminant of remembered rows.

    Classes are taken for Gaussian with means of their own and one covariance S, shrunk:
    ``(1 - shrinkage) S + shrinkage tr(S)/k I`` (Friedman 1989), all classes equally likely:
    the score is ``m' S^-1 h - 1/2 m' S^-1 m``.

    Parameters
    ----------
    shrinkage : float
        From 0, the covariance as it is, to 1, the nearest mean.
    """

    def __init__(self, shrinkage: float = 0.1, head_layers: str = "last") -> None:
        super().__init__(head_layers)
        self.shrinkage = share("shrinkage", shrinkage)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Take means and the covariance around them."""
        self.weight, self.bias = self._fitted(functional.normalize(hidden), labels, model.out)

    def _fitted(self, unit: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Return the weights (c, k) and biases (c,) that rows of length one make."""
        weight = class_weights(labels)[:, None]
        means = unit.new_zeros((classes, unit.shape[1])).index_add_(0, labels, weight * unit)
        present = torch.bincount(labels, minlength=classes) > 0
        means *= present.sum()
        around = unit - means[labels]
        S = around.T @ (weight * around)
        level = S.diagonal().mean() + 1e-12
        S = (1 - self.shrinkage) * S
        S.diagonal().add_(max(self.shrinkage, 1e-6) * level)
        solved = torch.linalg.solve(S, means.T).T
        return solved, -0.5 * (means * solved).sum(1)


class Product(Discriminant):
    """The product of the net's softmax and the linear discriminant of remembered rows.

    A product of experts (Hinton 2002): probabilities are multiplied, so outputs z and scores d
    of the discriminant are added, ``z + sharpness d``. What a discriminant makes of few rows it
    is too sure of; the sharpness is what makes it likeliest on remembered rows that it was not
    fitted on, in five folds (the temperature of Guo et al. 2017). With many rows of a class the
    discriminant decides, with few the net.
    """

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fit the discriminant, and how far it is to be trusted."""
        super().learn(model, hidden, outputs, labels)
        unit = functional.normalize(hidden)
        fold = _rank_in_class(labels) % FOLDS
        scores, targets = [], []
        for left_out in range(int(fold.max()) + 1):
            rest, asked = fold != left_out, fold == left_out
            present = torch.bincount(labels[rest], minlength=model.out) > 0
            asked &= present[labels]  # of a class with one row there is nothing to say
            weight, bias = self._fitted(unit[rest], labels[rest], model.out)
            scores.append((unit[asked] @ weight.T + bias).masked_fill(~present, -torch.inf))
            targets.append(labels[asked])
        self.sharpness = likeliest_sharpness(torch.cat(scores), torch.cat(targets))

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return ``z + sharpness d``."""
        return outputs + self.sharpness * super().scores(hidden, outputs)


class Logistic(_Linear):
    """Logistic regression on remembered rows.

    Minimises the mean cross-entropy, each class counting alike, plus
    ``logistic_decay / 2 |W|^2`` over features of length one; convex, solved by L-BFGS.
    """

    def __init__(self, logistic_decay: float = 1e-4, head_layers: str = "last") -> None:
        super().__init__(head_layers)
        self.decay = number("logistic_decay", logistic_decay, above=0)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Solve for the weights."""
        present = torch.bincount(labels, minlength=model.out) > 0
        shut = torch.zeros(model.out, dtype=hidden.dtype, device=hidden.device)
        shut[~present] = -torch.inf
        unit, rows = functional.normalize(hidden), class_weights(labels)
        weight = unit.new_zeros((model.out, unit.shape[1])).requires_grad_()
        bias = unit.new_zeros(model.out).requires_grad_()

        def loss() -> Tensor:
            scores = unit @ weight.T + bias + shut
            losses = functional.cross_entropy(scores, labels, reduction="none")
            return (rows * losses).sum() + 0.5 * self.decay * weight.square().sum()

        minimise(loss, [weight, bias])
        self.weight, self.bias = weight.detach(), bias.detach()


def nearest_mean(features: Tensor, remembered: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return minus the squared distance to each class's mean, (n, classes); -inf without rows.

    Features have length one, the means too (Rebuffi et al. 2017, algorithm 1).
    """
    unit = functional.normalize
    sums = remembered.new_zeros((classes, remembered.shape[1]))
    sums.index_add_(0, labels, unit(remembered))
    distances = -torch.cdist(unit(features), unit(sums)).square()
    empty = torch.bincount(labels, minlength=classes) == 0
    return distances.masked_fill(empty, -torch.inf)


def likeliest_sharpness(scores: Tensor, labels: Tensor) -> float:
    """Return the factor, at least 0, of scores (n, c) that makes labels likeliest; 0 of none.

    ``argmin_s sum_i -log softmax(s d_i)_{y_i}``, each class counting alike: convex in s.
    """
    if not len(labels):
        return 0.0
    level = scores[scores.isfinite()].std().clamp(min=1e-12)
    rows, factor = class_weights(labels), scores.new_zeros(()).requires_grad_()
    # A class that may not answer stays at minus infinity, also times 0.
    shut, units = scores.isinf(), scores.masked_fill(scores.isinf(), 0.0) / level

    def loss() -> Tensor:
        sharp = (factor * units).masked_fill(shut, -torch.inf)
        return (rows * functional.cross_entropy(sharp, labels, reduction="none")).sum()

    minimise(loss, [factor])
    return max(0.0, float(factor.detach() / level))


def _rank_in_class(labels: Tensor) -> Tensor:
    """Return how many rows before a row have its label, (n,)."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels), device=labels.device) - first[labels[order]]
    return rank
