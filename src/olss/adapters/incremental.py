"""Estimators for scikit-learn that learn a stream exactly: no row is kept.

They hold the moments of everything seen (`olss.core.moments`), so the order of the batches makes no
difference beyond rounding, two of them merge, old rows fade by a half-life, and rows are forgotten
by subtraction. `AnalyticClassifier` and `AnalyticRegressor` do so for images, or on the features of
a frozen net, and need PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax

from olss.core import glm
from olss.core.kernels import RandomFeatures, same_map
from olss.core.linear_fit import DiscriminantFit, choose_ridge, fit_discriminant, solve_ridge
from olss.core.moments import Moments, fade, one_hot, place_classes
from olss.errors import InputError, MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.incremental") from error

if TYPE_CHECKING:
    from olss.learn.analytic import AnalyticLearner

__all__ = [
    "AnalyticClassifier",
    "AnalyticRegressor",
    "IncrementalDiscriminant",
    "IncrementalLogistic",
    "IncrementalRidge",
    "IncrementalRidgeClassifier",
]

Floats = NDArray[np.float64]
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Solution:
    """A ridge model, solved when it is first asked: updates cost no more than their rows."""

    moments: Moments
    alpha: float | str
    intercept: bool

    @cached_property
    def ridge(self) -> float:
        if self.alpha != "auto":
            return float(self.alpha)
        return choose_ridge(self.moments, intercept=self.intercept)

    @cached_property
    def coef(self) -> tuple[Floats, Floats]:
        return solve_ridge(self.moments, self.ridge, intercept=self.intercept)


class _Incremental(BaseEstimator):  # type: ignore[misc]
    """What the estimators share: checked rows, fading, a feature map, and a state that adds up."""

    half_life: float | None
    random_features: int | None
    feature_kind: str
    random_state: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn these rows.

        Parameters
        ----------
        X : array (n, features)
        y : array (n,)
        sample_weight : array (n,), optional
        """
        before = dict(vars(self))
        self._clear()
        try:
            return self.partial_fit(X, y, sample_weight=sample_weight)
        except BaseException:
            self.__dict__ = before
            raise

    def partial_fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Learn these rows too."""
        raise NotImplementedError

    def _clear(self) -> None:
        for name in ("moments_", "classes_", "_solution", "_state", "_map", "_one"):
            self.__dict__.pop(name, None)

    def _rows(self, X: Any, y: Any, weight: Any, *, numeric: bool) -> tuple[Floats, Array, Floats]:
        """Return rows, targets and weights, checked; rows through the feature map."""
        first = not hasattr(self, "moments_")
        X, y = validate_data(
            self, X, y, reset=first, dtype=np.float64, multi_output=numeric, y_numeric=numeric
        )
        weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
        if first:
            self._map = self._new_map(X.shape[1])
        return self._mapped(X), y, weight

    def _new_map(self, columns: int) -> RandomFeatures | None:
        if self.random_features is None:
            return None
        count = self.random_features
        if not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"random_features must be a number of features, found {count!r}.")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return RandomFeatures.draw(columns, int(count), self.feature_kind, seed)

    def _mapped(self, X: Floats) -> Floats:
        return X if self._map is None else np.asarray(self._map(X), np.float64)

    def _asked(self, X: Any) -> Floats:
        check_is_fitted(self, "moments_")
        return self._mapped(validate_data(self, X, reset=False, dtype=np.float64))

    def _weight_now(self, weight: Any) -> None:
        if self.half_life is not None and weight is None:
            raise InputError(
                "sample_weight must be given with half_life: what the rows weigh by now, "
                "0.5 ** (age / half_life), age being the rows seen since."
            )

    def _check_mergeable(self, other: Any) -> None:
        check_is_fitted(self, "moments_")
        if type(other) is not type(self):
            raise InputError(f"other must be {type(self).__name__}, found {type(other).__name__}.")
        check_is_fitted(other, "moments_")
        if self.n_features_in_ != other.n_features_in_:
            raise InputError(
                f"other must have {self.n_features_in_} features, found {other.n_features_in_}."
            )
        if not same_map(self._map, other._map):
            raise InputError(
                "other must have the same random features: give both the same random_features, "
                "feature_kind and random_state."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class IncrementalRidge(RegressorMixin, _Incremental):  # type: ignore[misc]
    """Ridge regression of everything seen: equal to `sklearn.linear_model.Ridge` on all rows.

    Parameters
    ----------
    alpha : float or "auto"
        Penalty on the squared coefficients; 0 is least squares, of minimum norm in columns scaled
        alike where they depend on each other. "auto" chooses it by generalised cross-validation,
        exactly, from the moments.
    fit_intercept : bool
    half_life : float, optional
        Rows after which a row counts half.
    random_features : int, optional
        Fit to so many fixed random features of the rows instead: a nonlinear model. Scale columns
        to about 1 before.
    feature_kind : "relu" or "cosine"
    random_state : int, RandomState or None
        Of the random features; estimators to be merged need the same number.

    Attributes
    ----------
    coef_, intercept_ : array
    alpha_ : float
        The penalty used.
    moments_ : Moments
        All that is held of the rows.
    n_features_in_, feature_names_in_ :
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((1_000, 3)), rng.standard_normal(1_000)
    >>> model = IncrementalRidge(alpha=2.0)
    >>> for batch in np.array_split(np.arange(1_000), 10):
    ...     _ = model.partial_fit(X[batch], y[batch])
    >>> bool(np.allclose(model.coef_, Ridge(alpha=2.0).fit(X, y).coef_))
    True
    """

    def __init__(
        self,
        alpha: float | Literal["auto"] = 1.0,
        *,
        fit_intercept: bool = True,
        half_life: float | None = None,
        random_features: int | None = None,
        feature_kind: str = "relu",
        random_state: Any = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.half_life = half_life
        self.random_features = random_features
        self.feature_kind = feature_kind
        self.random_state = random_state

    def partial_fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Learn these rows too.

        Parameters
        ----------
        X : array (n, features)
        y : array (n,) or (n, targets)
        sample_weight : array (n,), optional
        """
        _check_alpha(self.alpha)
        rows, y, weight = self._rows(X, y, sample_weight, numeric=True)
        before: Moments | None = getattr(self, "moments_", None)
        targets = 1 if y.ndim == 1 else y.shape[1]
        moments = Moments.empty(rows.shape[1], targets) if before is None else before
        factor, fading = fade(self.half_life, len(rows))
        faded = moments.scale(factor) if factor != 1 else moments
        self._hold(faded.update(rows, y, weight * fading))
        self._one = y.ndim == 1
        return self

    def forget(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Subtract rows that were learned, exactly; see `partial_fit`.

        With a half-life, `sample_weight` is what the rows weigh by now.
        """
        check_is_fitted(self, "moments_")
        self._weight_now(sample_weight)
        rows, y, weight = self._rows(X, y, sample_weight, numeric=True)
        gone = Moments.empty(rows.shape[1], self.moments_.targets).update(rows, y, weight)
        self._hold(self.moments_.subtract(gone))
        return self

    def merge(self, other: IncrementalRidge) -> Self:
        """Learn everything another estimator has seen."""
        self._check_mergeable(other)
        self._hold(self.moments_.merge(other.moments_))
        return self

    def predict(self, X: Any) -> Floats:
        """Predict the target of rows."""
        rows = self._asked(X)
        coef, intercept = self._solution.coef
        found = rows @ coef + intercept
        return found[:, 0] if self._one else found

    @property
    def coef_(self) -> Floats:
        """Coefficients, (features,) or (targets, features)."""
        coef = self._solution.coef[0].T
        return coef[0] if self._one else coef

    @property
    def intercept_(self) -> Any:
        """The intercept, a number or (targets,)."""
        intercept = self._solution.coef[1]
        return float(intercept[0]) if self._one else intercept

    @property
    def alpha_(self) -> float:
        """The penalty used."""
        return self._solution.ridge

    def _hold(self, moments: Moments) -> None:
        self.moments_ = moments
        self._solution = _Solution(moments, self.alpha, self.fit_intercept)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class _Classifier(ClassifierMixin, _Incremental):  # type: ignore[misc]
    """Classes as they come, and answers by a linear score of each."""

    classes_: Array

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, sample_weight: Any = None
    ) -> Self:
        """Learn these rows too.

        Parameters
        ----------
        X : array (n, features)
        y : array (n,)
            Labels. Those not seen before are added to the classes.
        classes : array, optional
            Labels that will come; none needs to be named.
        sample_weight : array (n,), optional
        """
        self._check_settings()
        rows, y, weight = self._rows(X, y, sample_weight, numeric=False)
        check_classification_targets(y)
        known = [np.unique(y)] if classes is None else [np.unique(y), np.unique(classes)]
        before: Array | None = getattr(self, "classes_", None)
        every = np.unique(np.concatenate(known if before is None else [before, *known]))
        if before is None:
            self._open(rows.shape[1], len(every))
        elif len(every) > len(before):
            self._spread(before, every)
        self.classes_ = every
        factor, fading = fade(self.half_life, len(rows))
        self._learn(rows, np.searchsorted(every, y), weight * fading, factor)
        return self

    def forget(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Subtract rows that were learned, exactly; see `partial_fit`.

        With a half-life, `sample_weight` is what the rows weigh by now.
        """
        check_is_fitted(self, "moments_")
        self._weight_now(sample_weight)
        rows, y, weight = self._rows(X, y, sample_weight, numeric=False)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InputError(f"y must hold classes that were seen, found {unknown[:3]}.")
        self._subtract(rows, np.searchsorted(self.classes_, y), weight)
        return self

    def merge(self, other: Self) -> Self:
        """Learn everything another estimator has seen, its classes included."""
        self._check_mergeable(other)
        every = np.unique(np.concatenate([self.classes_, other.classes_]))
        self._spread(self.classes_, every)
        self._add(other, place_classes(other.classes_, every))
        self.classes_ = every
        return self

    def predict(self, X: Any) -> Array:
        """Predict the labels of rows."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            codes = ((scores > 0) & (len(self.classes_) == 2)).astype(np.intp)
        else:
            codes = scores.argmax(axis=1)
        found: Array = self.classes_[codes]
        return found

    def decision_function(self, X: Any) -> Floats:
        """Return the score of each class, (n, classes); of two, (n,) for the second."""
        rows = self._asked(X)
        coef, intercept = self._linear
        scores = rows @ coef.T + intercept
        return scores[:, 0] if len(self.classes_) <= 2 else scores

    @property
    def coef_(self) -> Floats:
        """Coefficients, (classes, features); of two classes, (1, features)."""
        return self._linear[0]

    @property
    def intercept_(self) -> Floats:
        """Intercepts, (classes,); of two classes, (1,)."""
        return self._linear[1]

    @property
    def _linear(self) -> tuple[Floats, Floats]:
        """Coefficients and intercepts by rows."""
        raise NotImplementedError

    def _check_settings(self) -> None:
        raise NotImplementedError

    moments_: Moments

    def _open(self, columns: int, classes: int) -> None:
        self._hold(Moments.empty(columns, classes))

    def _spread(self, before: Array, every: Array) -> None:
        """Put the classes known before in their places among all."""
        self._hold(self.moments_.arrange_targets(place_classes(before, every)))

    def _learn(self, X: Floats, codes: Array, weight: Floats, factor: float) -> None:
        faded = self.moments_.scale(factor) if factor != 1 else self.moments_
        self._hold(faded.update(X, one_hot(codes, len(self.classes_)), weight))

    def _subtract(self, X: Floats, codes: Array, weight: Floats) -> None:
        gone = Moments.empty(X.shape[1], len(self.classes_))
        gone = gone.update(X, one_hot(codes, len(self.classes_)), weight)
        self._hold(self.moments_.subtract(gone))

    def _add(self, other: Self, order: Array) -> None:
        self._hold(self.moments_.merge(other.moments_.arrange_targets(order)))

    def _hold(self, moments: Moments) -> None:
        raise NotImplementedError


class IncrementalRidgeClassifier(_Classifier):
    """Ridge regression to the classes: equal to `sklearn.linear_model.RidgeClassifier` on all rows.

    Parameters
    ----------
    alpha, fit_intercept, half_life, random_features, feature_kind, random_state :
        As in `IncrementalRidge`.

    Attributes
    ----------
    classes_ : array
        All labels so far.
    coef_, intercept_ : array
    alpha_ : float
        The penalty used.
    moments_ : Moments
        All that is held of the rows.

    Examples
    --------
    Digits come class by class; nothing is forgotten.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import RidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = IncrementalRidgeClassifier(alpha=1.0)
    >>> for digit in range(10):
    ...     _ = model.partial_fit(X[y == digit], y[y == digit])
    >>> bool(np.allclose(model.coef_, RidgeClassifier(alpha=1.0).fit(X, y).coef_))
    True
    """

    def __init__(
        self,
        alpha: float | Literal["auto"] = 1.0,
        *,
        fit_intercept: bool = True,
        half_life: float | None = None,
        random_features: int | None = None,
        feature_kind: str = "relu",
        random_state: Any = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.half_life = half_life
        self.random_features = random_features
        self.feature_kind = feature_kind
        self.random_state = random_state

    @property
    def alpha_(self) -> float:
        """The penalty used."""
        return self._solution.ridge

    def _check_settings(self) -> None:
        _check_alpha(self.alpha)

    def _hold(self, moments: Moments) -> None:
        self.moments_ = moments
        # Targets are 1 and -1, as in scikit-learn.
        W, n = moments.weight, moments.target_mean
        signed = Moments(
            count=moments.count,
            weight=W,
            mean=moments.mean,
            scatter=moments.scatter,
            target_mean=2 * n - 1,
            cross=2 * moments.cross,
            target_scatter=4 * moments.target_scatter,
            noise=moments.noise,
        )
        self._solution = _Solution(signed, self.alpha, self.fit_intercept)

    @property
    def _linear(self) -> tuple[Floats, Floats]:
        coef, intercept = self._solution.coef
        keep = slice(-1, None) if len(self.classes_) <= 2 else slice(None)
        return coef.T[keep], intercept[keep]


class IncrementalDiscriminant(_Classifier):
    """A linear discriminant of everything seen: equal to scikit-learn's on all rows.

    Parameters
    ----------
    shrinkage : float between 0 and 1, "auto" or None
        How far the covariance within classes is drawn to a multiple of the identity; "auto" is the
        oracle approximating shrinkage (Chen, Wiesel, Eldar & Hero 2010).
    priors : array (classes,), optional
        By default the shares of the classes.
    half_life, random_features, feature_kind, random_state :
        As in `IncrementalRidge`.

    Attributes
    ----------
    classes_ : array
        All labels so far.
    coef_, intercept_ : array
    means_, priors_ : array
        Of the classes.
    moments_ : Moments
        All that is held of the rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = IncrementalDiscriminant()
    >>> for kind in range(3):
    ...     _ = model.partial_fit(X[y == kind], y[y == kind])
    >>> float(model.score(X, y))
    0.98
    """

    def __init__(
        self,
        shrinkage: float | Literal["auto"] | None = None,
        *,
        priors: Any = None,
        half_life: float | None = None,
        random_features: int | None = None,
        feature_kind: str = "relu",
        random_state: Any = 0,
    ) -> None:
        self.shrinkage = shrinkage
        self.priors = priors
        self.half_life = half_life
        self.random_features = random_features
        self.feature_kind = feature_kind
        self.random_state = random_state

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`."""
        rows, fit = self._asked(X), self._solution.fit
        found: Floats = log_softmax(rows @ fit.coef + fit.intercept, axis=1)
        return found

    @property
    def means_(self) -> Floats:
        """Means of the classes, (classes, features)."""
        return self._solution.fit.means

    @property
    def priors_(self) -> Floats:
        """Shares of the classes."""
        return self._solution.fit.priors

    @property
    def _linear(self) -> tuple[Floats, Floats]:
        fit = self._solution.fit
        if len(self.classes_) != 2:
            return fit.coef.T, fit.intercept
        return (fit.coef[:, 1] - fit.coef[:, 0])[None], fit.intercept[1:] - fit.intercept[:1]

    def _check_settings(self) -> None:
        a = self.shrinkage
        if isinstance(a, str) and a != "auto":
            raise InputError(f"shrinkage must be 'auto', None or from 0 to 1, found {a!r}.")

    def _hold(self, moments: Moments) -> None:
        self.moments_ = moments
        self._solution = _DiscriminantSolution(moments, self.shrinkage, self.priors)


@dataclass(frozen=True, eq=False)
class _DiscriminantSolution:
    moments: Moments
    shrinkage: float | Literal["auto"] | None
    priors: Any

    @cached_property
    def fit(self) -> DiscriminantFit:
        return fit_discriminant(self.moments, self.shrinkage, self.priors)


class IncrementalLogistic(_Classifier):
    """Logistic regression of everything seen, nearly: each class against the rest, no row kept.

    The first batch is fitted exactly. Later, rows that are gone are represented by their exact
    products with the labels, their exact gradient where the model was when they came, and normal
    distributions with the means of the classes and their common covariance; see `olss.core.glm`.
    So it stays close to the fit to all rows when batches are in random order, and loses little when
    they are sorted or classes come one after the other, where updating by curvature alone fails.

    Parameters
    ----------
    C : float
        Inverse of the penalty on half the squared coefficients, as in
        `sklearn.linear_model.LogisticRegression`.
    fit_intercept : bool
    half_life, random_features, feature_kind, random_state :
        As in `IncrementalRidge`.

    Attributes
    ----------
    classes_ : array
        All labels so far.
    coef_, intercept_ : array
    moments_ : Moments

    Notes
    -----
    Each batch is fitted for each class (of two, once), in time rows x features^2. `forget`
    subtracts the moments of rows exactly, and their gradient as it is now.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = IncrementalLogistic()
    >>> for batch in np.array_split(np.arange(len(y)), 5):
    ...     _ = model.partial_fit(X[batch], y[batch])
    >>> float(model.score(X, y)) > 0.94
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        half_life: float | None = None,
        random_features: int | None = None,
        feature_kind: str = "relu",
        random_state: Any = 0,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.half_life = half_life
        self.random_features = random_features
        self.feature_kind = feature_kind
        self.random_state = random_state

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class; of three and more, scaled to a sum of 1."""
        scores = self.decision_function(X)
        if len(self.classes_) == 1:
            return np.ones((len(scores), 1))
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        shares = expit(scores) + 1e-300
        found: Floats = shares / shares.sum(axis=1, keepdims=True)
        return found

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def _linear(self) -> tuple[Floats, Floats]:
        keep = slice(-1, None) if len(self.classes_) <= 2 else slice(None)
        return self._state.coef[keep, :-1], self._state.coef[keep, -1]

    def _check_settings(self) -> None:
        if not self.C > 0:
            raise InputError(f"C must be above 0, found {self.C!r}.")

    def _open(self, columns: int, classes: int) -> None:
        self._keep(glm.LogisticState.empty(columns, classes))

    def _spread(self, before: Array, every: Array) -> None:
        self._keep(self._state.arrange(place_classes(before, every)))

    def _learn(self, X: Floats, codes: Array, weight: Floats, factor: float) -> None:
        state = self._state.scale(factor) if factor != 1 else self._state
        self._keep(
            glm.update_logistic(state, X, codes, weight, 1 / self.C, intercept=self.fit_intercept)
        )

    def _subtract(self, X: Floats, codes: Array, weight: Floats) -> None:
        self._keep(
            glm.forget_logistic(
                self._state, X, codes, weight, 1 / self.C, intercept=self.fit_intercept
            )
        )

    def _add(self, other: Self, order: Array) -> None:
        theirs = other._state.arrange(order)
        self._keep(
            glm.merge_logistic(self._state, theirs, 1 / self.C, intercept=self.fit_intercept)
        )

    def _keep(self, state: glm.LogisticState) -> None:
        self._state, self.moments_ = state, state.moments


class _Analytic(BaseEstimator):  # type: ignore[misc]
    """What the analytic estimators share: a learner behind scikit-learn's interface."""

    learner_: AnalyticLearner

    def __init__(
        self,
        features: Any = "auto",
        *,
        feature_settings: dict[str, Any] | None = None,
        ridge: float | Literal["auto"] = "auto",
        mirrored: bool = False,
        half_life: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.features = features
        self.feature_settings = feature_settings
        self.ridge = ridge
        self.mirrored = mirrored
        self.half_life = half_life
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn these rows, which also fix the feature map.

        Parameters
        ----------
        X : array (n, features), (n, height, width) or (n, channels, height, width)
        y : array (n,)
        sample_weight : array (n,), optional
        """
        before = dict(vars(self))
        self.__dict__.pop("learner_", None)
        try:
            return self._learn(X, y, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise

    def forget(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Subtract rows that were learned, exactly; see `fit`.

        With a half-life, `sample_weight` is what the rows weigh by now.
        """
        check_is_fitted(self, "learner_")
        if self.half_life is not None and sample_weight is None:
            raise InputError("sample_weight must be given with half_life: what rows weigh by now.")
        X, y, weight = self._rows(X, y, sample_weight)
        self.learner_.forget(X, y, weight)
        return self

    def merge(self, other: Self) -> Self:
        """Learn everything another estimator has seen; both need the same feature map.

        Maps are the same if they were fitted to the same `images` with the same `random_state`, or
        if one estimator is a copy of the other, made after its first rows.
        """
        check_is_fitted(self, "learner_")
        if type(other) is not type(self):
            raise InputError(f"other must be {type(self).__name__}, found {type(other).__name__}.")
        check_is_fitted(other, "learner_")
        self.learner_.merge(other.learner_)
        return self

    @property
    def stored_bytes_(self) -> int:
        """Bytes held of everything seen: moments, and what the feature map has learned."""
        check_is_fitted(self, "learner_")
        return self.learner_.stored_bytes

    @property
    def moments_(self) -> Moments:
        """The moments of the features of everything seen."""
        check_is_fitted(self, "learner_")
        return self.learner_._started()

    def _learn(self, X: Any, y: Any, weight: Any, classes: Any = None) -> Self:
        first = not hasattr(self, "learner_")
        X, y, weight = self._rows(X, y, weight)
        learner = self._make(classes) if first else self.learner_
        learner.fit_task(SimpleNamespace(X=X, y=y, weight=weight))
        self.learner_ = learner
        return self

    def _make(self, classes: Any) -> AnalyticLearner:
        from olss.learn.analytic import AnalyticLearner

        learner = AnalyticLearner(
            type(self).__name__, None, features=self.features, ridge=self.ridge,
            mirrored=self.mirrored, half_life=self.half_life, **self._own_settings(),
            **(self.feature_settings or {}),
        )  # fmt: skip
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return learner.start(classes, seed)

    def _own_settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def _rows(self, X: Any, y: Any, weight: Any) -> tuple[Array, Array, Floats]:
        numeric = isinstance(self, RegressorMixin)
        X, y = validate_data(
            self, X, y, reset=not hasattr(self, "learner_"), allow_nd=True, dtype="numeric",
            multi_output=numeric, y_numeric=numeric,
        )  # fmt: skip
        if not numeric:
            check_classification_targets(y)
        return X, y, _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)

    def _asked(self, X: Any) -> Array:
        check_is_fitted(self, "learner_")
        rows: Array = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags


class AnalyticClassifier(ClassifierMixin, _Analytic):  # type: ignore[misc]
    """Images or vectors to classes, from frozen features and the moments of everything seen.

    Whatever the order of the batches and classes, the answers are those of fitting everything at
    once on the same features, and no row is stored; see `olss.learn.analytic`.

    Parameters
    ----------
    features : str, nn.Module or callable
        "auto" (patches for images, random features for vectors), "patches", "random", "raw", a
        frozen net, or a function from rows to features.
    feature_settings : dict, optional
        Of the feature map: `centres`, `cells`, `patch`, `images` of "patches", `width`, `kind` of
        "random"; see `olss.learn.features`.
    classifier : "discriminant" or "ridge"
    ridge : float or "auto"
        In parts of the mean of the scatter's diagonal; "auto" chooses it by generalised
        cross-validation from the moments, again whenever the rows seen have doubled.
    mirrored : bool
        Whether an image's features are the mean of its own and its mirror image's: for photographs.
    half_life : float, optional
        Rows after which a row counts half.
    random_state : int, RandomState or None
        Of the feature map.

    Attributes
    ----------
    classes_ : array
        All labels so far.
    moments_ : Moments
        All that is held of the rows.
    stored_bytes_ : int
        Bytes of the moments and of the feature map.
    learner_ : AnalyticLearner

    Notes
    -----
    The map is fixed by the first rows, and so is their number of channels and pixels. Memory is
    that of a float32 matrix, half of features x features, and features x classes; the solution
    takes time features^3 / 3 once and features^2 for each class.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> images = X.reshape(-1, 8, 8)
    >>> model = AnalyticClassifier(feature_settings={"centres": 30})
    >>> for digit in range(10):
    ...     _ = model.partial_fit(images[y == digit], y[y == digit])
    >>> bool(model.score(images, y) > 0.95)
    True
    """

    def __init__(
        self,
        features: Any = "auto",
        *,
        feature_settings: dict[str, Any] | None = None,
        classifier: str = "discriminant",
        ridge: float | Literal["auto"] = "auto",
        mirrored: bool = False,
        half_life: float | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            features, feature_settings=feature_settings, ridge=ridge, mirrored=mirrored,
            half_life=half_life, random_state=random_state,
        )  # fmt: skip
        self.classifier = classifier

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, sample_weight: Any = None
    ) -> Self:
        """Learn these rows too; the first fix the feature map.

        Parameters
        ----------
        X : array (n, features), (n, height, width) or (n, channels, height, width)
        y : array (n,)
            Labels. Those not seen before are added to the classes.
        classes : array, optional
            Labels that will come; none needs to be named.
        sample_weight : array (n,), optional
        """
        return self._learn(X, y, sample_weight, classes)

    def predict(self, X: Any) -> Array:
        """Predict the labels of rows."""
        rows = self._asked(X)
        return self.learner_.predict(rows)

    def decision_function(self, X: Any) -> Floats:
        """Return the score of each class, (n, classes); of two, (n,) for the second."""
        rows = self._asked(X)
        scores = self.learner_.decide(rows).astype(np.float64)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _has_probabilities(self) -> bool:
        return self.classifier == "discriminant"

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, with classifier="discriminant"."""
        found: Floats = np.exp(self.predict_log_proba(X))
        return found

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`."""
        rows = self._asked(X)
        scores = self.learner_.decide(rows).astype(np.float64)
        found: Floats = log_softmax(scores, axis=1)
        return found

    @property
    def classes_(self) -> Array:
        """All labels so far."""
        check_is_fitted(self, "learner_")
        return np.asarray(self.learner_.classes)

    def _own_settings(self) -> dict[str, Any]:
        return {"classifier": self.classifier}


