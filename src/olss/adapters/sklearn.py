"""Any scikit-learn estimator, learning a stream from a memory of constant size."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError, MissingExtraError
from olss.memory.policies import Policy
from olss.memory.sketch import Sketch

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        RegressorMixin,
        clone,
    )
    from sklearn.dummy import DummyClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.utils import _safe_indexing, check_random_state, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.sklearn") from error

__all__ = ["ContinualClassifier", "ContinualRegressor", "LeverageSampler"]

Array = NDArray[Any]

FLOATS = (np.float64, np.float32)  # what scikit-learn is asked to turn other numbers into


def _estimator_has(method: str) -> Callable[[Any], bool]:
    """Say whether the estimator, fitted or not, has a method."""

    def has(self: Any) -> bool:
        # Taken from the estimator itself, so that the error is the one it raises.
        getattr(self.estimator, method)
        return True

    return has


class _Continual(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: the sketch, the refitting, the checks."""

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

    def predict(self, X: Any) -> Array:
        """Predict by the estimator as refitted last."""
        predictions: Array = self._fitted().predict(self._checked(X))
        return predictions

    def _fitted(self) -> Any:
        check_is_fitted(self)
        return self.estimator_

    def _checked(self, X: Any) -> Any:
        """Check rows against those seen, and give them as the estimator was fitted to have them."""
        rows = validate_data(self, X, reset=False, dtype=FLOATS)
        return self._framed(rows, self._is_frame)

    def _framed(self, rows: Array, is_frame: bool) -> Any:
        """Give rows back their column names, so that a pipeline can choose columns by name."""
        if not is_frame:
            return rows
        import pandas as pd

        return pd.DataFrame(rows, columns=self.feature_names_in_)

    def _take_in(self, X: Any, y: Array, rows: Array, task: Any) -> dict[str, Any]:
        """Update a copy of the sketch and fit on it; return the attributes to set if all went well.

        The estimator's own errors come after the sketch has changed, hence the copy: a call that
        raises leaves things as they were.
        """
        started = hasattr(self, "sketch_")
        sketch = self.sketch_.copy() if started else self._new_sketch()
        named = hasattr(self, "feature_names_in_") and hasattr(X, "iloc")
        is_frame = self._is_frame if started else named
        rows = rows.astype(sketch.X.dtype, copy=False) if started else rows
        sketch.size = self.size
        sketch.update(rows, y, task)
        target = sketch.y
        assert target is not None
        estimator = self._refitted(self._framed(sketch.X, is_frame), target, sketch.weight)
        return {"sketch_": sketch, "estimator_": estimator, "_is_frame": is_frame}

    def _new_sketch(self) -> Sketch:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return Sketch(self.size, self.policy, scores=self.scores, seed=seed)

    def _refitted(self, X: Any, y: Array, weight: Array) -> Any:
        estimator = clone(self.estimator)
        return estimator.fit(X, y, **(_weights_for(estimator, weight) if self.use_weights else {}))

    def _forget(self) -> Self:
        for name in ("sketch_", "estimator_", "classes_", "_is_frame", "_is_open"):
            self.__dict__.pop(name, None)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        tags.input_tags.positive_only = inner.input_tags.positive_only
        tags.non_deterministic = inner.non_deterministic
        return tags


