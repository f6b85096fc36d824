"""Heads: how a learner predicts, by the net's outputs or by a model fitted on the buffer.

A net trained on few old and many new rows predicts new classes too often, but its features are not
biased. A head fitted on the rows of the buffer, each class counting alike, predicts from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from olss.core.linear_fit import fit_discriminant
from olss.core.moments import Moments, one_hot
from olss.learn.features import FeatureMap, make_features
from olss.learn.model import COMPETING, Model, strip_prefix
from olss.learn.training import Batch
from olss.util import checks

__all__ = [
    "HEADS", "Discriminant", "Ensemble", "FittedHead", "Head", "NearestMean", "Product",
    "Transported",
]  # fmt: skip

BLOCK = 1_000  # rows whose frozen features are held at a time
FOLDS = 5
RIDGE = 1e-3  # of frozen features, as a share of the mean of the diagonal: the optimum is flat


class Head:
    """Predict by the net's own outputs: the base of other heads.

    Parameters
    ----------
    head : str
        Which classes compete: "seen", all classes seen so far; "task", those of a row's own
        task, which must then be known; "all", every output from the start.
    """

    needs_buffer = False

    def __init__(self, head: str = "seen") -> None:
        self.compete = checks.choice("head", head, COMPETING)
        self.protocol = COMPETING[head]

    def start(self) -> None:
        """Forget every task."""

    def begin_task(self, model: Model) -> None:
        """Note what is needed of the net before it learns a task."""

    def end_task(self, model: Model, current: Batch, held: Batch | None) -> None:
        """Note what is needed of all rows of a task; `fit` follows."""

    def fit(self, model: Model, held: Batch | None) -> None:
        """Prepare predictions of the net as it is now, with these rows in the buffer."""

    @property
    def state(self) -> dict[str, Tensor]:
        """What is kept of earlier tasks, for checkpoints."""
        return {}

    @state.setter
    def state(self, values: dict[str, Tensor]) -> None:
        pass

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        """Return a score for each output, (n, outputs); minus infinity if it does not compete."""
        return model.mask.apply(_mean(map(model.outputs, model.views(X))), task)


class FittedHead(Head):
    """A head fitted on the buffer after each task; all classes seen compete.

    As long as the buffer is empty, the net's own outputs predict.

    Parameters
    ----------
    head_layers : str
        Features: "last", the input of the net's last layer; or "stages", with the maps of the last
        two stages of a convolutional net, averaged over 2 x 2 cells (`nets.stage_features`).
        Earlier layers forget less, and where on an image something is helps to tell classes apart.
    """

    needs_buffer = True
    answered_by = "a fitted head"  # for `protocol`
    labels: Tensor | None = None

    def __init__(self, head_layers: str = "last") -> None:
        super().__init__("seen")
        self.layers = checks.choice("head_layers", head_layers, ("last", "stages"))
        self.protocol = f"{self.protocol}, answered by {self.answered_by}"

    def fit(self, model: Model, held: Batch | None) -> None:
        self.labels = None if held is None else held.y
        if held is not None:
            hidden, outputs = self._features(model, held.X)
            self.learn(model, hidden, outputs, held.y)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fit to features (n, k), outputs (n, c) and labels (n,) of the rows of the buffer."""
        raise NotImplementedError

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        if self.labels is None:
            return super().__call__(model, X, task)
        absent = torch.bincount(self.labels, minlength=model.out) == 0
        return self.scores(*self._features(model, X)).masked_fill(absent, -torch.inf)

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        """Return the score of each class, (n, c)."""
        raise NotImplementedError

    def _features(self, model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and outputs of rows in float64, averaged over their views."""
        views = [model.hidden(view, self.layers) for view in model.views(X)]
        hidden, outputs = zip(*views, strict=True)
        return _mean(hidden).double(), _mean(outputs).double()


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(0)


def class_weights(labels: Tensor) -> Tensor:
    """Return a weight for each row, (n,), such that each class counts alike; they sum to 1."""
    counts = torch.bincount(labels).double()
    return 1 / (counts[labels] * (counts > 0).sum())


def minimize(loss: Callable[[], Tensor], values: list[Tensor], steps: int = 200) -> None:
    """Minimize a smooth convex function of `values`, in place, by L-BFGS with a line search."""
    optimizer = torch.optim.LBFGS(
        values, max_iter=steps, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        torch.autograd.backward(value)
        return value

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]


class NearestMean(FittedHead):
    """The nearest mean of remembered rows (Rebuffi et al. 2017)."""

    answered_by = "the nearest mean of remembered rows"

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        self.remembered, self.classes = hidden, model.out

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        assert self.labels is not None
        return nearest_mean(hidden, self.remembered, self.labels, self.classes)


class Discriminant(FittedHead):
    """The linear discriminant of remembered rows.

    Classes are modeled as Gaussian with their own means and one covariance S, shrunk:
    ``(1 - shrinkage) S + shrinkage tr(S)/k I`` (Friedman 1989), all classes equally likely:
    the score is ``m' S^-1 h - 1/2 m' S^-1 m``.

    Parameters
    ----------
    shrinkage : float
        From 0, the covariance as it is, to 1, the nearest mean.
    """

    answered_by = "the linear discriminant of remembered rows"

    def __init__(self, shrinkage: float = 0.1, head_layers: str = "last") -> None:
        super().__init__(head_layers)
        self.shrinkage = checks.fraction("shrinkage", shrinkage)

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        self.weight, self.bias = self._solve(functional.normalize(hidden), labels, model.out)

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        return functional.normalize(hidden) @ self.weight.T + self.bias

    def _solve(self, unit: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Return the weights (c, k) and biases (c,) for features of length one."""
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


class Transported(Discriminant):
    """The linear discriminant of all rows, its moments transported as the net changes.

    Moments of all rows of a task are taken in the features of the net that has learned it. The next
    task changes the features; how, the rows of the buffer tell, seen by the net before and after:
    ``h_new = a + A h_old + e``, by ridge regression towards ``A = I``. So means become ``a + A m``
    and scatters ``A S A' + n cov(e)``. The drift of class means is compensated likewise by Gomez-
    Villa et al. (2024, "Exemplar-free continual representation learning via learnable drift
    compensation"). Half of a matrix of features x features is kept besides the rows.

    Parameters
    ----------
    shrinkage : float
        As of `Discriminant`.
    """

    answered_by = "the linear discriminant of all rows, its moments transported as the net changes"

    def __init__(self, shrinkage: float = 0.1, head_layers: str = "last") -> None:
        super().__init__(shrinkage, head_layers)
        self.moments: Moments | None = None

    def start(self) -> None:
        self.moments = None

    def begin_task(self, model: Model) -> None:
        self._before = model.state() if self.moments is not None else {}

    def end_task(self, model: Model, current: Batch, held: Batch | None) -> None:
        """Transport the moments so far, and add the rows of the task."""
        moments = self.moments
        if moments is not None and held is not None:
            now = model.state()
            model.load(self._before)
            old = self._unit(model, held.X)
            model.load(now)
            moments = transport(moments, old, self._unit(model, held.X))
        self._before = {}
        rows = self._unit(model, current.X)
        if moments is None:
            moments = Moments.empty(rows.shape[1], model.out, np.float32)
        self.moments = moments.update(rows, one_hot(current.y.cpu().numpy(), model.out))

    def _unit(self, model: Model, X: Tensor) -> NDArray[np.float64]:
        unit: NDArray[np.float64] = functional.normalize(self._features(model, X)[0]).cpu().numpy()
        return unit

    def fit(self, model: Model, held: Batch | None) -> None:
        """Solve for the weights, all classes equally likely."""
        self.labels = None
        if self.moments is not None:
            seen = np.flatnonzero(self.moments.target_mean > 0)
            priors = np.full(model.out, 1 / len(seen))
            found = fit_discriminant(self.moments, self.shrinkage, priors)
            self.labels = model.tensor(seen)
            self.weight = model.tensor(found.coef.T)
            self.bias = model.tensor(np.where(np.isin(range(model.out), seen), found.intercept, 0))

    @property
    def state(self) -> dict[str, Tensor]:
        """The moments."""
        arrays = {} if self.moments is None else self.moments.to_arrays()
        return {name: torch.from_numpy(values) for name, values in arrays.items()}

    @state.setter
    def state(self, values: dict[str, Tensor]) -> None:
        arrays = {name: value.cpu().numpy() for name, value in values.items()}
        self.moments = Moments.from_arrays(arrays) if arrays else None


def transport(
    moments: Moments, old: NDArray[np.float64], new: NDArray[np.float64], ridge: float = 0.3
) -> Moments:
    """Return moments of features as they would be in new features, by rows (n, k) known in both.

    `ridge` pulls the map towards the identity, relative to the mean of the diagonal of the old
    features' scatter.
    """
    centre, moved = old.mean(0), new.mean(0)
    X = old - centre
    change = new - moved - X
    gram = X.T @ X
    gram.flat[:: len(gram) + 1] += ridge * gram.diagonal().mean() + 1e-12
    B = np.linalg.solve(gram, X.T @ change)
    A = np.eye(len(B)) + B
    rest = change - X @ B
    scatter = A.T @ moments.scatter @ A + moments.weight / len(rest) * (rest.T @ rest)
    return replace(
        moments,
        mean=(moments.mean - centre) @ A + moved,
        scatter=((scatter + scatter.T) / 2).astype(moments.scatter.dtype),
        cross=(A.T @ moments.cross).astype(moments.cross.dtype),
    )


class Product(Discriminant):
    """The product of the net's softmax and the linear discriminant of remembered rows.

    A product of experts (Hinton 2002): probabilities are multiplied, so outputs z and scores d
    of the discriminant are added, ``z + sharpness d``. A discriminant of few rows is overconfident;
    the sharpness maximizes the likelihood of rows of the buffer that it was not fitted on, in five
    folds (the temperature of Guo et al. 2017). With many rows of a class the discriminant decides,
    with few the net.
    """

    answered_by = f"the product of the net's softmax and {Discriminant.answered_by}"

    def learn(self, model: Model, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
        super().learn(model, hidden, outputs, labels)
        unit = functional.normalize(hidden)
        fold = _rank_in_class(labels) % FOLDS
        scores, targets = [], []
        for left_out in range(int(fold.max()) + 1):
            rest, tested = fold != left_out, fold == left_out
            present = torch.bincount(labels[rest], minlength=model.out) > 0
            tested &= present[labels]  # a class with one row cannot be tested
            weight, bias = self._solve(unit[rest], labels[rest], model.out)
            scores.append((unit[tested] @ weight.T + bias).masked_fill(~present, -torch.inf))
            targets.append(labels[tested])
        self.sharpness = likeliest_sharpness(torch.cat(scores), torch.cat(targets))

    def scores(self, hidden: Tensor, outputs: Tensor) -> Tensor:
        return outputs + self.sharpness * super().scores(hidden, outputs)


class Ensemble(Product):
    """The product of a net that replays and a discriminant of frozen features.

    The discriminant is that of ``recipe("analytic")``: its features are a dictionary of patches
    learned from the images of the first task (of vectors, random features), and it is solved from
    the moments of all rows seen. The two err on different rows. Its probabilities are multiplied
    by those of `Product`, raised to the power `net_weight`.

    Parameters
    ----------
    shrinkage, head_layers :
        As of `Product`.
    centres, layers : int
        Of the dictionary of patches, see `olss.learn.features.Patches`.
    net_weight : float
        The power of the net's probabilities; 0 leaves the net out.
    """

    answered_by = f"{Product.answered_by}, times the discriminant of all rows in frozen features"

    def __init__(
        self,
        shrinkage: float = 0.1,
        head_layers: str = "last",
        centres: int = 200,
        layers: int = 1,
        net_weight: float = 0.7,
    ) -> None:
        super().__init__(shrinkage, head_layers)
        self.settings = {"centres": centres, "layers": layers}
        make_features("auto", (32, 32), self.settings)  # says what is wrong with them
        self.net_weight = checks.number("net_weight", net_weight, minimum=0)
        self.start()

    def start(self) -> None:
        self.moments: Moments | None = None
        self._map_state: dict[str, Tensor] = {}

    def end_task(self, model: Model, current: Batch, held: Batch | None) -> None:
        """Add the rows of the task to the moments of frozen features, fixed by the first."""
        features = self._make_map(model)
        if self.moments is None:
            features.fit(current.X.float(), model.seeds.number("features"))
            self._map_state = features.state
        for X, y in zip(*(torch.split(v, BLOCK) for v in (current.X, current.y)), strict=True):
            rows = _view_mean(model, X, features).cpu().numpy()
            if self.moments is None:
                self.moments = Moments.empty(rows.shape[1], model.out, np.float32)
            self.moments = self.moments.update(rows, one_hot(y.cpu().numpy(), model.out))

    def _make_map(self, model: Model) -> FeatureMap:
        """Return the feature map, with what it has learned if it was fitted."""
        assert model.shape is not None
        precision = model.training.precision
        features = make_features("auto", model.shape, self.settings, precision)
        if self._map_state:
            features.state = self._map_state
        return features

    def fit(self, model: Model, held: Batch | None) -> None:
        """Fit both discriminants."""
        super().fit(model, held)
        if self.moments is not None:
            ridge = RIDGE * float(self.moments.scatter.diagonal().mean())
            found = fit_discriminant(self.moments, ridge=ridge)
            self.frozen = [model.tensor(values) for values in (found.coef, found.intercept)]

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        net = super().__call__(model, X, task)
        if self.moments is None:
            return net
        (coef, intercept), features = self.frozen, self._make_map(model)
        blocks = [
            _view_mean(model, rows, features).to(coef) @ coef for rows in torch.split(X, BLOCK)
        ]
        frozen = torch.cat(blocks) + intercept
        return frozen.log_softmax(1) + self.net_weight * net.to(frozen).log_softmax(1)

    @property
    def state(self) -> dict[str, Tensor]:
        """The moments, and what the feature map learned."""
        arrays = {} if self.moments is None else self.moments.to_arrays()
        state = {f"moments.{name}": torch.from_numpy(values) for name, values in arrays.items()}
        return state | {f"map.{name}": value for name, value in self._map_state.items()}

    @state.setter
    def state(self, values: dict[str, Tensor]) -> None:
        arrays = {k: v.cpu().numpy() for k, v in strip_prefix("moments.", values).items()}
        self.moments = Moments.from_arrays(arrays) if arrays else None
        self._map_state = strip_prefix("map.", values)


def _view_mean(model: Model, X: Tensor, features: FeatureMap) -> Tensor:
    """Return the features of rows, averaged over their views."""
    return _mean(features(view.float()) for view in model.views(X))


def nearest_mean(features: Tensor, remembered: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return minus the squared distance to each class's mean, (n, classes); -inf without rows.

    Features are scaled to length one, and so are the means (Rebuffi et al. 2017, algorithm 1).
    """
    unit = functional.normalize
    sums = remembered.new_zeros((classes, remembered.shape[1]))
    sums.index_add_(0, labels, unit(remembered))
    distances = -torch.cdist(unit(features), unit(sums)).square()
    empty = torch.bincount(labels, minlength=classes) == 0
    return distances.masked_fill(empty, -torch.inf)


def likeliest_sharpness(scores: Tensor, labels: Tensor) -> float:
    """Return the factor of scores (n, c), at least 0, that makes labels likeliest; 0 if none.

    ``argmin_s sum_i -log softmax(s d_i)_{y_i}``, each class counting alike: convex in s.
    """
    if not len(labels):
        return 0.0
    level = scores[scores.isfinite()].std().clamp(min=1e-12)
    rows, factor = class_weights(labels), scores.new_zeros(()).requires_grad_()
    # A class that does not compete stays at minus infinity, also times 0.
    closed, units = scores.isinf(), scores.masked_fill(scores.isinf(), 0.0) / level

    def loss() -> Tensor:
        sharp = (factor * units).masked_fill(closed, -torch.inf)
        return (rows * functional.cross_entropy(sharp, labels, reduction="none")).sum()

    minimize(loss, [factor])
    return max(0.0, float(factor.detach() / level))


def _rank_in_class(labels: Tensor) -> Tensor:
    """Return how many earlier rows have the label of each row, (n,)."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels), device=labels.device) - first[labels[order]]
    return rank


HEADS: dict[str, Callable[..., Head]] = {
    **dict.fromkeys(COMPETING, Head),
    "nearest-mean": NearestMean,
    "discriminant": Discriminant,
    "product": Product,
    "transported": Transported,
    "ensemble": Ensemble,
}