class AnalyticRegressor(RegressorMixin, _Analytic):  # type: ignore[misc]
    """Images or vectors to numbers: ridge regression on frozen features, from moments.

    Parameters
    ----------
    features, feature_settings, ridge, mirrored, half_life, random_state :
        As in `AnalyticClassifier`.

    Attributes
    ----------
    moments_, stored_bytes_, learner_ :
        As in `AnalyticClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = AnalyticRegressor(feature_settings={"width": 100})
    >>> for batch in np.array_split(np.arange(len(y)), 4):
    ...     _ = model.partial_fit(X[batch], y[batch])
    >>> bool(model.score(X, y) > 0.5)
    True
    """

    def partial_fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Learn these rows too; the first fix the feature map.

        Parameters
        ----------
        X : array (n, features), (n, height, width) or (n, channels, height, width)
        y : array (n,) or (n, targets)
        sample_weight : array (n,), optional
        """
        return self._learn(X, y, sample_weight)

    def predict(self, X: Any) -> Floats:
        """Predict the target of rows."""
        rows = self._asked(X)
        return np.asarray(self.learner_.predict(rows), np.float64)

    def _own_settings(self) -> dict[str, Any]:
        return {"loss": "l2"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _check_alpha(alpha: Any) -> None:
    if alpha == "auto" or (not isinstance(alpha, str) and 0 <= alpha < np.inf):
        return
    raise InputError(f"alpha must be 'auto' or a number, not negative; found {alpha!r}.")