class ContinualClassifier(ClassifierMixin, _Continual):  # type: ignore[misc]
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
        Whether to fit with sample weights: how many rows each row remembered stands for. The
        last step of a pipeline gets them.
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
    Rows are kept as float64, or float32 where they come so. Sparse rows and rows with NaN are
    refused, since leverage scores of the latter do not exist. `policy`, `scores` and `random_state`
    are looked at when a sketch begins: by the first `partial_fit`, and by `fit`. `size` and
    `estimator` may be set between two calls.

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

    _is_open = True  # whether classes are found as they come

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn these rows.

        Parameters
        ----------
        X : array or data frame (n, features)
        y : array (n,)
            Labels: numbers or text.
        """
        return self._forget().partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, task: Any = None) -> Self:
        """Learn these rows too. If it raises, nothing has changed.

        Parameters
        ----------
        X : array or data frame (n, features)
        y : array (n,)
            Labels: numbers or text.
        classes : array, optional
            All labels there will be; others are refused then. Without it they are found as
            they come. It is needed at the first call only.
        task : int or str, optional
            The task the rows belong to, which policies such as "balanced" go by; "auto" finds
            it. Not given: the last one.
        """
        rows, y = validate_data(self, X, y, reset=not hasattr(self, "sketch_"), dtype=FLOATS)
        check_classification_targets(y)
        y = _labels(column_or_1d(y, warn=True))
        known = self._classes_with(y, None if classes is None else _labels(np.asarray(classes)))
        changes = self._take_in(X, y, rows, task)
        if not hasattr(self, "classes_"):
            self._is_open = classes is None
        self.__dict__.update(changes, classes_=known)
        return self

    def predict(self, X: Any) -> Array:
        """Predict labels."""
        answers = np.asarray(super().predict(X)).astype(np.intp)
        labels: Array = self._held()[answers]
        return labels

    @available_if(_estimator_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Give the probability of each of `classes_`; 0 for one the sketch holds no row of."""
        return self._spread(self._fitted().predict_proba(self._checked(X)), 0.0)

    @available_if(_estimator_has("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Give the logarithm of `predict_proba`."""
        return self._spread(self._fitted().predict_log_proba(self._checked(X)), -np.inf)

    @available_if(_estimator_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Give the estimator's decision for each of `classes_`, or one number a row if two."""
        fitted, rows = self._fitted(), self._checked(X)
        if len(self._held()) == 1:
            return self._spread(fitted.predict_proba(rows), np.finfo(np.float64).min)
        decision = np.asarray(fitted.decision_function(rows))
        if len(self._held()) == len(self.classes_):
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
        if given is None and self._is_open:
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

    def _held(self) -> Array:
        """Return the classes the estimator was fitted on, sorted."""
        held: Array = np.unique(self.sketch_.y)
        return held

    def _spread(self, columns: Any, filling: float) -> Array:
        """Put a column for each class held into its place among `classes_`."""
        columns = np.asarray(columns)
        wide = np.full((len(columns), len(self.classes_)), filling, columns.dtype)
        wide[:, np.searchsorted(self.classes_, self._held())] = columns
        return wide

    def _refitted(self, X: Any, y: Array, weight: Array) -> Any:
        held, code = np.unique(y, return_inverse=True)
        if len(held) == 1:
            return DummyClassifier().fit(X, code)
        return super()._refitted(X, code, weight)


class ContinualRegressor(RegressorMixin, _Continual):  # type: ignore[misc]
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
        Whether to fit with sample weights: how many rows each row remembered stands for.
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

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn these rows.

        Parameters
        ----------
        X : array or data frame (n, features)
        y : array (n,) or (n, outputs)
        """
        return self._forget().partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, *, task: Any = None) -> Self:
        """Learn these rows too. If it raises, nothing has changed.

        Parameters
        ----------
        X : array or data frame (n, features)
        y : array (n,) or (n, outputs)
        task : int or str, optional
            The task the rows belong to; "auto" finds it. Not given: the last one.
        """
        several = get_tags(self.estimator).target_tags.multi_output
        rows, y = validate_data(
            self,
            X,
            y,
            reset=not hasattr(self, "sketch_"),
            dtype=FLOATS,
            y_numeric=True,
            multi_output=several,
        )
        self.__dict__.update(self._take_in(X, np.asarray(y, dtype=np.float64), rows, task))
        return self

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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose rows, without returning them."""
        rows = validate_data(self, X, dtype=FLOATS)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        sketch = Sketch(self.size, self.policy, scores=self.scores, seed=seed)
        sketch.update(rows, None if y is None else _targets(y))
        order = np.argsort(sketch.index)
        self.sample_indices_ = sketch.index[order]
        self.weights_ = sketch.weight[order]
        return self

    def fit_resample(self, X: Any, y: Any = None) -> Any:
        """Choose rows and return them as they came: (X, y), or X alone if there is no y."""
        chosen = self.fit(X, y).sample_indices_
        rows = _safe_indexing(X, chosen)
        return rows if y is None else (rows, _safe_indexing(y, chosen))


def _labels(y: Array) -> Array:
    """Give labels one dtype for all batches: whole numbers as int64, objects as what they are."""
    if y.dtype.kind == "O":
        y = np.array(y.tolist())
    if y.dtype.kind in "iuf":
        return y.astype(np.int64)
    if y.dtype.kind not in "Ub":
        raise DataError(f"y must hold numbers or text as labels, found dtype {y.dtype}.")
    return y


def _targets(y: Any) -> Array:
    """Give labels as labels, for policies that go by class, and other targets as numbers."""
    if type_of_target(y, input_name="y", raise_unknown=True) in ("binary", "multiclass"):
        return _labels(column_or_1d(y))
    return np.asarray(y, dtype=np.float64)


def _weights_for(estimator: Any, weight: Array) -> dict[str, Array]:
    """Return the argument of `fit` that sample weights go into."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return {f"{name}__{key}": values for key, values in _weights_for(last, weight).items()}
    parameters = inspect.signature(estimator.fit).parameters.values()
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    if not takes_any and all(p.name != "sample_weight" for p in parameters):
        raise InputError(
            "use_weights=True needs an estimator whose fit takes sample_weight, found "
            f"{type(estimator).__name__}; choose another or use_weights=False."
        )
    return {"sample_weight": weight}
