"""Estimators for scikit-learn that learn images or vectors from frozen features, exactly.

They hold the moments of the features of everything seen, so no order of batches or classes makes
them forget; see `olss.learn.analytic`. They need PyTorch. For rows of numbers without features, see
`olss.adapters.incremental`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from olss.adapters.incremental import StreamEstimator
from olss.core.moments import Moments
from olss.errors import MissingExtraError
from olss.learn.analytic import AnalyticLearner

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "olss.adapters.analytic") from error

__all__ = ["AnalyticClassifier", "AnalyticRegressor"]

Floats = NDArray[np.float64]
Array = NDArray[Any]


class _Analytic(StreamEstimator):
    """What the analytic estimators share: a learner behind scikit-learn's interface."""

    learner_: AnalyticLearner
    _held = "learner_"
    _checks: ClassVar[dict[str, Any]] = {"allow_nd": True, "dtype": "numeric"}

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

    @property
    def stored_bytes_(self) -> int:
        """Bytes held of everything seen: moments, and what the feature map has learned."""
        check_is_fitted(self, "learner_")
        return self.learner_.stored_bytes

    @property
    def moments_(self) -> Moments:
        """The moments of the features of everything seen."""
        check_is_fitted(self, "learner_")
        return self.learner_._require_moments()

    def _learn(self, X: Any, y: Any, weight: Any, classes: Any = None) -> Self:
        X, y, weight = self._rows(X, y, weight)
        learner = self.learner_ if hasattr(self, "learner_") else self._make(classes)
        learner.fit_task(SimpleNamespace(X=X, y=y, weight=weight))
        self.learner_ = learner
        return self

    def _forget(self, X: Array, y: Array, weight: Floats) -> None:
        self.learner_.forget(X, y, weight)

    def _merge(self, other: Self) -> None:
        self.learner_.merge(other.learner_)

    def _make(self, classes: Any) -> AnalyticLearner:
        learner = AnalyticLearner(
            type(self).__name__, None, features=self.features, ridge=self.ridge,
            mirrored=self.mirrored, half_life=self.half_life, **self._own_settings(),
            **(self.feature_settings or {}),
        )  # fmt: skip
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return learner.start(classes, seed)

    def _own_settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
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
        rows = self._check_rows(X)
        return self.learner_.predict(rows)

    def decision_function(self, X: Any) -> Floats:
        """Return the score of each class, (n, classes); of two, (n,) for the second."""
        rows = self._check_rows(X)
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
        rows = self._check_rows(X)
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

    def predict(self, X: Any) -> Floats:
        """Predict the target of rows."""
        rows = self._check_rows(X)
        return np.asarray(self.learner_.predict(rows), np.float64)

    def _own_settings(self) -> dict[str, Any]:
        return {"loss": "l2"}
