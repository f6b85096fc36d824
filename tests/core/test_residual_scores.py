from __future__ import annotations

import numpy as np
import pytest

from olss.core.residual_scores import fit_logistic, fit_ridge


def rows(seed, n=600, d=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 10 * rng.standard_normal(d)
    return X.astype(np.float32), rng.uniform(0.2, 3, n), rng


@pytest.mark.parametrize("outputs", [1, 3])
def test_numbers_are_those_of_ridge_regression(outputs):
    from sklearn.linear_model import Ridge

    X, w, rng = rows(0)
    y = X @ rng.standard_normal((4, outputs)) + rng.standard_normal((600, outputs))
    mean = np.average(X, axis=0, weights=w)
    Z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    model = Ridge(alpha=0.01 * w.sum()).fit(Z, y, sample_weight=w)
    truth = np.linalg.norm(y - model.predict(Z).reshape(y.shape), axis=1)
    # Products of rows are taken in float32.
    np.testing.assert_allclose(fit_ridge(X, y, w).residual_norms(X, y), truth, atol=1e-3)


def test_classes_are_those_of_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    X, w, rng = rows(1, n=4_000)
    signal = (X - X.mean(axis=0)) @ rng.standard_normal((4, 3))
    y = (signal + 3 * rng.gumbel(size=(4_000, 3))).argmax(axis=1)
    p = LogisticRegression(C=1e6, max_iter=5_000).fit(X, y, sample_weight=w).predict_proba(X)
    truth = np.linalg.norm(p - np.eye(3)[y], axis=1)
    off = fit_logistic(X, y, w, 3).residual_norms(X, y)
    # It is stopped early, and its penalty is what one row of 4,000 weighs.
    np.testing.assert_allclose(off, truth, atol=0.03)


def test_a_constant_column_and_a_class_without_rows_do_no_harm():
    X, w, _ = rows(2)
    X[:, 1] = 1e6
    y = (X[:, 0] > X[:, 0].mean()).astype(np.int64)
    off = fit_logistic(X, y, w, 3).residual_norms(X, y)
    assert np.isfinite(off).all()
    assert off.mean() < 0.3
    assert fit_ridge(X, y[:, None].astype(float), w).residual_norms(X, y[:, None]).mean() < 0.4


def test_more_columns_than_rows_are_fitted_too():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((20, 50)).astype(np.float32), rng.standard_normal((20, 1))
    assert (fit_ridge(X, y, np.ones(20)).residual_norms(X, y) < np.abs(y).max()).all()
    assert np.isfinite(
        fit_logistic(X, np.arange(20) % 2, np.ones(20), 2).residual_norms(X, np.arange(20) % 2)
    ).all()
