"""How a learner answers, and what heads fitted on remembered rows have in common.

A net trained on few old and many new rows answers with new classes too often; its features do not
know of it. A head fitted on remembered rows, each class counting alike, answers from the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from olss.learn.batch import Examples
from olss.learn.heads import COMPETING
from olss.learn.model import Model
from olss.util.checks import known_name

__all__ = ["Answer", "Fitted", "class_weights", "minimise"]


class Answer:
    """The net's own outputs answer: the base of other answers.

    Parameters
    ----------
    head : str
        Which classes compete: "seen", all classes seen so far; "task", those of a row's own
        task, which must then be known; "all", every output from the start.
    """

    needs_memory = False

    def __init__(self, head: str = "seen") -> None:
        self.compete = known_name("head", head, COMPETING)
        self.words = COMPETING[head]

    def fit(self, model: Model, held: Examples | None) -> None:
        """Get ready to answer for the net as it is now, with these rows remembered."""

    def __call__(self, model: Model, X: Tensor, task: int | None) -> Tensor:
        """Return a score for each output, (n, outputs); minus infinity where it may not answer."""
        return model.head.mask(_mean(map(model.outputs, model.views(X))), task)


class Fitted(Answer):
    """Fitted on remembered rows whenever a task was learned; all classes seen compete.

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
