"""Estimators that stop, calibrate and choose settings by rows that no model is fitted to."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from olss.adapters.sklearn import ContinualClassifier, ContinualRegressor
from olss.errors import InputError


def rare(n=12_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = (rng.random(n) < 1 / (1 + np.exp(4.5 - 1.5 * X[:, 0]))).astype(int)
    return X, np.array(["fine", "fraud"])[y]


def fitted(estimator, X, y, kind=ContinualClassifier, **settings):
    model = kind(estimator, size=1_000, holdout=0.3, random_state=0, **settings)
    for part in np.array_split(np.arange(len(y)), 3):
        model.partial_fit(X[part], y[part])
    return model


def test_boosting_stops_by_the_holdout():
    X, y = rare()
    trees = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, random_state=0)
    model = fitted(trees, X, y, strata="y", early_stopping=True)
    assert model.estimator_.n_iter_ < 100
    assert len(model.sketch_) == 700  # all of which it was fitted to
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx((y == "fraud").mean(), rel=0.4)
    lightgbm = pytest.importorskip("lightgbm")
    trees = lightgbm.LGBMClassifier(n_estimators=300, early_stopping_round=10, verbose=-1, n_jobs=1)
    assert fitted(trees, X, y, strata="y", early_stopping=True).estimator_.best_iteration_ < 100


def test_settings_are_chosen_by_the_holdout():
    X, y = rare()
    grid = {"C": [1e-6, 1.0]}
    model = fitted(LogisticRegression(), X, y, strata="y", param_grid=grid)
    assert model.best_params_ == {"C": 1.0}
    assert model.estimator_.C == 1.0
    numbers = X @ [1.0, 2.0, 0.0]
    model = fitted(Ridge(), X, numbers, ContinualRegressor, param_grid={"alpha": [1e-3, 1e6]})
    assert model.best_params_ == {"alpha": 1e-3}
    model = fitted(LinearSVC(), X, y, param_grid=grid)  # no probabilities: by errors
    assert model.best_params_["C"] in (1e-6, 1.0)


def test_calibration_mends_probabilities_that_are_too_sure():
    losses = {}
    (X, y), (new, truth) = rare(), rare(seed=1)
    X, new = np.tile(X, 8), np.tile(new, 8)  # taken for independent columns
    for calibrate in (False, True):
        model = fitted(GaussianNB(), X, y, strata="y", calibrate=calibrate)
        proba = model.predict_proba(new)
        assert np.allclose(proba.sum(axis=1), 1)
        p = np.clip(proba[np.arange(len(new)), (truth == "fraud").astype(int)], 1e-12, 1)
        losses[calibrate] = -np.log(p).mean()
    assert losses[True] < 0.8 * losses[False]


def test_without_a_holdout_or_a_way_to_use_it_there_is_an_error():
    X, y = rare(2_000)
    for settings in ({"early_stopping": True}, {"calibrate": True}, {"param_grid": {"C": [1.0]}}):
        with pytest.raises(InputError, match=next(iter(settings))):
            ContinualClassifier(LogisticRegression(), **settings).fit(X, y)
    with pytest.raises(InputError, match="early_stopping"):
        fitted(KNeighborsClassifier(), X, y, early_stopping=True)
    with pytest.raises(InputError, match="param_grid"):
        fitted(LogisticRegression(), X, y, param_grid=[])
    with pytest.raises(InputError, match="calibrate"):
        fitted(RidgeClassifier(), X, y, calibrate=True)


def test_the_first_rows_and_a_single_class_have_a_model_all_the_same():
    X, _ = rare(40)
    settings = {"calibrate": True, "param_grid": {"C": [0.1, 1.0]}, "holdout": 0.3, "size": 100}
    model = ContinualClassifier(LogisticRegression(), random_state=0, **settings)
    model.partial_fit(X, np.full(40, "fine"), classes=["fine", "fraud"])
    assert (model.predict(X) == "fine").all()
    model.partial_fit(*rare(2_000))
    assert set(model.predict(rare(500)[0])) <= {"fine", "fraud"}
    trees = HistGradientBoostingRegressor(max_iter=5, early_stopping=True)
    model = ContinualRegressor(trees, holdout=0.3, early_stopping=True, random_state=0)
    assert np.isfinite(model.partial_fit(X[:30], X[:30, 0]).predict(X)).all()


def test_the_model_is_judged_by_the_same_rows():
    X, y = rare()
    model = fitted(LogisticRegression(), X, y, strata="y")
    found = model.sketch_.evaluate(model, "roc_auc", replicates=20)
    low, high = found.interval()
    assert 0.5 < low < found.value < high <= 1.1
