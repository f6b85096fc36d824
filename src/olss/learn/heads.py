"""How a learner answers, and what heads fitted on remembered rows have in common.

A net trained on few old and many new rows answers with new classes too often; its features do not
know of it. A head fitted on remembered rows, each class counting alike, answers from the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from olss.errors import InputError
from olss.learn.labels import COMPETING
from olss.learn.model import Model
from olss.learn.nets import last_linear
from olss.learn.training import Examples
from olss.util import checks

__all__ = [
    "HEADS",
    "BiasCorrected",
    "Discriminant",
    "FittedHead",
    "Head",
    "Logistic",
    "NearestMean",
    "Product",
    "Ridge",
    "WeightAligned",
    "class_weights",
    "minimise",
    "nearest_mean",
]


class Head:
    """The net's own outputs answer: the base of other answers.

    Parameters
    ----------
    head : str
        Which classes compete: "seen", all classes seen so far; "task", those of a row's own
        task, which must then be known; "all", every output from the start.
    """

    needs_memory = False

    def __init__(self, head: str = "seen") -> None:
        self.compete = checks.choice("head", head, COMPETING)
        self.words = COMPETING[head]

    def fit(self, model: Model, held: Examples | None) -> None:
        """Get ready to answer for the net as it is now, with these rows remembered."""

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        """Return a score for each output, (n, outputs); minus infinity where it may not answer."""
        return model.mask.apply(_mean(map(model.outputs, model.views(X))), task)


class FittedHead(Head):
    """A head fitted on remembered rows whenever a task was learned; all classes seen compete.

    As long as there are none, the net's own outputs answer.
    """

    needs_memory = True
    layers = "last"  # which of the net's features are asked for, see `Model.hidden`
    labels: Tensor | None = None

    def __init__(self) -> None:
        super().__init__("seen")
        kind = type(self).__doc__ or ""
        self.words = f"{self.words}, answered by {kind.split('.')[0].split(' (')[0].lower()}"

    def fit(self, model: Model, held: Examples | None) -> None:
        """Fit the head to the remembered rows as the net sees them."""
        self.labels = None if held is None else held.y
        if held is not None:
            hidden, outputs = self._asked(model, held.X)
            self.learn(model, hidden.double(), outputs.double(), held.y)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fit to features (n, k), outputs (n, c) and labels (n,) of the remembered rows."""
        raise NotImplementedError

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        """Return the score of each class; minus infinity for those not remembered."""
        if self.labels is None:
            return super().__call__(model, X, task)
        hidden, outputs = self._asked(model, X)
        scores = self.scores(hidden.double(), outputs.double())
        absent = torch.bincount(self.labels, minlength=model.out) == 0
        return scores.masked_fill(absent, -torch.inf)

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return the score of each class, (n, c)."""
        raise NotImplementedError

    def _asked(self, model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and outputs of rows, averaged over the forms they are asked in."""
        asked = [model.hidden(view, self.layers) for view in model.views(X)]
        hidden, outputs = zip(*asked, strict=True)
        return _mean(hidden), _mean(outputs)


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(0)


def class_weights(labels: Tensor) -> Tensor:
    """Return a weight for each row, (n,): each class counts alike, the sum is 1."""
    counts = torch.bincount(labels).double()
    return 1 / (counts[labels] * (counts > 0).sum())


def minimise(loss: Callable[[], Tensor], values: list[Tensor], steps: int = 200) -> None:
    """Minimise a smooth convex function of `values`, in place, by L-BFGS with a line search."""
    optimiser = torch.optim.LBFGS(
        values, max_iter=steps, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        torch.autograd.backward(value)
        return value

    with torch.enable_grad():
        optimiser.step(closure)  # type: ignore[no-untyped-call]


LAYERS = ("last", "stages")
FOLDS = 5


class _OnFeatures(FittedHead):
    """Answers from features."""

    def __init__(self, head_layers: str = "last") -> None:
        super().__init__()
        self.layers = checks.choice("head_layers", head_layers, LAYERS)


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
        self.ridge = checks.number("ridge", ridge, above=0)

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
        self.shrinkage = checks.fraction("shrinkage", shrinkage)

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
        self.decay = checks.number("logistic_decay", logistic_decay, above=0)

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


class WeightAligned(FittedHead):
    """The net with the weights of new classes made as long as the old ones (Zhao et al. 2020).

    The outputs of the newest task's classes are scaled by the mean norm of the old classes'
    weights in the last layer over that of the new ones; biases stay.
    """

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Compare the lengths of the weights."""
        layer = self._layer(model)
        norms = layer.weight.detach()[: model.out].double().norm(dim=1)
        new = model.mask.table[-1]
        old = model.mask.seen & ~new
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


class BiasCorrected(FittedHead):
    """The net with a scale and a bias for new classes, fitted on remembered rows (Wu et al. 2019).

    ``a z_c + b`` for the classes c of the newest task, z_c for the others; a and b minimise the
    cross-entropy of the remembered rows, each class counting alike.
    """

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fit the scale and the bias."""
        self.new = model.mask.table[-1]
        self.scale_bias = torch.tensor([1.0, 0.0], dtype=outputs.dtype, device=outputs.device)
        if not (model.mask.seen & ~self.new).any():
            return
        rows, fitted = class_weights(labels), self.scale_bias.clone().requires_grad_()

        def loss() -> Tensor:
            scores = model.mask.apply(self._corrected(outputs, fitted), None)
            losses = functional.cross_entropy(scores, labels, reduction="none")
            return (rows * losses).sum()

        minimise(loss, [fitted])
        self.scale_bias = fitted.detach()

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return the outputs with those of new classes corrected."""
        return self._corrected(outputs, self.scale_bias)

    def _corrected(self, outputs: Tensor, scale_bias: Tensor) -> Tensor:
        return torch.where(self.new, outputs * scale_bias[0] + scale_bias[1], outputs)


HEADS: dict[str, Callable[..., Head]] = {
    **dict.fromkeys(COMPETING, Head),
    "nearest-mean": NearestMean,
    "ridge": Ridge,
    "discriminant": Discriminant,
    "product": Product,
    "logistic": Logistic,
    "weight-aligned": WeightAligned,
    "bias-corrected": BiasCorrected,
}
