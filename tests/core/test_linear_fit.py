"""Models from moments equal scikit-learn's and NumPy's on all rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.covariance import oas
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV

from olss.core.linear_fit import (
    choose_ridge,
    find_components,
    fit_discriminant,
    fit_linear,
    solve_ridge,
)
from olss.core.moments import Moments, one_hot
from olss.errors import InputError


def ordinary(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8)) @ rng.standard_normal((8, 8)) + 3
    Y = X @ rng.standard_normal((8, 2)) + rng.standard_normal((n, 2)) + 5
    return X, Y


def streamed(X, Y, weight=None, batches=100):
    """Return moments that came in batches, half of them merged, some rows subtracted again."""
    halves = [Moments.empty(X.shape[1], Y.shape[1]) for _ in range(2)]
    for i, part in enumerate(np.array_split(np.arange(len(X)), batches)):
        w = None if weight is None else weight[part]
        halves[i % 2] = halves[i % 2].update(X[part], Y[part], w)
    extra = Moments.empty(X.shape[1], Y.shape[1]).update(X[:50][::-1], Y[:50] - 1)
    return halves[0].merge(extra).merge(halves[1]).subtract(extra)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 50.0])
def test_ridge_is_that_of_all_rows(ridge, intercept):
    X, Y = ordinary()
    w = np.random.default_rng(1).uniform(0.1, 2, len(X))
    truth = Ridge(alpha=ridge, fit_intercept=intercept, solver="svd").fit(X, Y, w)
    coef, constant = solve_ridge(streamed(X, Y, w), ridge, intercept=intercept)
    assert_allclose(coef.T, truth.coef_, rtol=1e-8, atol=1e-9)
    assert_allclose(constant, truth.intercept_ if intercept else 0, rtol=1e-8, atol=1e-9)


def ugly(kind):
    rng = np.random.default_rng(0)
    n = 3_000
    X = rng.standard_normal((n, 10))
    if kind == "graded":
        X *= 10.0 ** -np.arange(10)
    if kind == "years":
        X[:, 0] = rng.integers(1900, 2001, n)
        X[:, 1] = X[:, 0] ** 2
    if kind == "offsets":
        X += 10.0 ** np.arange(10)
    if kind == "collinear":
        X[:, 5:] = X[:, :5] @ rng.standard_normal((5, 5))
    if kind == "one-hot":
        X[:, :5] = np.eye(5)[rng.integers(5, size=n)]
        X[:, 5] = 1.0
    if kind == "nearly collinear":
        X[:, 9] = X[:, 0] + 1e-5 * X[:, 9]
    if kind == "one row apart":
        X[:, 3] = 0
        X[17, 3] = 1.0
    if kind == "more columns than rows":
        X = rng.standard_normal((40, 100))
    standard = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1)
    signal = standard @ rng.standard_normal(X.shape[1])
    return X, signal + rng.standard_normal(len(X))


KINDS = [
    "graded", "years", "offsets", "collinear", "one-hot", "nearly collinear", "one row apart",
    "more columns than rows",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_hold_on_ugly_columns(kind):
    X, y = ugly(kind)
    wide = np.column_stack([X - X.mean(axis=0), np.ones(len(X))])
    scale = np.linalg.norm(wide, axis=0)
    scale[scale == 0] = 1
    truth = wide @ (np.linalg.lstsq(wide / scale, y, rcond=1e-12)[0] / scale)
    coef, constant = solve_ridge(streamed(X, y[:, None], batches=20))
    assert np.linalg.norm(X @ coef[:, 0] + constant - truth) < 1e-4 * np.linalg.norm(truth)


def test_least_squares_of_collinear_columns_has_minimum_norm():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(500)
    X = np.column_stack([x, x, 1000 * x])
    coef, _ = solve_ridge(streamed(X, x[:, None]))
    assert_allclose(coef[:, 0], [1 / 3, 1 / 3, 1 / 3000], rtol=1e-8)


def test_errors_are_those_of_the_textbook():
    X, Y = ordinary()
    fit = fit_linear(streamed(X, Y))
    wide = np.column_stack([np.ones(len(X)), X])
    beta, rss, _, _ = np.linalg.lstsq(wide, Y, rcond=None)
    variance = rss / (len(X) - 9)
    errors = np.sqrt(np.outer(np.linalg.inv(wide.T @ wide).diagonal(), variance))
    assert_allclose(fit.coef, beta[1:], rtol=1e-8)
    assert_allclose(fit.residual_variance, variance, rtol=1e-8)
    assert_allclose(fit.intercept_error, errors[0], rtol=1e-8)
    assert_allclose(fit.coef_error, errors[1:], rtol=1e-8)
    assert_allclose(fit.degrees, 9)
    model = LinearRegression().fit(X, Y)
    both = [
        1 - ((Y - model.predict(X)) ** 2).sum(0)[k] / ((Y - Y.mean(0)) ** 2).sum(0)[k]
        for k in (0, 1)
    ]
    assert_allclose(fit.r2, both, rtol=1e-8)


def test_errors_with_a_ridge_cover_the_spread_of_estimates():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4))
    beta = np.array([1.0, -2, 0.5, 3])
    fits = [
        fit_linear(Moments.empty(4, 1).update(X, X @ beta + rng.standard_normal(60)), 20.0)
        for _ in range(800)
    ]
    spread = np.std([fit.coef[:, 0] for fit in fits], axis=0)
    stated = np.mean([fit.coef_error[:, 0] for fit in fits], axis=0)
    assert_allclose(stated, spread, rtol=0.15)


def test_a_weight_counts_as_rows_repeated():
    X, Y = ordinary(300)
    w = np.random.default_rng(0).integers(0, 4, 300)
    a = fit_linear(Moments.empty(8, 2).update(X, Y, w), 5.0)
    b = fit_linear(
        Moments.empty(8, 2).update(np.repeat(X, w, axis=0), np.repeat(Y, w, axis=0)), 5.0
    )
    assert_allclose(a.coef_error, b.coef_error, rtol=1e-8)
    assert_allclose(a.intercept_error, b.intercept_error, rtol=1e-8)


def test_no_degree_of_freedom_left_is_said():
    X, Y = ordinary(5)
    fit = fit_linear(Moments.empty(8, 2).update(X, Y))
    assert np.isnan(fit.coef_error).all()
    assert_allclose(X @ fit.coef + fit.intercept, Y, rtol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
def test_cross_validation_chooses_as_scikit_learn_does(intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 30)) @ rng.standard_normal((30, 30)) + 1
    y = X @ rng.standard_normal(30) + 30 * rng.standard_normal(80)
    found = choose_ridge(Moments.empty(30, 1).update(X, y), intercept=intercept)

    def gcv(ridge):
        A = X - X.mean(0) if intercept else X
        b = y - y.mean() if intercept else y
        H = A @ np.linalg.solve(A.T @ A + ridge * np.eye(30), A.T)
        return ((b - H @ b) ** 2).sum() / (80 - intercept - np.trace(H)) ** 2

    grid = found * np.exp(np.linspace(-5, 5, 201))
    assert_allclose(grid[np.argmin([gcv(r) for r in grid])], found, rtol=0.06)
    near = RidgeCV(np.exp(np.linspace(-8, 12, 100)), fit_intercept=intercept).fit(X, y).alpha_
    assert 0.2 < found / near < 5  # leaves one out exactly, which is another criterion


def test_cross_validation_of_odd_targets():
    X, Y = ordinary(100)
    assert choose_ridge(Moments.empty(8, 1).update(X, np.ones(100))) == 0
    assert choose_ridge(Moments.empty(8, 1).update(0 * X, Y[:, 0])) == 0
    few = choose_ridge(Moments.empty(8, 1).update(X[:5], Y[:5, 0]))
    assert np.isfinite(few)


def classes(n=1_500):
    rng = np.random.default_rng(0)
    codes = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    X = (
        rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6))
        + 2 * rng.standard_normal((4, 6))[codes]
    )
    return X, codes


@pytest.mark.parametrize("shrinkage", [None, 0.3])
def test_discriminant_is_that_of_all_rows(shrinkage):
    X, codes = classes()
    truth = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X, codes)
    moments = Moments.empty(6, 4)
    for k in np.argsort([2, 0, 3, 1]):  # one class after the other
        moments = moments.update(X[codes == k], one_hot(codes[codes == k], 4))
    fit = fit_discriminant(moments, shrinkage)
    scores = X @ fit.coef + fit.intercept
    found = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert_allclose(found, truth.predict_log_proba(X), rtol=1e-7, atol=1e-8)
    assert_allclose(fit.means, truth.means_, rtol=1e-9)
    assert_allclose(fit.priors, truth.priors_, rtol=1e-9)


def test_oracle_shrinkage_is_that_of_scikit_learn():
    X, codes = classes(60)
    centred = X - np.array([X[codes == k].mean(0) for k in range(4)])[codes]
    _, amount = oas(centred, assume_centered=True)
    moments = Moments.empty(6, 4).update(X, one_hot(codes, 4))
    auto, near = fit_discriminant(moments, "auto"), fit_discriminant(moments, amount)
    assert_allclose(auto.coef, near.coef, rtol=1e-8)


def test_a_class_without_rows_is_never_the_answer():
    X, codes = classes()
    moments = Moments.empty(6, 4).update(X, one_hot(codes, 4)).pad(5)
    fit = fit_discriminant(moments)
    assert fit.intercept[4] == -np.inf
    assert np.isfinite(fit.coef).all()


def test_a_column_constant_within_classes_is_left_out():
    X, codes = classes()
    wide = np.column_stack([X, codes])
    fit = fit_discriminant(Moments.empty(7, 4).update(wide, one_hot(codes, 4)))
    narrow = fit_discriminant(Moments.empty(6, 4).update(X, one_hot(codes, 4)))
    assert_allclose(wide @ fit.coef + fit.intercept, X @ narrow.coef + narrow.intercept, atol=1e-6)


def test_components_are_those_of_all_rows():
    X, Y = ordinary()
    truth = PCA(3).fit(X)
    found = find_components(streamed(X, Y), 3)
    signs = np.sign((truth.components_ * found.components).sum(axis=1))
    assert_allclose(found.components * signs[:, None], truth.components_, rtol=1e-7, atol=1e-8)
    assert_allclose(found.variance, truth.explained_variance_, rtol=1e-8)
    assert_allclose(found.variance_ratio, truth.explained_variance_ratio_, rtol=1e-8)
    with pytest.raises(InputError, match="k"):
        find_components(streamed(X, Y), 9)


def test_after_a_half_life_the_model_is_that_of_faded_weights():
    X, Y = ordinary()
    moments = Moments.empty(8, 2)
    age = np.zeros(len(X))
    for part in np.array_split(np.arange(len(X)), 100):
        moments = moments.scale(0.9).update(X[part], Y[part])
        age[: part[0]] += 1
    truth = Ridge(1.0, solver="svd").fit(X, Y, 0.9**age)
    assert_allclose(solve_ridge(moments, 1.0)[0].T, truth.coef_, rtol=1e-8, atol=1e-9)


def test_float32_moments_give_a_ridge_of_four_digits():
    X, Y = ordinary()
    single = Moments.empty(8, 2, np.float32).update(X.astype(np.float32), Y)
    assert_allclose(
        solve_ridge(single, 1.0)[0], solve_ridge(streamed(X, Y), 1.0)[0], rtol=1e-3, atol=1e-4
    )


def test_nothing_seen_and_wrong_settings_are_named():
    X, Y = ordinary(50)
    with pytest.raises(InputError, match="rows"):
        solve_ridge(Moments.empty(3, 1))
    with pytest.raises(InputError, match="ridge"):
        solve_ridge(streamed(X, Y), -1.0)
    with pytest.raises(InputError, match="shrinkage"):
        fit_discriminant(Moments.empty(8, 2).update(X, one_hot(np.arange(50) % 2, 2)), 1.5)


def test_the_coarse_search_of_wide_moments_ends_near_the_exact_one(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 60)) * np.geomspace(1, 0.05, 60)
    Y = X @ rng.standard_normal((60, 3)) + rng.standard_normal((200, 3))
    moments = Moments.empty(60, 3).update(X, Y)
    exact = choose_ridge(moments)
    monkeypatch.setattr("olss.core.linear_fit.WIDE", 10)
    for start in (None, 1e-4 * exact, 1e4 * exact):
        assert 0.3 < choose_ridge(moments, start=start) / exact < 3


def test_a_ridge_of_the_discriminant_is_a_shrinkage():
    X, codes = classes()
    moments = Moments.empty(6, 4).update(X, one_hot(codes, 4))
    within = (
        LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, codes).covariance_
    )
    ridge = 500.0
    truth = np.linalg.solve(
        within + ridge / len(X) * np.eye(6), (fit_discriminant(moments).means - X.mean(0)).T
    )
    assert_allclose(fit_discriminant(moments, ridge=ridge).coef, truth, rtol=1e-7)
