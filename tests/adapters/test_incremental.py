"""Incremental estimators equal scikit-learn's on all rows, and keep scikit-learn's contract."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from olss.adapters.analytic import AnalyticClassifier, AnalyticRegressor
from olss.adapters.incremental import (
    IncrementalDiscriminant,
    IncrementalLogistic,
    IncrementalRidge,
    IncrementalRidgeClassifier,
)
from olss.errors import DataError, InputError

ALL = [
    IncrementalRidge(),
    IncrementalRidge("auto", fit_intercept=False),
    IncrementalRidge(random_features=50, feature_kind="cosine"),
    IncrementalRidgeClassifier(),
    IncrementalRidgeClassifier("auto"),
    IncrementalDiscriminant(),
    IncrementalDiscriminant("auto", random_features=50),
    IncrementalLogistic(),
    AnalyticClassifier(feature_settings={"width": 30}),
    AnalyticClassifier("raw", classifier="ridge"),
    AnalyticRegressor("raw"),
]


def not_kept(estimator):
    """Return what a map of single precision, fitted to the first rows, does not promise."""
    if not isinstance(estimator, AnalyticClassifier):
        return {}
    failed = {"check_methods_subset_invariance": "features are in single precision"}
    if estimator.features != "raw":
        reason = "weights do not change the feature map"
        failed["check_sample_weight_equivalence_on_dense_data"] = reason
    return failed


@parametrize_with_checks(ALL, expected_failed_checks=not_kept)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def numbers(n=1_000):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6)) + 4
    return X, X @ rng.standard_normal((6, 2)) + rng.standard_normal((n, 2))


def digits():
    X, y = load_digits(return_X_y=True)
    return X, np.array([f"digit {k}" for k in y])


def in_batches(model, X, y, order=None, batches=100, **more):
    order = np.arange(len(y)) if order is None else order
    for part in np.array_split(order, batches):
        model.partial_fit(X[part], y[part], **more)
    return model


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_that_of_all_rows(intercept):
    X, Y = numbers()
    theirs = Ridge(3.0, fit_intercept=intercept, solver="svd").fit(X, Y)
    ours = in_batches(IncrementalRidge(3.0, fit_intercept=intercept), X, Y)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)
    one = in_batches(IncrementalRidge(3.0, fit_intercept=intercept), X, Y[:, 0])
    assert one.coef_.shape == (6,)
    assert isinstance(one.intercept_, float)


def models():
    """Return pairs of ours and theirs."""
    return [
        (IncrementalRidgeClassifier(5.0), RidgeClassifier(5.0)),
        (
            IncrementalRidgeClassifier(5.0, fit_intercept=False),
            RidgeClassifier(5.0, fit_intercept=False),
        ),
        (IncrementalDiscriminant(0.1), LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)),
    ]


@pytest.mark.parametrize(("ours", "theirs"), models())
@pytest.mark.parametrize("few", [True, False], ids=["two classes", "ten"])
def test_classifiers_are_those_of_all_rows_in_any_order(ours, theirs, few):
    X, y = digits()
    keep = np.isin(y, ["digit 3", "digit 8"]) if few else np.ones(len(y), bool)
    X, y = X[keep], y[keep]
    theirs = theirs.fit(X, y)
    by_class = in_batches(clone(ours), X, y, np.argsort(y, kind="stable"), 15)
    shuffled = in_batches(clone(ours), X, y, np.random.default_rng(0).permutation(len(y)), 40)
    for model in (by_class, shuffled):
        if few or isinstance(ours, IncrementalRidgeClassifier):
            assert_allclose(model.coef_.ravel(), theirs.coef_.ravel(), rtol=1e-6, atol=1e-8)
            assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=1e-6)
        assert (model.predict(X) == theirs.predict(X)).all()


def test_probabilities_of_the_discriminant_are_those_of_all_rows():
    X, y = digits()
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2).fit(X, y)
    ours = in_batches(IncrementalDiscriminant(0.2), X, y, np.argsort(y))
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize(
    "model", [IncrementalRidgeClassifier(), IncrementalDiscriminant(0.1), IncrementalLogistic()]
)
def test_merged_models_know_the_classes_of_both(model):
    X, y = digits()
    X = X[:, ::4]
    first = np.isin(y, ["digit 1", "digit 5", "digit 9"])
    a, b = clone(model).fit(X[first], y[first]), clone(model).fit(X[~first], y[~first])
    whole = clone(model).fit(X, y)
    merged = a.merge(b)
    assert (merged.classes_ == whole.classes_).all()
    if isinstance(model, IncrementalLogistic):
        assert merged.score(X, y) > whole.score(X, y) - 0.05
    else:
        assert_allclose(merged.coef_, whole.coef_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", [IncrementalRidgeClassifier(), IncrementalDiscriminant(0.1)])
def test_forgotten_rows_were_never_there(model):
    X, y = digits()
    whole = clone(model).fit(X, y).forget(X[::3], y[::3])
    keep = np.arange(len(y)) % 3 != 0
    assert_allclose(whole.coef_, clone(model).fit(X[keep], y[keep]).coef_, rtol=1e-6, atol=1e-8)


def test_forgetting_and_merging_numbers():
    X, Y = numbers()
    a = IncrementalRidge().fit(X[:600], Y[:600]).merge(IncrementalRidge().fit(X[600:], Y[600:]))
    a.forget(X[100:800], Y[100:800])
    keep = np.r_[0:100, 800:1000]
    assert_allclose(a.coef_, Ridge(solver="svd").fit(X[keep], Y[keep]).coef_, rtol=1e-8)
    with pytest.raises(DataError, match="X"):
        a.forget(X, Y)


@pytest.mark.parametrize("batches", [1, 7, 1_000])
def test_a_half_life_does_not_depend_on_the_batches(batches):
    X, Y = numbers()
    ours = in_batches(IncrementalRidge(half_life=100.0), X, Y, batches=batches)
    weight = 0.5 ** (np.arange(999, -1, -1) / 100)
    theirs = Ridge(solver="svd").fit(X, Y, weight)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    with pytest.raises(InputError, match="sample_weight"):
        ours.forget(X[:5], Y[:5])
    ours.forget(X[-5:], Y[-5:], sample_weight=weight[-5:])
    left = Ridge(solver="svd").fit(X[:-5], Y[:-5], weight[:-5])
    assert_allclose(ours.coef_, left.coef_, rtol=1e-7)


def test_the_penalty_is_chosen_from_the_moments():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 60))
    y = X @ rng.standard_normal(60) * 0.2 + 3 * rng.standard_normal(120)
    X_new = rng.standard_normal((2_000, 60))
    auto = in_batches(IncrementalRidge("auto"), X, y, batches=10)
    assert auto.alpha_ > 1
    plain = IncrementalRidge(0.0).fit(X, y)
    assert np.var(auto.predict(X_new)) < np.var(plain.predict(X_new))


def test_random_features_make_it_nonlinear():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (3_000, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    assert IncrementalRidge().fit(X, y).score(X, y) < 0.3
    for kind in ("relu", "cosine"):
        model = IncrementalRidge(1e-6, random_features=400, feature_kind=kind)
        assert in_batches(model, X[:2000], y[:2000], batches=7).score(X[2000:], y[2000:]) > 0.97
    same = [IncrementalRidge(random_features=30, random_state=s).fit(X, y) for s in (1, 1, 2)]
    same[0].merge(same[1])
    with pytest.raises(InputError, match="random"):
        same[0].merge(same[2])


def test_logistic_of_one_batch_is_that_of_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    ours = IncrementalLogistic(C=0.5).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-5)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("by_class", [False, True])
def test_logistic_in_batches_is_near_that_of_all_rows(by_class):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    order = (
        np.argsort(y, kind="stable") if by_class else np.random.default_rng(0).permutation(len(y))
    )
    ours = in_batches(IncrementalLogistic(C=0.01), X, y, order, 10)
    theirs = LogisticRegression(C=0.01).fit(X, y)
    loss = log_loss(y, ours.predict_proba(X)) / log_loss(y, theirs.predict_proba(X))
    assert loss < (1.25 if by_class else 1.05)


def test_logistic_learns_classes_as_they_come():
    X, y = digits()
    X = X / 16
    ours = in_batches(IncrementalLogistic(), X, y, np.argsort(y, kind="stable"), 10)
    assert ours.score(X, y) > 0.93
    assert_allclose(ours.predict_proba(X).sum(axis=1), 1)


def test_a_class_named_ahead_is_known_and_not_answered():
    X, y = load_digits(return_X_y=True)
    model = IncrementalDiscriminant(0.1).partial_fit(X[y < 3], y[y < 3], classes=np.arange(10))
    assert (model.classes_ == np.arange(10)).all()
    assert set(model.predict(X)) <= {0, 1, 2}
    assert (model.predict_proba(X)[:, 3:] == 0).all()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (IncrementalRidge(-1.0), "alpha"),
        (IncrementalRidge("best"), "alpha"),
        (IncrementalRidge(half_life=0), "half_life"),
        (IncrementalRidge(random_features=0), "random_features"),
        (IncrementalRidge(random_features=5, feature_kind="tanh"), "kind"),
        (IncrementalDiscriminant("much"), "shrinkage"),
        (IncrementalLogistic(C=0), "C"),
    ],
)
def test_wrong_settings_are_named(model, name):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(InputError, match=name):
        model.fit(X[:50], y[:50])


def test_a_failed_fit_changes_nothing():
    X, Y = numbers()
    model = IncrementalRidge().fit(X, Y)
    before = model.coef_
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X * np.nan, Y)
    assert_allclose(model.coef_, before)
    with pytest.raises(InputError, match="other"):
        model.merge(IncrementalRidgeClassifier().fit(X, Y[:, 0] > 0))
    with pytest.raises(InputError, match="features"):
        model.merge(IncrementalRidge().fit(X[:, :3], Y))


def images():
    X, y = load_digits(return_X_y=True)
    return X.reshape(-1, 8, 8), y


def test_images_come_class_by_class_and_answers_are_those_of_all_at_once():
    X, y = images()
    settings = {"centres": 20, "images": X}  # one map for both
    parts = AnalyticClassifier(feature_settings=settings, ridge=0.01)
    for digit in range(10):
        parts.partial_fit(X[y == digit], y[y == digit])
    whole = AnalyticClassifier(feature_settings=settings, ridge=0.01).fit(X, y)
    assert (parts.classes_ == np.arange(10)).all()
    assert (parts.predict(X) == whole.predict(X)).mean() > 0.995
    assert_allclose(parts.predict_proba(X).sum(axis=1), 1)
    assert parts.stored_bytes_ == whole.stored_bytes_ > parts.moments_.nbytes


def test_analytic_classifiers_forget_and_merge():
    X, y = images()
    settings = {"centres": 20, "images": X}
    a, b, both = (AnalyticClassifier(feature_settings=settings, ridge=0.01) for _ in range(3))
    a.partial_fit(X[y < 5], y[y < 5])
    b.partial_fit(X[y >= 5], y[y >= 5])
    both.fit(X, y)
    a.merge(b)
    assert (a.predict(X) == both.predict(X)).mean() > 0.995
    weights = np.where(y == 3, 2.0, 1.0)
    both.partial_fit(X[y == 3], y[y == 3], sample_weight=weights[y == 3] / 2)
    doubled = AnalyticClassifier(feature_settings=settings, ridge=0.01).fit(X, y, weights)
    assert_allclose(both.moments_.cross, doubled.moments_.cross, atol=0.05)
    a.forget(X[y >= 5], y[y >= 5])
    assert set(a.predict(X)) == set(range(5))
    before = a.moments_
    with pytest.raises(InputError, match="y"):
        a.forget(X[:3], [11, 12, 13])
    with pytest.raises(InputError, match="other"):
        a.merge(AnalyticClassifier(feature_settings={"centres": 20}).fit(X[:200], y[:200]))
    with pytest.raises(DataError, match="X"):
        a.partial_fit(X[:, :, :6], y)
    assert a.moments_ is before
    assert list(a.classes_) == list(range(10))
    with pytest.raises(InputError, match="centres"):
        AnalyticClassifier(feature_settings={"centers": 20}).fit(X, y)
    fading = AnalyticClassifier("raw", half_life=100).fit(X, y)
    assert fading.moments_.weight < 150
    with pytest.raises(InputError, match="sample_weight"):
        fading.forget(X[:5], y[:5])


def test_analytic_regression_of_images_is_ridge_on_all_rows():
    X, y = images()
    targets = np.column_stack([X.mean((1, 2)), y])
    model = AnalyticRegressor("raw", ridge=1e-3)
    for part in np.array_split(np.arange(len(y)), 7):
        model.partial_fit(X[part], targets[part])
    flat = X.reshape(len(X), -1)
    alpha = 1e-3 * ((flat - flat.mean(0)) ** 2).sum(0).mean()
    theirs = Ridge(alpha).fit(flat, targets)
    assert_allclose(model.predict(X), theirs.predict(flat), atol=1e-3)
    assert AnalyticRegressor(feature_settings={"centres": 30}).fit(X, y).score(X, y) > 0.8
