"""What classifier and regressor share: a sketch, and an estimator refitted on what it holds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from olss.adapters.sklearn_rows import (
    Array,
    Batch,
    checked_rows,
    takes_gaps,
    takes_sparse,
    to_fit,
    weights_for,
)
from olss.errors import InputError
from olss.memory.policies import Policy
from olss.memory.sketch import Sketch

__all__ = ["Continual", "estimator_has", "new_sketch"]

T = TypeVar("T")

# What `fit` forgets; whatever the rows themselves say is said anew by the first of them.
LEARNED = ("sketch_", "estimator_", "classes_", "_fitted_labels", "_target", "_open", "_weighted")


class Continual(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that remembers rows in a sketch and is refitted on them."""

    _kind: str  # of estimator
    sketch_: Sketch

    def __init__(
        self,
        estimator: Any,
        *,
        size: int | Literal["task"] = 1_000,
        policy: str | Policy = "weighted",
        scores: str | float = "auto",
        use_weights: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.size = size
        self.policy = policy
        self.scores = scores
        self.use_weights = use_weights
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        task: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Forget everything and learn these rows. If it raises, nothing has changed.

        Parameters
        ----------
        X, y, sample_weight, task, extra :
            As for `partial_fit`.
        """

        def learn(after: Self) -> None:
            after._forget()
            after._learn(X, y, sample_weight, task, extra)

        self._change(learn)
        return self

    def predict(self, X: Any) -> Array:
        """Predict by the estimator as refitted last."""
        predictions: Array = self._fitted().predict(checked_rows(self, X))
        return predictions

    def remove(self, index: Any = None, *, where: Any = None) -> int:
        """Forget rows for good, and refit on those that stay. If it raises, nothing has changed.

        The estimator that knew the rows is let go of. If no row stays there is none, until new
        rows come.

        Parameters
        ----------
        index : int or array of int, optional
            Positions in the stream, as in ``sketch_.index``.
        where : mapping of str to value, or boolean array, optional
            Instead: a column (of the frame, in `extra`, or "task") and the value, or the list of
            values, by which rows go. See `Sketch.remove`.

        Returns
        -------
        int
            Rows removed.
        """
        check_is_fitted(self, "sketch_")
        before = self.sketch_

        def without(after: Self) -> int:
            after.sketch_ = before.copy()
            removed = after.sketch_.remove(index, where=where)
            if removed:
                after._refit()
            return removed

        removed = self._change(without)
        before.remove(index, where=where)  # arrays taken from it show zeros, too
        return removed

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, task: Any, extra: Mapping[str, Any] | None
    ) -> None:
        raise NotImplementedError

    def _change(self, change: Callable[[Self], T]) -> T:
        """Have a copy changed, and be it in one step: what raises has changed nothing."""
        after = copy.copy(self)
        result = change(after)
        self.__dict__ = after.__dict__
        return result

    def _forget(self) -> None:
        for name in LEARNED:
            self.__dict__.pop(name, None)

    def _take_in(self, batch: Batch) -> None:
        """Update the sketch and refit."""
        self._check_kind()
        sketch = copy.copy(self.sketch_) if hasattr(self, "sketch_") else new_sketch(self)
        sketch.size = self.size
        batch.into(sketch)
        self._weighted = batch.weight is not None or getattr(self, "_weighted", False)
        self.sketch_ = sketch
        self._refit()

    def _refit(self) -> None:
        """Fit a fresh copy of the estimator on what the sketch holds."""
        self.__dict__.pop("estimator_", None)
        if len(self.sketch_):
            self.estimator_ = self._refitted(*to_fit(self.sketch_))

    def _refitted(self, X: Any, y: Array, weight: Array) -> Any:
        estimator = clone(self.estimator)
        if not (self.use_weights or self._weighted):
            return estimator.fit(X, y)
        return estimator.fit(X, y, **weights_for(estimator, weight))

    def _check_kind(self) -> None:
        found = get_tags(self.estimator).estimator_type
        if found not in (None, self._kind):
            remedy = (
                f"; use Continual{found.title()}" if found in ("classifier", "regressor") else ""
            )
            raise InputError(
                f"estimator must be a {self._kind}, found {type(self.estimator).__name__}, a "
                f"{found.replace('_', ' ')}{remedy}."
            )

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = takes_sparse(self.estimator)
        tags.input_tags.allow_nan = takes_gaps(self.estimator)
        tags.input_tags.positive_only = inner.input_tags.positive_only
        tags.non_deterministic = inner.non_deterministic
        return tags


def new_sketch(model: Any) -> Sketch:
    """Return an empty sketch by the settings of an estimator."""
    seed = check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
    return Sketch(model.size, model.policy, scores=model.scores, seed=seed)


def estimator_has(method: str) -> Callable[[Any], bool]:
    """Return a function that says whether the estimator inside, fitted or not, has a method."""

    def has(self: Any) -> bool:
        # Taken from the estimator itself, so that the error is the one it raises.
        getattr(self.estimator, method)
        return True

    return has
