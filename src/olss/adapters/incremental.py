"""Estimators for scikit-learn that learn a stream exactly: no row is kept.

They hold the moments of everything seen (`olss.core.moments`), so the order of the batches makes no
difference beyond rounding, two of them merge, old rows fade by a half-life, and rows are forgotten
by subtraction. For images, see `olss.adapters.analytic`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax

from olss.core import glm
from olss.core.kernels import RandomFeatures, same_map
from olss.core.linear_fit import choose_ridge, fit_discriminant, solve_ridge
from olss.core.moments import Moments, fade, one_hot, place_classes
from olss.errors import InputError, MissingExtraError
from olss.util.threads import cached_property

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.incremental") from error

__all__ = [
    "IncrementalDiscriminant",
    "IncrementalLogistic",
    "IncrementalRidge",
    "IncrementalRidgeClassifier",
]

Floats = NDArray[np.float64]
Array = NDArray[Any]


class StreamEstimator(BaseEstimator):  # type: ignore[misc]
    """What estimators of a stream share: rows are checked, learned, forgotten, and states merged.

    A subclass has `_learn`, `_forget` and `_merge`, and holds what it learned in the attribute
    named by `_held`.
    """

    half_life: float | None
    moments_: Any
    _held = "_state"
    _checks: ClassVar[dict[str, Any]] = {"dtype": np.float64}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn these rows.

        Parameters
        ----------
        X : array (n, features)
        y : array (n,)
        sample_weight : array (n,), optional
        """
        before = dict(vars(self))
        self.__dict__.pop(self._held, None)
        try:
            return self._learn(X, y, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise

    def partial_fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Learn these rows too; see `fit`."""
        return self._learn(X, y, sample_weight)

    def forget(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Subtract rows that were learned, exactly; see `partial_fit`.

        With a half-life, `sample_weight` is what the rows weigh by now.
        """
        check_is_fitted(self, "moments_")
        if self.half_life is not None and sample_weight is None:
            raise InputError(
                "sample_weight must be given with half_life: what the rows weigh by now, "
                "0.5 ** (age / half_life), age being the rows seen since."
            )
        self._forget(*self._rows(X, y, sample_weight))
        return self

    def merge(self, other: Self) -> Self:
        """Learn everything another estimator has seen, its classes included."""
        check_is_fitted(self, "moments_")
        if type(other) is not type(self):
            raise InputError(f"other must be {type(self).__name__}, found {type(other).__name__}.")
        check_is_fitted(other, "moments_")
        self._merge(other)
        return self

    def _learn(self, X: Any, y: Any, weight: Any, classes: Any = None) -> Self:
        raise NotImplementedError

    def _forget(self, X: Array, y: Array, weight: Floats) -> None:
        raise NotImplementedError

    def _merge(self, other: Self) -> None:
        raise NotImplementedError

    def _rows(self, X: Any, y: Any, weight: Any) -> tuple[Array, Array, Floats]:
        """Return rows, targets and weights, checked; the first rows fix the columns."""
        numeric = isinstance(self, RegressorMixin)
        first = not hasattr(self, self._held)
        X, y = validate_data(
            self, X, y, reset=first, multi_output=numeric, y_numeric=numeric, **self._checks
        )
        if not numeric:
            check_classification_targets(y)
        return X, y, _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)

    def _check_rows(self, X: Any) -> Array:
        check_is_fitted(self, "moments_")
        rows: Array = validate_data(self, X, reset=False, **self._checks)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.multi_output = isinstance(self, RegressorMixin)
        return tags


class _Linear(NamedTuple):
    """Scores x'coef + intercept, and the penalty they were fitted with."""

    coef: Floats
    intercept: Floats
    ridge: float


@dataclass(frozen=True, eq=False)
class _Solution:
    """A model that is solved when it is first asked: updates cost no more than their rows."""

    solve: partial[Any]

    @cached_property
    def fit(self) -> Any:
        return self.solve()


