"""Any scikit-learn estimator, learning a stream from a memory of constant size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from olss.errors import InputError, MissingExtraError
from olss.memory.policies import Policy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.dummy import DummyClassifier
    from sklearn.utils import _safe_indexing, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _num_samples, column_or_1d

    from olss.adapters.continual import Continual, estimator_has, new_sketch
    from olss.adapters.sklearn_rows import (
        Array,
        Batch,
        checked_pair,
        checked_rows,
        checked_weight,
        labels,
        target_name,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.sklearn") from error

__all__ = ["ContinualClassifier", "ContinualRegressor", "LeverageSampler"]


class ContinualClassifier(ClassifierMixin, Continual):  # type: ignore[misc]
    """A classifier that learns a stream of batches from a memory of constant size.

    `partial_fit` updates a `Sketch` with the batch and refits a fresh copy of the estimator on
    all the sketch holds. So an estimator without `partial_fit` of its own, such as a forest,
    boosting, an SVM or a pipeline, learns on, and does not forget.

    Parameters
    ----------
    estimator : classifier
        Any. It is cloned, never changed. It is given classes as whole numbers 0, 1, ..., as
        those in scikit-learn that vote and stack do.
    size : int or "task"
        Rows to remember, the same as for `Sketch`.
    policy : str or callable
        Which rows stay: "weighted", "balanced", "reservoir", "paper", "recent" or your own.
    scores : str or float
        The leverage scores used, the same as for `Sketch`.
    use_weights : bool
        Whether to fit with sample weights: how many rows each row remembered stands for. All
        steps of a pipeline that take them get them. Rows that come with a `sample_weight` are
        fitted with weights in any case.
    random_state : int, RandomState or None
        Of the sketch. The estimator has its own.

    Attributes
    ----------
    estimator_ : classifier
        As fitted last. While the sketch holds one class, a stand-in that answers it.
    sketch_ : Sketch
        What is remembered; `y` holds the labels.
    classes_ : array
        Those given to the first `partial_fit`, or else all seen so far.
    n_features_in_, feature_names_in_ :
        As everywhere in scikit-learn.

    Notes
    -----
    Frames are handed through as they are, text, dates, categories and gaps included: what the
    estimator is fitted on is ``sketch_.X``, a frame of the kind that came in. Later frames may have
    their columns in another order. What of them is scored is said by `olss.tables.encoder`.

    Arrays are kept as float64, or float32 where they come so; sparse rows as sparse rows. Sparse
    arrays, and such with NaN, are taken if the estimator takes them.

    `policy`, `scores` and `random_state` are looked at when a sketch begins: by the first
    `partial_fit`, and by `fit`. `size` and `estimator` may be set between two calls.

    Examples
    --------
    Digits come class by class; a forest, which has no `partial_fit`, knows all in the end.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> model = ContinualClassifier(forest, size=300, policy="balanced", random_state=0)
    >>> for digit in range(10):
    ...     _ = model.partial_fit(X[:1500][y[:1500] == digit], y[:1500][y[:1500] == digit])
    >>> len(model.sketch_), len(model.classes_), model.score(X[1500:], y[1500:]) > 0.7
    (300, 10, True)
    """

    _kind = "classifier"

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        task: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Learn these rows too. If it raises, nothing has changed.

        Parameters
        ----------
        X : array, SciPy sparse rows, or pandas or polars frame (n, features)
        y : array or series (n,)
            Labels: numbers or text.
        classes : array, optional
            All labels there will be; others are refused then. Without it they are found as
            they come. It is needed at the first call only.
        sample_weight : array (n,), optional
            What each row counts for.
        task : int, str or array (n,) of them, optional
            The task the rows belong to, which policies such as "balanced" go by; "auto" finds
            it. Not given: the last one.
        extra : mapping of str to array (n,), optional
            Columns that ride along and are not learned: identifiers, to `remove` rows by.
        """
        self._change(lambda after: after._learn(X, y, sample_weight, task, extra, classes))
        return self

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        task: Any,
        extra: Mapping[str, Any] | None,
        classes: Any = None,
    ) -> None:
        first = not hasattr(self, "sketch_")
        rows, target = checked_pair(self, X, y, first=first)
        if first:
            self._target, self._open = target_name(rows, y), classes is None
        check_classification_targets(target)
        y = labels(column_or_1d(target, warn=True))
        batch = Batch(rows, y, checked_weight(sample_weight, y), task, extra, self._target)
        batch = batch.counted()
        assert batch.y is not None
        given = None if classes is None else labels(np.asarray(classes))
        self.classes_ = self._classes_with(batch.y, given)
        self._take_in(batch)

    def predict(self, X: Any) -> Array:
        """Predict labels."""
        answers = np.asarray(super().predict(X)).astype(np.intp)
        found: Array = self._fitted_labels[answers]
        return found

    @available_if(estimator_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Give the probability of each of `classes_`; 0 for one the sketch holds no row of."""
        return self._spread(self._fitted().predict_proba(checked_rows(self, X)), 0.0)

    @available_if(estimator_has("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Give the logarithm of `predict_proba`."""
        return self._spread(self._fitted().predict_log_proba(checked_rows(self, X)), -np.inf)

    @available_if(estimator_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Give the estimator's decision for each of `classes_`, or one number a row if two."""
        fitted, rows = self._fitted(), checked_rows(self, X)
        if len(self._fitted_labels) == 1:
            return self._spread(fitted.predict_proba(rows), np.finfo(np.float64).min)
        decision = np.asarray(fitted.decision_function(rows))
        if len(self._fitted_labels) == len(self.classes_):
            return decision
        if decision.ndim == 1:
            decision = np.column_stack([-decision, decision])
        return self._spread(decision, np.finfo(decision.dtype).min)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).classifier_tags
        if inner is not None:
            tags.classifier_tags.multi_class = inner.multi_class
            tags.classifier_tags.poor_score = inner.poor_score
        return tags

    def _classes_with(self, y: Array, given: Array | None) -> Array:
        """Return all classes, those of `y` included, or raise if they do not fit."""
        before: Array | None = getattr(self, "classes_", None)
        if given is None and self._open:
            return np.unique(y if before is None else np.concatenate([before, y]))
        known = before if before is not None else np.unique(np.asarray(given))
        if given is not None and not np.array_equal(np.unique(given), known):
            raise InputError(
                f"classes must be those of the first call, {known}, found {np.unique(given)}."
            )
        unknown = np.setdiff1d(y, known)
        if len(unknown):
            raise InputError(f"y must hold only the classes given, {known}, found {unknown}.")
        return known

    def _spread(self, columns: Any, filling: float) -> Array:
        """Put a column for each class held into its place among `classes_`."""
        columns = np.asarray(columns)
        wide = np.full((len(columns), len(self.classes_)), filling, columns.dtype)
        wide[:, np.searchsorted(self.classes_, self._fitted_labels)] = columns
        return wide

    def _refitted(self, X: Any, y: Array, weight: Array) -> Any:
        # What is predicted are these, whatever becomes of the sketch.
        self._fitted_labels, code = np.unique(y, return_inverse=True)
        if len(self._fitted_labels) == 1:
            return DummyClassifier().fit(X, code)
        return super()._refitted(X, code, weight)


class ContinualRegressor(RegressorMixin, Continual):  # type: ignore[misc]
    """A regressor that learns a stream of batches from a memory of constant size.

    `partial_fit` updates a `Sketch` with the batch and refits a fresh copy of the estimator on
    all the sketch holds.

    Parameters
    ----------
    estimator : regressor
        Any. It is cloned, never changed.
    size : int or "task"
        Rows to remember, the same as for `Sketch`.
    policy : str or callable
        Which rows stay: "weighted", "balanced", "reservoir", "paper", "recent" or your own.
    scores : str or float
        The leverage scores used, the same as for `Sketch`.
    use_weights : bool
        Whether to fit with sample weights, as for `ContinualClassifier`.
    random_state : int, RandomState or None
        Of the sketch. The estimator has its own.

    Attributes
    ----------
    estimator_ : regressor
        As fitted last.
    sketch_ : Sketch
        What is remembered.
    n_features_in_, feature_names_in_ :
        As everywhere in scikit-learn.

    Examples
    --------
    The input drifts; the model remembers where it has been.

    >>> from sklearn.svm import SVR
    >>> rng = np.random.default_rng(0)
    >>> model = ContinualRegressor(SVR(C=10.0), size=200, random_state=0)
    >>> for place in range(5):
    ...     X = rng.uniform(place, place + 1, size=(1_000, 1))
    ...     _ = model.partial_fit(X, np.sin(X[:, 0]), task=place)
    >>> X = np.linspace(0, 5, 100)[:, None]
    >>> float(model.score(X, np.sin(X[:, 0]))) > 0.95
    True
    """

    _kind = "regressor"

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        task: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Learn these rows too. If it raises, nothing has changed.

        Parameters
        ----------
        X : array, SciPy sparse rows, or pandas or polars frame (n, features)
        y : array or series (n,), or array (n, outputs)
        sample_weight : array (n,), optional
            What each row counts for.
        task : int, str or array (n,) of them, optional
            The task the rows belong to; "auto" finds it. Not given: the last one.
        extra : mapping of str to array (n,), optional
            Columns that ride along and are not learned: identifiers, to `remove` rows by.
        """
        self._change(lambda after: after._learn(X, y, sample_weight, task, extra))
        return self

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, task: Any, extra: Mapping[str, Any] | None
    ) -> None:
        first = not hasattr(self, "sketch_")
        several = get_tags(self.estimator).target_tags.multi_output
        rows, target = checked_pair(self, X, y, first=first, numeric=True, several=several)
        if first:
            self._target = target_name(rows, y)
        y = np.asarray(target, dtype=np.float64)
        weight = checked_weight(sample_weight, y)
        self._take_in(Batch(rows, y, weight, task, extra, self._target).counted())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.target_tags.multi_output = inner.target_tags.multi_output
        if inner.regressor_tags is not None:
            tags.regressor_tags.poor_score = inner.regressor_tags.poor_score
        return tags


class LeverageSampler(BaseEstimator):  # type: ignore[misc]
    """Choose rows of a data set by leverage, in the manner of imbalanced-learn's samplers.

    Parameters
    ----------
    size : int
        Rows to choose; all are kept if there are no more.
    policy : str or callable
        Which rows to choose: "weighted", "balanced", "reservoir", "paper" or your own.
    scores : str or float
        The leverage scores used, the same as for `Sketch`.
    random_state : int, RandomState or None
        Of the draw.

    Attributes
    ----------
    sample_indices_ : array (size,)
        Which rows were chosen, ascending.
    weights_ : array (size,)
        How many rows each stands for.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> sampler = LeverageSampler(200, policy="balanced", random_state=0)
    >>> X_few, y_few = sampler.fit_resample(X, y)
    >>> X_few.shape, np.bincount(y_few)
    ((200, 64), array([20, 20, 20, 20, 20, 20, 20, 20, 20, 20]))
    """

    def __init__(
        self,
        size: int = 1_000,
        *,
        policy: str | Policy = "weighted",
        scores: str | float = "auto",
        random_state: Any = None,
    ) -> None:
        self.size = size
        self.policy = policy
        self.scores = scores
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose rows, without returning them.

        Parameters
        ----------
        X : array, SciPy sparse rows, or pandas or polars frame (n, features)
        y : array or series (n,) or (n, outputs), optional
            Labels, for policies that go by class, or other targets.
        sample_weight : array (n,), optional
            What each row counts for.
        """
        rows = checked_rows(self, X, first=True)
        # Where each row is, as those that count for nothing are left out.
        place = np.arange(_num_samples(rows))
        weight = checked_weight(sample_weight, place)
        target = None if y is None else _targets(y)
        batch = Batch(rows, target, weight, extra={"place": place}, name=target_name(X, y))
        sketch = new_sketch(self)
        batch.counted().into(sketch)
        chosen = sketch.extra["place"]
        order = np.argsort(chosen)
        self.sample_indices_ = chosen[order]
        self.weights_ = sketch.weight[order]
        return self

    def fit_resample(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Choose rows and return them as they came: (X, y), or X alone if there is no y."""
        chosen = self.fit(X, y, sample_weight).sample_indices_
        rows = _safe_indexing(X, chosen)
        return rows if y is None else (rows, _safe_indexing(y, chosen))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def _targets(y: Any) -> Array:
    """Return labels as labels, for policies that go by class, and other targets as numbers."""
    if type_of_target(y, input_name="y", raise_unknown=True) in ("binary", "multiclass"):
        return labels(column_or_1d(y))
    return np.asarray(y, dtype=np.float64)
