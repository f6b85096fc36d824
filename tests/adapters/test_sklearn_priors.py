"""Probabilities of `ContinualClassifier` refer to the classes of everything seen."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from olss.adapters.sklearn import ContinualClassifier


def rare(n=20_000, share=0.02, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return rng.standard_normal((n, 2)) + 1.5 * y[:, None], y


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "balanced"},
        {"policy": "balanced", "use_weights": True},
        {"strata": "y", "policy": "reservoir"},
    ],
    ids=["balanced", "weights", "strata"],
)
@pytest.mark.parametrize("class_weight", [None, "balanced", {1: 5.0}], ids=str)
def test_mean_probability_is_the_class_frequency(settings, class_weight):
    X, y = rare()
    inner = make_pipeline(StandardScaler(), LogisticRegression(class_weight=class_weight))
    model = ContinualClassifier(inner, size=2_000, random_state=0, **settings)
    for part in np.array_split(np.arange(len(y)), 4):
        model.partial_fit(X[part], y[part])
    # A logistic model is calibrated in the large; its own noise allows a quarter.
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.25)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
    assert np.array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    assert np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


def test_the_correction_can_be_switched_off():
    X, y = rare()
    model = ContinualClassifier(
        LogisticRegression(), size=1_000, policy="balanced", correct_priors=False, random_state=0
    ).fit(X, y)
    assert np.array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))
    assert np.array_equal(model.predict(X), model.estimator_.predict(X))
    assert model.predict_proba(X)[:, 1].mean() > 3 * y.mean()


def test_estimators_without_probabilities_predict_as_they_are():
    X, y = rare(4_000)
    model = ContinualClassifier(LinearSVC(), size=500, policy="balanced", random_state=0).fit(X, y)
    assert np.array_equal(model.predict(X), model.estimator_.predict(X))


def test_digits_that_come_class_by_class_are_not_forgotten():
    X, y = load_digits(return_X_y=True)
    X, train, test = X / 16, slice(0, 1_300), slice(1_300, None)
    scores = {}
    for corrects in (True, False):
        model = ContinualClassifier(
            LogisticRegression(max_iter=200),
            size=200,
            policy="balanced",
            correct_priors=corrects,
            random_state=0,
        )
        for digit in range(10):
            mine = y[train] == digit
            model.partial_fit(X[train][mine], y[train][mine], task=digit)
        scores[corrects] = model.score(X[test], y[test])
    # 497 test digits: the standard error of a difference is about a point.
    assert scores[True] > scores[False] - 0.03