class _Incremental(StreamEstimator):
    """A state that adds up, by default `Moments`, of rows through a feature map."""

    random_features: int | None
    feature_kind: str
    random_state: Any

    @property
    def moments_(self) -> Moments:
        """All that is held of the rows."""
        state: Moments = self._state
        return state

    def _learn(self, X: Any, y: Any, weight: Any, classes: Any = None) -> Self:
        self._check_settings()
        X, y, weight = self._rows(X, y, weight)
        factor, fading = fade(self.half_life, len(X))
        if not hasattr(self, "_state"):
            self._map = self._new_map(X.shape[1])
        rows = self._map_features(X)
        self._expect(rows.shape[1], y, classes)
        faded = self._state.scale(factor) if factor != 1 else self._state
        self._hold(self._update(faded, rows, y, weight * fading))
        return self

    def _forget(self, X: Array, y: Array, weight: Floats) -> None:
        self._hold(self._subtract(self._map_features(X), y, weight))

    def _merge(self, other: Self) -> None:
        if self.n_features_in_ != other.n_features_in_:
            raise InputError(
                f"other must have {self.n_features_in_} features, found {other.n_features_in_}."
            )
        if not same_map(self._map, other._map):
            raise InputError(
                "other must have the same random features: give both the same random_features, "
                "feature_kind and random_state."
            )
        self._hold(self._join(other))

    def _check_settings(self) -> None:
        """Raise an error if a setting is wrong."""
        raise NotImplementedError

    def _expect(self, columns: int, y: Array, classes: Any) -> None:
        """Hold a state that has a place for the targets."""
        raise NotImplementedError

    def _solver(self, state: Any) -> partial[Any]:
        """Return what fits the model to a state."""
        raise NotImplementedError

    def _hold(self, state: Any) -> None:
        self._state, self._solution = state, _Solution(self._solver(state))

    def _encode(self, y: Array) -> Any:
        return y

    def _update(self, state: Any, X: Floats, y: Array, weight: Floats) -> Any:
        return state.update(X, self._encode(y), weight)

    def _subtract(self, X: Floats, y: Array, weight: Floats) -> Any:
        empty = Moments.empty(X.shape[1], self._state.targets)
        return self._state.subtract(self._update(empty, X, y, weight))

    def _join(self, other: Self) -> Any:
        return self._state.merge(other._state)

    def _new_map(self, columns: int) -> RandomFeatures | None:
        count = self.random_features
        if count is None:
            return None
        if not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"random_features must be a number of features, found {count!r}.")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return RandomFeatures.draw(columns, int(count), self.feature_kind, seed)

    def _map_features(self, X: Array) -> Floats:
        return X if self._map is None else np.asarray(self._map(X), np.float64)

    def _check_rows(self, X: Any) -> Floats:
        return self._map_features(super()._check_rows(X))


class _Ridge(_Incremental):
    """A penalty, and what it does."""

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
        return float(self._solution.fit.ridge)

    def _check_settings(self) -> None:
        if self.alpha == "auto" or (not isinstance(self.alpha, str) and 0 <= self.alpha < np.inf):
            return
        raise InputError(f"alpha must be 'auto' or a number, not negative; found {self.alpha!r}.")

    def _solver(self, state: Moments) -> partial[Any]:
        return partial(_solve_ridge, state, self.alpha, self.fit_intercept)


