"""Logistic and Poisson objectives against numbers and scikit-learn, and the state in any order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss

from olss.core.corrected_glm import Followed, fit_kept_rows
from olss.core.glm import (
    GaussianTerm,
    LinearTerm,
    LogisticState,
    QuadraticTerm,
    RowTerm,
    forget_logistic,
    merge_logistic,
    minimize,
    update_logistic,
)
from olss.core.moments import Moments


def rows(n=4_000, seed=0, classes=2):
    rng, law = np.random.default_rng(seed), np.random.default_rng(9)
    X = rng.standard_normal((n, 5)) @ law.standard_normal((5, 5)) + 2
    scores = (X - 2) @ law.standard_normal((5, classes))
    scores += rng.gumbel(size=scores.shape)
    return X, scores.argmax(axis=1)


def rng_terms():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((30, 3)), rng.uniform(0, 2, 30)
    A = rng.standard_normal((3, 3))
    for family in ("logistic", "poisson"):
        yield RowTerm(X, rng.integers(0, 2, 30).astype(float), w, family)
        counts = np.array([3.0, 5.0])
        yield GaussianTerm(counts, rng.standard_normal((2, 3)), A @ A.T / 9, family)
    yield LinearTerm(rng.standard_normal(4))
    yield QuadraticTerm(np.eye(4) + 0.1, rng.standard_normal(4))


@pytest.mark.parametrize("term", list(rng_terms()), ids=lambda t: type(t).__name__)
def test_gradients_and_hessians_are_those_of_the_values(term):
    b = np.array([0.3, -0.5, 0.2, 0.1])
    _, gradient, hessian = term(b)
    assert_allclose(gradient, approx_fprime(b, lambda b: term(b)[0], 1e-7), rtol=1e-4, atol=1e-5)
    columns = approx_fprime(b, lambda b: term(b)[1], 1e-7)
    assert_allclose(hessian, columns, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_the_gaussian_term_is_the_mean_over_normal_rows(family):
    rng = np.random.default_rng(0)
    mean, cov = np.array([0.5, -0.2]), np.array([[0.5, 0.2], [0.2, 0.3]])
    X = rng.multivariate_normal(mean, cov, 400_000)
    b = np.array([1.0, -0.7, 0.3])
    found = GaussianTerm(np.ones(1), mean[None], cov, family)(b)
    truth = RowTerm(X, np.zeros(len(X)), np.full(len(X), 1 / len(X)), family)(b)
    for ours, theirs in zip(found, truth, strict=True):
        assert_allclose(ours, theirs, rtol=0.02, atol=0.01)


def test_the_minimum_is_that_of_scikit_learn():
    X, y = rows()
    for C in (0.1, 100.0):
        model = LogisticRegression(C=C, tol=1e-10, max_iter=5_000).fit(X, y)
        state = LogisticState.empty(5, 2)
        state = update_logistic(state, X, y, np.ones(len(y)), 1 / C)
        assert_allclose(state.coef[1, :-1], model.coef_[0], rtol=1e-5)
        assert_allclose(state.coef[1, -1], model.intercept_[0], rtol=1e-4)


def test_poisson_is_that_of_scikit_learn():
    X, _ = rows(500)
    y = np.random.default_rng(0).poisson(np.exp(X @ [0.1, -0.2, 0.1, 0, 0.05])).astype(float)
    model = PoissonRegressor(alpha=0, tol=1e-10, max_iter=5_000).fit(X, y)
    found = minimize([RowTerm(X, y, np.ones(500), "poisson")], np.zeros(6))
    assert_allclose(found, np.append(model.coef_, model.intercept_), rtol=1e-4, atol=1e-6)


def separable():
    X = np.array([[-1.0], [1.0]])
    return RowTerm(X, np.array([0.0, 1.0]), np.ones(2))


def test_separable_rows_end_somewhere():
    assert np.isfinite(minimize([separable()], np.zeros(2))).all()


def test_kept_rows_with_a_tilt_have_the_minimum_of_all_rows():
    # The tilt is exact at the fit to all rows, so that fit is where the tilted objective ends.
    X, y = rows()
    w, y = np.ones(len(y)), y.astype(float)
    full = minimize([RowTerm(X, y, w)], np.zeros(6))
    kept = slice(0, 200)
    part = RowTerm(X[kept], y[kept], np.full(200, len(X) / 200))
    c = RowTerm(X, y, w)(full)[1] - part(full)[1]
    J = RowTerm(X, y, w)(full)[2]
    tilted = minimize([part, LinearTerm(c), QuadraticTerm(0.5 * J, full)], np.zeros(6))
    assert_allclose(tilted, full, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("error", [0.0, 300.0])
def test_a_correction_that_makes_the_kept_rows_unlikely_is_not_taken(error):
    """300 of 4,000 rows, with the gradient and curvature of all at the fit to all, or not."""
    X, y = rows()
    everything = RowTerm(X, y.astype(float), np.ones(len(y)))
    kept = RowTerm(X[:300], everything.y[:300], np.full(300, len(y) / 300))
    full = minimize([everything], np.zeros(6))
    _, gradient, J = everything(full)
    t = kept.points @ full
    p = expit(t)
    past = Followed(full, gradient + error, J @ full, J, t, p, p * (1 - p))
    moments = Moments.empty(5, 1).update(X, y.astype(float))
    found = fit_kept_rows(moments, kept, 1e-6, followed=past)
    assert found.corrected == (error == 0)
    alone = minimize([kept, QuadraticTerm(1e-6 * np.eye(6), np.zeros(6))], np.zeros(6))
    assert_allclose(found.coef, alone if error else full, rtol=1e-3, atol=1e-3)


def streamed(X, y, order, batches=20, classes=2):
    state = LogisticState.empty(X.shape[1], classes)
    for part in np.array_split(order, batches):
        state = update_logistic(state, X[part], y[part], np.ones(len(part)), 1.0)
    return state


def excess(state, X, y):
    """Return how much worse than the fit to all rows the model is, on new rows, relatively."""
    X_new, y_new = rows(20_000, seed=7)
    full = LogisticRegression(C=1.0, tol=1e-10, max_iter=5_000).fit(X, y)
    ours = log_loss(y_new, expit(X_new @ state.coef[1, :-1] + state.coef[1, -1]))
    return ours / log_loss(y_new, full.predict_proba(X_new)[:, 1]) - 1


@pytest.mark.parametrize("order", ["as drawn", "by a column", "by class", "ten batches"])
def test_the_model_hardly_depends_on_the_order(order):
    X, y = rows()
    where = {"by a column": np.argsort(X[:, 0]), "by class": np.argsort(y, kind="stable")}
    state = streamed(X, y, where.get(order, np.arange(len(y))), 10 if order[0] == "t" else 20)
    # One class after the other, the model is that of normal distributions: near, not equal.
    assert excess(state, X, y) < (0.1 if order == "by class" else 0.005)


def test_skewed_columns_by_class_cost_little():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.exponential(1, (6_000, 3)), rng.integers(0, 2, (6_000, 3))])
    y = (rng.random(6_000) < expit(X @ [1, -2, 1, 1, -1, 0.5])).astype(int)
    by_class = np.argsort(y, kind="stable")
    found = streamed(X, y, by_class).coef[1]
    full = LogisticRegression(C=1.0, tol=1e-10, max_iter=5_000).fit(X, y)
    best = log_loss(y, full.predict_proba(X)[:, 1])
    assert log_loss(y, expit(X @ found[:-1] + found[-1])) < 1.05 * best


def test_classes_as_they_come():
    X, y = rows(classes=4)
    state = LogisticState.empty(5, 1)
    for k in range(4):
        part = y == k
        state = state.arrange_targets(np.arange(k + 1))
        state = update_logistic(state, X[part], y[part], np.ones(part.sum()), 1.0)
    answers = (X @ state.coef[:, :-1].T + state.coef[:, -1]).argmax(axis=1)
    full = LogisticRegression(C=1.0, max_iter=2_000).fit(X, y)
    assert (answers == y).mean() > full.score(X, y) - 0.02


def test_merging_is_near_seeing_both():
    X, y = rows()
    half = np.argsort(X[:, 1])
    a, b = streamed(X, y, half[:2_000]), streamed(X, y, half[2_000:])
    assert excess(merge_logistic(a, b, 1.0), X, y) < 0.02
    assert merge_logistic(a, LogisticState.empty(5, 2), 1.0) is a


def test_forgotten_rows_pull_no_more():
    X, y = rows()
    odd = np.full((300, 5), 5.0), np.zeros(300, int)
    state = update_logistic(streamed(X, y, np.arange(4_000)), *odd, np.ones(300), 1.0)
    before = excess(state, X, y)
    state = forget_logistic(state, *odd, np.ones(300), 1.0)
    assert abs(excess(state, X, y)) < 0.003 < before
    everything = forget_logistic(streamed(X, y, np.arange(4_000)), X, y, np.ones(4_000), 1.0)
    assert everything.moments.weight == 0


def test_far_offsets_do_not_matter():
    X, y = rows()
    near, far = streamed(X, y, np.arange(4_000)), streamed(X + 1e5, y, np.arange(4_000))
    assert_allclose(far.coef[1, :-1], near.coef[1, :-1], rtol=1e-3, atol=1e-4)


def test_without_an_intercept_there_is_none():
    X, y = rows()
    state = update_logistic(LogisticState.empty(5, 2), X, y, np.ones(len(y)), 1.0, intercept=False)
    model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=5_000).fit(X, y)
    assert_allclose(state.coef[1, :-1], model.coef_[0], rtol=1e-4)
    assert abs(state.coef[1, -1]) < 1e-8
