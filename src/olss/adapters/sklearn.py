"""scikit-learn estimators that learn a stream from a sketch of constant size."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import numpy as np

from olss.errors import InputError, MissingExtraError
from olss.memory.policies import Policy
from olss.sketch import Sketch, apply_priors, prior_ratio, state_of
from olss.tables.class_labels import classify_target

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        RegressorMixin,
        clone,
    )
    from sklearn.dummy import DummyClassifier
    from sklearn.model_selection import ParameterGrid
    from sklearn.utils import _safe_indexing, check_random_state, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d

    from olss.adapters.sklearn_data import (
        Array,
        RowBatch,
        accepts_nan,
        accepts_sparse,
        check_pair,
        check_rows,
        check_weight,
        fit_arguments,
        fit_power,
        last_step,
        log_loss,
        name_target,
        raise_to_power,
        rows_of,
        rows_to_fit,
        rows_to_predict,
        to_labels,
        validation_arguments,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.sklearn") from error

__all__ = ["ContinualClassifier", "ContinualRegressor", "LeverageSampler"]

T = TypeVar("T")

# Settings that are handed to the sketch as they are.
SETTINGS = (
    "policy", "scores", "half_life", "window", "time", "columns", "exclude", "intercept",
    "new_columns", "strata", "strata_share", "min_rows", "bins", "holdout", "group",
)  # fmt: skip
# Settings of all estimators here, but for the estimator itself.
SHARED = (
    *SETTINGS, "size", "early_stopping", "param_grid", "use_weights", "random_state",
)  # fmt: skip
# Attributes that `fit` deletes; those about the columns are set again by the first rows.
LEARNED = (
    "sketch_", "estimator_", "classes_", "best_params_", "_fitted_labels", "_ratio", "_power",
    "_target", "_open", "_weighted",
)  # fmt: skip


class _Continual(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A sketch, and an estimator that is refitted on the rows it holds."""

    _kind: str  # of estimator
    sketch_: Sketch

    def __init__(
        self,
        estimator: Any,
        *,
        size: int | Literal["task"] = 1_000,
        policy: str | Policy = "weighted",
        scores: str | float = "auto",
        half_life: Any = None,
        window: Any = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        intercept: bool = False,
        new_columns: str = "error",
        strata: str | Sequence[str] | None = None,
        strata_share: float = 0.5,
        min_rows: int = 0,
        bins: Any = None,
        holdout: float | None = None,
        group: str | None = None,
        early_stopping: bool = False,
        param_grid: Any = None,
        use_weights: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.size = size
        self.policy = policy
        self.scores = scores
        self.half_life = half_life
        self.window = window
        self.time = time
        self.columns = columns
        self.exclude = exclude
        self.intercept = intercept
        self.new_columns = new_columns
        self.strata = strata
        self.strata_share = strata_share
        self.min_rows = min_rows
        self.bins = bins
        self.holdout = holdout
        self.group = group
        self.early_stopping = early_stopping
        self.param_grid = param_grid
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
        """Forget everything and learn these rows. A failed call leaves the model unchanged.

        Parameters
        ----------
        X, y, sample_weight, task, extra :
            As for `partial_fit`.
        """

        def learn(after: Self) -> None:
            for name in LEARNED:
                after.__dict__.pop(name, None)
            after._learn(X, y, sample_weight, task, extra)

        self._change(learn)
        return self

    def predict(self, X: Any) -> Array:
        """Predict with the estimator as last refitted."""
        predictions: Array = self._require_fitted().predict(rows_to_predict(self, X))
        return predictions

    def remove(self, index: Any = None, *, where: Any = None) -> int:
        """Forget rows for good and refit on the rest. A failed call leaves the model unchanged.

        If no row is left, there is no fitted estimator until new rows come.

        Parameters
        ----------
        index : int or array of int, optional
            Positions in the stream, as in ``sketch_.index``.
        where : mapping of str to value, or boolean array, optional
            Instead: a column (of the frame, in `extra`, or "task") and the value, or list of
            values, of the rows to remove. See `Sketch.remove`.

        Returns
        -------
        int
            Number of rows removed.
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
        before.remove(index, where=where)  # wipes the rows in its arrays, too
        return removed

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, task: Any, extra: Mapping[str, Any] | None
    ) -> None:
        raise NotImplementedError

    def _change(self, change: Callable[[Self], T]) -> T:
        """Change a copy, then take its place in one step."""
        after = copy.copy(self)
        result = change(after)
        self.__dict__ = after.__dict__
        return result

    def _update(self, batch: RowBatch) -> None:
        """Update the sketch and refit."""
        self._check_kind()
        sketch = self.sketch_.copy() if hasattr(self, "sketch_") else _new_sketch(self)
        sketch.size = self.size
        batch.update(sketch)
        self._weighted = batch.weight is not None or getattr(self, "_weighted", False)
        self.sketch_ = sketch
        self._refit()

    def _refit(self) -> None:
        """Fit a fresh clone of the estimator on the rows of the sketch, if there are any.

        With a grid of settings, that of the least loss on the hold-out.
        """
        for name in ("estimator_", "best_params_"):
            self.__dict__.pop(name, None)
        if not len(self.sketch_):
            return
        rows = rows_to_fit(self, self.sketch_)
        y, weight = np.array(self.sketch_.y), np.array(self.sketch_.weight)
        out = self._held_out()
        if self.param_grid is None:
            self.estimator_ = self._fit_clone(clone(self.estimator), rows, y, weight, out)
            return

        def fits() -> Iterator[tuple[float, dict[str, Any]]]:  # of which only the best is held
            for params in ParameterGrid(self.param_grid):
                estimator = clone(self.estimator).set_params(**params)
                self.estimator_ = self._fit_clone(estimator, rows, y, weight, out)
                self.best_params_ = params
                yield (np.inf if out is None else self._loss(*out)), dict(self.__dict__)

        self.__dict__ = min(fits(), key=lambda fit: fit[0])[1]

    def _held_out(self) -> tuple[Any, Array, Array] | None:
        """Return the rows of the hold-out, their targets and weights, if it has a use and rows."""
        wanted = {"early_stopping": self.early_stopping, "param_grid": self.param_grid is not None}
        wanted["calibrate"] = getattr(self, "calibrate", False)
        if wanted["param_grid"] and not len(ParameterGrid(self.param_grid)):
            raise InputError(f"param_grid must have settings to try, found {self.param_grid!r}.")
        for name, is_wanted in wanted.items():
            if is_wanted and self.holdout is None:
                raise InputError(f"{name} needs rows to judge by: set holdout=0.2.")
        if wanted["calibrate"] and not hasattr(self.estimator, "predict_proba"):
            name = type(self.estimator).__name__
            raise InputError(f"calibrate needs an estimator with predict_proba, found {name}.")
        if not any(wanted.values()) or not len(self.sketch_.holdout):
            return None
        out = self.sketch_.holdout
        return rows_of(out), np.array(out.y), out.weight

    def _loss(self, X: Any, y: Array, weight: Array) -> float:
        """Return the mean loss of the fitted estimator on rows held out."""
        raise NotImplementedError

    def _fit_clone(
        self,
        estimator: Any,
        X: Any,
        y: Array,
        weight: Array,
        out: tuple[Any, Array, Array] | None,
    ) -> Any:
        weighted = self.use_weights or self._weighted
        arguments = fit_arguments(estimator, weight) if weighted else {}
        if self.early_stopping and out is not None:
            arguments |= validation_arguments(estimator, *out)
        return estimator.fit(X, y, **arguments)

    def _check_kind(self) -> None:
        found = get_tags(self.estimator).estimator_type
        if found not in (None, self._kind):
            known = found in ("classifier", "regressor")
            remedy = f"; use Continual{found.title()}" if known else ""
            raise InputError(
                f"estimator must be a {self._kind}, found {type(self.estimator).__name__}, a "
                f"{found.replace('_', ' ')}{remedy}."
            )

    def _require_fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = accepts_sparse(self.estimator)
        tags.input_tags.allow_nan = accepts_nan(self.estimator)
        tags.input_tags.positive_only = inner.input_tags.positive_only
        tags.non_deterministic = inner.non_deterministic
        return tags


def _new_sketch(model: BaseEstimator) -> Sketch:
    """Return an empty sketch with the settings of an estimator."""
    parameters = model.get_params(deep=False)
    given = {name: parameters[name] for name in SETTINGS if name in parameters}
    seed = check_random_state(parameters["random_state"]).randint(np.iinfo(np.int32).max)
    return Sketch(parameters["size"], seed=seed, **given)


def _has(method: str) -> Callable[[Any], bool]:
    """Return a function that tells whether the wrapped estimator has a method."""

    def has(self: Any) -> bool:
        # Looked up on the estimator, so that the error is the one it raises.
        getattr(self.estimator, method)
        return True

    return has


class ContinualClassifier(ClassifierMixin, _Continual):  # type: ignore[misc]
    """A classifier that learns a stream of batches from a sketch of constant size.

    `partial_fit` updates a `Sketch` with the batch and refits a fresh clone of the estimator on
    all rows of the sketch. So estimators without a `partial_fit`, such as forests, boosting, SVMs
    and pipelines, learn incrementally and do not forget.

    Parameters
    ----------
    estimator : classifier
        Cloned, never changed. It is fitted on classes encoded as 0, 1, ..., like the estimators
        inside scikit-learn's voting and stacking.
    size : int or "task"
        Rows to keep, as for `Sketch`.
    policy : str or callable
        Which rows are kept: "weighted", "balanced", "reservoir", "paper", "recent" or a custom one.
    scores : str or float
        The leverage scores, as for `Sketch`.
    half_life, window, time :
        Forget old rows gradually or altogether, as for `Sketch`: after a number of rows, or after a
        length of time, with `time` the column, of the frame or in `extra`, that holds the time.
    columns, exclude :
        Columns of frames to score, or not to score; all are kept and fitted.
    intercept : bool
        Whether rows are scored with a constant added.
    new_columns : {"error", "keep", "ignore"}
        What becomes of columns that earlier frames did not have. Kept ones are missing in earlier
        rows.
    strata, strata_share, min_rows, bins :
        Classes or groups that keep their share of the rows, as for `Sketch`: ``strata="y"``.
    holdout, group :
        A share of the rows to which no model is fitted, as for `Sketch`. The next three use it on
        request; a score by the same rows, ``sketch_.evaluate(model, "roc_auc")``, is then somewhat
        too good.
    early_stopping : bool
        Whether `fit` of the estimator gets the hold-out to stop by: as ``X_val`` or ``eval_set``,
        as HistGradientBoosting, LightGBM and XGBoost take it. Whether and how soon it stops is a
        setting of the estimator: ``early_stopping=True``, or ``early_stopping_rounds=50``.
    param_grid : dict of str to list, or list of these, optional
        Settings of the estimator to choose from at each refit, by log loss on the hold-out, or
        by errors without probabilities; as for scikit-learn's `ParameterGrid`.
    use_weights : bool
        Whether to fit with sample weights: the number of rows that each kept row stands for. All
        steps of a pipeline that take weights get them. Rows that come with a `sample_weight` are
        always fitted with weights.
    random_state : int, RandomState or None
        Of the sketch. The estimator has its own.
    correct_priors : bool
        Whether probabilities refer to the class frequencies of everything seen (decayed, if there
        is a half-life), whatever the policy and the strata kept; see `olss.correct_priors`. Then
        `predict` returns the class of the largest such probability. If False, or for estimators
        without probabilities, both are those of the wrapped estimator. Its ``class_weight`` is
        taken into account; weights of classes by other names are not.
    calibrate : bool
        Whether probabilities, after that correction, are raised to the power that has the least
        log loss on the hold-out and scaled to sum to one (temperature scaling; Guo et al. 2017).

    Attributes
    ----------
    estimator_ : classifier
        As last refitted. While the sketch holds a single class, a `DummyClassifier`.
    sketch_ : Sketch
        The rows kept; its `y` holds the labels.
    best_params_ : dict
        With `param_grid`, the settings chosen last.
    classes_ : array
        Those given to the first `partial_fit`, or else all seen so far.
    n_features_in_, feature_names_in_ :
        As everywhere in scikit-learn.

    Notes
    -----
    Frames are passed through with text, dates, categories and missing values: the estimator is
    fitted on ``sketch_.X``, a frame of the library that came in. Later frames may have their
    columns in another order. Columns that only come to `predict` are treated as the wrapped
    estimator treats them, unless ``new_columns="ignore"``, which drops them.

    Arrays are kept as float64, or float32 if they come so, and sparse rows as sparse rows. Sparse
    rows and NaN are accepted if the estimator accepts them.

    `size` and `estimator` may be changed between two calls. The other settings take effect when a
    sketch begins: at the first `partial_fit`, and at every `fit`.

    With metadata routing (``sklearn.set_config(enable_metadata_routing=True)``) `sample_weight`,
    `task` and `extra` are requested as usual, ``set_fit_request(task=True)``. Inside `estimator`,
    components that take sample weights get them unless they were told not to request them.

    Examples
    --------
    Digits arrive class by class; a forest, which has no `partial_fit`, knows all in the end.

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

    def __init__(
        self,
        estimator: Any,
        *,
        size: int | Literal["task"] = 1_000,
        policy: str | Policy = "weighted",
        scores: str | float = "auto",
        half_life: Any = None,
        window: Any = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        intercept: bool = False,
        new_columns: str = "error",
        strata: str | Sequence[str] | None = None,
        strata_share: float = 0.5,
        min_rows: int = 0,
        bins: Any = None,
        holdout: float | None = None,
        group: str | None = None,
        early_stopping: bool = False,
        param_grid: Any = None,
        use_weights: bool = False,
        random_state: Any = None,
        correct_priors: bool = True,
        calibrate: bool = False,
    ) -> None:
        shared = {name: value for name, value in locals().items() if name in SHARED}
        super().__init__(estimator, **shared)
        self.correct_priors = correct_priors
        self.calibrate = calibrate

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
        """Learn further rows. A failed call leaves the model unchanged.

        Parameters
        ----------
        X : array, SciPy sparse matrix, or pandas or polars frame (n, features)
        y : array or series (n,)
            Labels: numbers or strings.
        classes : array, optional
            All labels that may occur; needed at the first call only. Without it, labels are added
            as they come.
        sample_weight : array (n,), optional
        task : int, str or array (n,) of them, optional
            The task of the rows, which policies such as "balanced" use; "auto" detects it.
            Default: that of the last call.
        extra : mapping of str to array (n,), optional
            Columns that are kept and not learned, such as identifiers to `remove` rows by.
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
        rows, target = check_pair(self, X, y, first=first)
        if first:
            self._target, self._open = name_target(rows, y), classes is None
        check_classification_targets(target)
        y = to_labels(column_or_1d(target, warn=True))
        batch = RowBatch(rows, y, check_weight(sample_weight, y), task, extra, self._target)
        batch = batch.without_zero_weights()
        assert batch.y is not None
        given = None if classes is None else to_labels(np.asarray(classes))
        self.classes_ = self._classes_with(batch.y, given)
        self._update(batch)

    def predict(self, X: Any) -> Array:
        """Predict labels: by the largest probability, if those are corrected."""
        if self._corrects():
            return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
        codes = np.asarray(super().predict(X)).astype(np.intp)
        found: Array = self._fitted_labels[codes]
        return found

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each of `classes_`; 0 for those not in the sketch.

        With ``correct_priors`` they refer to the class frequencies of everything seen.
        """
        proba = np.asarray(self._require_fitted().predict_proba(rows_to_predict(self, X)))
        if self._corrects():
            ratio = self._ratio if self.correct_priors else np.ones(len(self._ratio))
            corrected = raise_to_power(apply_priors(proba, ratio), self._power)
            proba = corrected.astype(proba.dtype, copy=False)
        return self._spread(proba, 0.0)

    @available_if(_has("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`."""
        if self._corrects():
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(self.predict_proba(X)))
        return self._spread(
            self._require_fitted().predict_log_proba(rows_to_predict(self, X)), -np.inf
        )

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return the decision for each of `classes_`, or one number per row if there are two."""
        fitted, rows = self._require_fitted(), rows_to_predict(self, X)
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
        """Return all classes, those of `y` included, or raise if they were declared otherwise."""
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

    def _spread(self, columns: Any, fill: float) -> Array:
        """Place the column of each class in the sketch among `classes_`."""
        columns = np.asarray(columns)
        wide = np.full((len(columns), len(self.classes_)), fill, columns.dtype)
        wide[:, np.searchsorted(self.classes_, self._fitted_labels)] = columns
        return wide

    def _corrects(self) -> bool:
        """Return whether probabilities are not as the estimator gives them."""
        self._require_fitted()
        shifts = self.correct_priors and not np.allclose(self._ratio, 1, atol=1e-9)
        return hasattr(self.estimator_, "predict_proba") and bool(shifts or self._power != 1)

    def _fit_clone(
        self,
        estimator: Any,
        X: Any,
        y: Array,
        weight: Array,
        out: tuple[Any, Array, Array] | None,
    ) -> Any:
        # Predictions stay those of this fit, whatever the sketch holds later.
        self._fitted_labels, codes = np.unique(y, return_inverse=True)
        self._power = 1.0
        weighted = self.use_weights or self._weighted
        counts = np.bincount(codes, weight if weighted else None).astype(np.float64)
        self._ratio = prior_ratio(
            state_of(self.sketch_), self._fitted_labels, _fitted_shares(estimator, counts)
        )
        if len(self._fitted_labels) == 1:
            return DummyClassifier().fit(X, codes)
        stop = None
        if out is not None:
            known = np.flatnonzero(np.isin(out[1], self._fitted_labels))
            codes_out = np.searchsorted(self._fitted_labels, out[1][known])
            # Classes count as in the rows fitted, for which probabilities are right uncorrected.
            stop = _safe_indexing(out[0], known), codes_out, out[2][known] / self._ratio[codes_out]
        self.estimator_ = super()._fit_clone(estimator, X, codes, weight, stop)
        if self.calibrate and out is not None and hasattr(self.estimator_, "predict_proba"):
            self._power = fit_power(self.predict_proba(out[0]), self._places(out[1]), out[2])
        return self.estimator_

    def _places(self, y: Array) -> Array:
        """Return the place of each label among `classes_`."""
        return np.asarray(np.searchsorted(self.classes_, y))

    def _loss(self, X: Any, y: Array, weight: Array) -> float:
        if not hasattr(self.estimator_, "predict_proba"):
            return float(np.average(self.predict(X) != y, weights=weight))
        return log_loss(self.predict_proba(X), self._places(y), weight)


def _fitted_shares(estimator: Any, counts: Array) -> Array:
    """Return what each class counted in the fit, with the estimator's class weights."""
    given = getattr(last_step(estimator), "class_weight", None)
    if isinstance(given, str):  # balanced
        return np.ones(len(counts))
    if isinstance(given, Mapping):
        weights = [float(given.get(code, 1.0)) for code in range(len(counts))]
        return np.asarray(counts * np.array(weights))
    return counts


class ContinualRegressor(RegressorMixin, _Continual):  # type: ignore[misc]
    """A regressor that learns a stream of batches from a sketch of constant size.

    `partial_fit` updates a `Sketch` with the batch and refits a fresh clone of the estimator on
    all rows of the sketch.

    Parameters
    ----------
    estimator : regressor
        Cloned, never changed.
    size, policy, scores, half_life, window, time, columns, exclude, intercept, new_columns, \
strata, strata_share, min_rows, bins, holdout, group, early_stopping, param_grid, use_weights, \
random_state :
        As for `ContinualClassifier`; settings are judged by squared error.

    Attributes
    ----------
    estimator_ : regressor
        As last refitted.
    sketch_ : Sketch
        The rows kept.
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
        """Learn further rows. A failed call leaves the model unchanged.

        Parameters
        ----------
        X, sample_weight, task, extra :
            As for `ContinualClassifier`.
        y : array or series (n,), or array (n, outputs)
        """
        self._change(lambda after: after._learn(X, y, sample_weight, task, extra))
        return self

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, task: Any, extra: Mapping[str, Any] | None
    ) -> None:
        first = not hasattr(self, "sketch_")
        several = get_tags(self.estimator).target_tags.multi_output
        rows, target = check_pair(self, X, y, first=first, numeric=True, multi_output=several)
        if first:
            self._target = name_target(rows, y)
        y = np.asarray(target, dtype=np.float64)
        batch = RowBatch(rows, y, check_weight(sample_weight, y), task, extra, self._target)
        self._update(batch.without_zero_weights())

    def _loss(self, X: Any, y: Array, weight: Array) -> float:
        off = np.asarray(self.predict(X)) - y
        return float(np.average((off**2).reshape(len(off), -1).sum(axis=1), weights=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.target_tags.multi_output = inner.target_tags.multi_output
        if inner.regressor_tags is not None:
            tags.regressor_tags.poor_score = inner.regressor_tags.poor_score
        return tags


class LeverageSampler(BaseEstimator):  # type: ignore[misc]
    """Sample rows of a data set by leverage, with the interface of imbalanced-learn's samplers.

    Parameters
    ----------
    size : int
        Rows to sample; all are kept if there are fewer.
    policy : str or callable
        Which rows are kept: "weighted", "balanced", "reservoir", "paper" or a custom one.
    scores : str or float
        The leverage scores, as for `Sketch`.
    random_state : int, RandomState or None

    Attributes
    ----------
    sample_indices_ : array (size,)
        The sampled rows, ascending.
    weights_ : array (size,)
        The number of rows that each stands for.

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
        """Sample rows without returning them.

        Parameters
        ----------
        X : array, SciPy sparse matrix, or pandas or polars frame (n, features)
        y : array or series (n,) or (n, outputs), optional
            Labels, for policies that use classes, or other targets.
        sample_weight : array (n,), optional
        """
        rows = check_rows(self, X, first=True)
        position = np.arange(_num_samples(rows))  # rows of weight zero are left out
        weight = check_weight(sample_weight, position)
        target = None if y is None else _to_target(y)
        batch = RowBatch(rows, target, weight, extra={"position": position}, name=name_target(X, y))
        sketch = _new_sketch(self)
        batch.without_zero_weights().update(sketch)
        chosen = sketch.extra["position"]
        order = np.argsort(chosen)
        self.sample_indices_ = chosen[order]
        self.weights_ = sketch.weight[order]
        return self

    def fit_resample(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Sample rows and return them as they came: (X, y), or X alone if there is no y."""
        chosen = self.fit(X, y, sample_weight).sample_indices_
        rows = _safe_indexing(X, chosen)
        return rows if y is None else (rows, _safe_indexing(y, chosen))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def _to_target(y: Any) -> Array:
    """Return labels as labels, for policies that use classes, and other targets as numbers."""
    if type_of_target(y, input_name="y", raise_unknown=True) in ("binary", "multiclass"):
        labels = column_or_1d(y)
        if classify_target(labels).is_class:
            return to_labels(labels)
    return np.asarray(y, dtype=np.float64)