class IncrementalRidge(RegressorMixin, _Ridge):  # type: ignore[misc]
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

    def predict(self, X: Any) -> Floats:
        """Predict the target of rows."""
        rows, fit = self._check_rows(X), self._solution.fit
        found: Floats = rows @ fit.coef + fit.intercept
        return found[:, 0] if self._one else found

    @property
    def coef_(self) -> Floats:
        """Coefficients, (features,) or (targets, features)."""
        coef: Floats = self._solution.fit.coef.T
        return coef[0] if self._one else coef

    @property
    def intercept_(self) -> Any:
        """The intercept, a number or (targets,)."""
        intercept = self._solution.fit.intercept
        return float(intercept[0]) if self._one else intercept

    def _expect(self, columns: int, y: Array, classes: Any) -> None:
        if not hasattr(self, "_state"):
            self._one = y.ndim == 1
            self._hold(Moments.empty(columns, 1 if self._one else y.shape[1]))


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
        return self._learn(X, y, sample_weight, classes)

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
        scores = self._check_rows(X) @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) <= 2 else scores

    @property
    def coef_(self) -> Floats:
        """Coefficients, (classes, features); of two classes, (1, features)."""
        return self._of_two(self._solution.fit.coef.T)

    @property
    def intercept_(self) -> Floats:
        """Intercepts, (classes,); of two classes, (1,)."""
        return self._of_two(self._solution.fit.intercept)

    def _of_two(self, values: Floats) -> Floats:
        """Return what each class has, or of two classes what the second has."""
        return values[-1:] if len(self.classes_) <= 2 else values

    def _expect(self, columns: int, y: Array, classes: Any) -> None:
        known = [np.unique(y)] if classes is None else [np.unique(y), np.unique(classes)]
        if not hasattr(self, "_state"):
            self.classes_ = np.unique(np.concatenate(known))
            self._hold(self._empty(columns))
        else:
            self._add_classes(np.concatenate(known))

    def _add_classes(self, more: Array) -> None:
        """Put the classes known before in their places among all."""
        every = np.unique(np.concatenate([self.classes_, more]))
        if len(every) > len(self.classes_):
            self._hold(self._state.arrange_targets(place_classes(self.classes_, every)))
            self.classes_ = every

    def _empty(self, columns: int) -> Any:
        return Moments.empty(columns, len(self.classes_))

    def _codes(self, y: Array) -> Array:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InputError(f"y must hold classes that were seen, found {unknown[:3]}.")
        return np.searchsorted(self.classes_, y)

    def _encode(self, y: Array) -> Any:
        return one_hot(self._codes(y), len(self.classes_))

    def _join(self, other: Self) -> Any:
        self._add_classes(other.classes_)
        order = place_classes(other.classes_, self.classes_)
        return self._both(other._state.arrange_targets(order))

    def _both(self, state: Any) -> Any:
        """Return the state merged with another of the same classes."""
        return self._state.merge(state)


class IncrementalRidgeClassifier(_Classifier, _Ridge):
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

    def _solver(self, state: Moments) -> partial[Any]:
        # Targets are 1 and -1, as in scikit-learn.
        return super()._solver(
            replace(
                state,
                target_mean=2 * state.target_mean - 1,
                cross=2 * state.cross,
                target_scatter=4 * state.target_scatter,
            )
        )


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
        rows, fit = self._check_rows(X), self._solution.fit
        found: Floats = log_softmax(rows @ fit.coef + fit.intercept, axis=1)
        return found

    @property
    def means_(self) -> Floats:
        """Means of the classes, (classes, features)."""
        means: Floats = self._solution.fit.means
        return means

    @property
    def priors_(self) -> Floats:
        """Shares of the classes."""
        priors: Floats = self._solution.fit.priors
        return priors

    def _of_two(self, values: Floats) -> Floats:
        return values[1:] - values[:1] if len(self.classes_) == 2 else values

    def _check_settings(self) -> None:
        a = self.shrinkage
        if isinstance(a, str) and a != "auto":
            raise InputError(f"shrinkage must be 'auto', None or from 0 to 1, found {a!r}.")

    def _solver(self, state: Moments) -> partial[Any]:
        return partial(fit_discriminant, state, self.shrinkage, self.priors)


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
    def moments_(self) -> Moments:
        """The moments of the rows."""
        moments: Moments = self._state.moments
        return moments

    def _check_settings(self) -> None:
        if isinstance(self.C, str) or not self.C > 0:
            raise InputError(f"C must be a number above 0, found {self.C!r}.")

    def _solver(self, state: glm.LogisticState) -> partial[Any]:
        return partial(_Linear, state.coef[:, :-1].T, state.coef[:, -1], 1 / self.C)

    def _empty(self, columns: int) -> glm.LogisticState:
        return glm.LogisticState.empty(columns, len(self.classes_))

    def _update(self, state: Any, X: Floats, y: Array, weight: Floats) -> glm.LogisticState:
        return glm.update_logistic(state, X, self._codes(y), weight, **self._penalty)

    def _subtract(self, X: Floats, y: Array, weight: Floats) -> glm.LogisticState:
        return glm.forget_logistic(self._state, X, self._codes(y), weight, **self._penalty)

    def _both(self, state: Any) -> glm.LogisticState:
        return glm.merge_logistic(self._state, state, **self._penalty)

    @property
    def _penalty(self) -> dict[str, Any]:
        return {"penalty": 1 / self.C, "intercept": self.fit_intercept}


def _solve_ridge(moments: Moments, alpha: float | str, intercept: bool) -> _Linear:
    ridge = choose_ridge(moments, intercept=intercept) if alpha == "auto" else float(alpha)
    return _Linear(*solve_ridge(moments, ridge, intercept=intercept), ridge)
