"""The streaming form: Grams add up, merge, and score rows they never held."""

import numpy as np
import pytest
import scipy.sparse as sp

import olss
from olss.core.gram import RidgeRule, column_limit, factor_gram
from olss.errors import DataError, InputError


@pytest.fixture
def A():
    return np.random.default_rng(0).standard_normal((900, 12)).astype(np.float32)


def test_blocks_and_merges_in_any_order_give_the_same_scores(A):
    w = np.random.default_rng(1).random(900) + 0.1
    whole = olss.Gram().update(A, w)
    left = olss.Gram().update(A[:10], w[:10]).update(A[10:400], w[10:400])
    right = olss.Gram().merge(olss.Gram().update(A[400:], w[400:])).merge(olss.Gram())
    merged = left.merge(right)
    np.testing.assert_allclose(merged.matrix, whole.matrix, rtol=1e-12)
    assert (merged.rows, merged.columns) == (900, 12)
    assert merged.weight == pytest.approx(w.sum())
    np.testing.assert_allclose(
        merged.scorer()(A) * w, olss.leverage_scores(A, weights=w), rtol=1e-4
    )


def test_merging_leaves_the_other_gram_alone(A):
    one, two = olss.Gram(), olss.Gram().update(A)
    one.merge(two).update(A)
    np.testing.assert_allclose(one.matrix, 2 * two.matrix)


def test_sparse_rows_and_images_are_taken(A):
    np.testing.assert_allclose(
        olss.Gram().update(sp.csr_array(A)).matrix, olss.Gram().update(A).matrix, rtol=1e-12
    )
    assert olss.Gram().update(A.reshape(900, 3, 2, 2)).columns == 12


@pytest.mark.parametrize("options", [{"ridge": 5.0}, {"ridge": "auto", "size": 100}, {"rank": 3}])
def test_a_scorer_takes_the_ridges_of_leverage_scores(A, options):
    score = olss.Gram().update(A).scorer(**options)
    expected = olss.leverage_scores(A, **options)
    np.testing.assert_allclose(score(A), expected, rtol=1e-3)
    assert score.dimension == pytest.approx(expected.sum(), rel=1e-3)


def test_dependent_columns_count_once(A):
    doubled = np.hstack([A, A, np.zeros_like(A)])
    score = olss.Gram().update(doubled).scorer()
    assert score.dimension == 12
    np.testing.assert_allclose(score(doubled), olss.leverage_scores(A), rtol=1e-4)


def test_the_scoring_matrix_whitens_the_gram(A):
    """W'(G + ridge I)W is the identity on the columns kept: the definition of the factor."""
    G = olss.Gram().update(A).matrix
    for ridge in (0.0, 7.0):
        factor = factor_gram(G, ridge, 1e-10)
        np.testing.assert_allclose(
            factor.W.T @ (G + ridge * np.eye(12)) @ factor.W, np.eye(12), atol=1e-12
        )
        assert not np.tril(factor.W, -1).any()


def test_bad_rows_leave_the_gram_as_it_was(A):
    gram = olss.Gram().update(A)
    before = gram.matrix.copy()
    for bad, message in (
        (A[:, :5], "12 columns as before, found 5"),
        (np.full((2, 12), np.nan), "found NaN in row 0"),
        (np.full((2, 12), 1e200), "too large to square"),
        (np.zeros((0, 12)), "at least one row"),
    ):
        with pytest.raises(DataError, match=message):
            gram.update(bad)
    np.testing.assert_array_equal(gram.matrix, before)
    assert gram.rows == 900


def test_errors_name_the_remedy(A):
    with pytest.raises(InputError, match="no rows"):
        olss.Gram().scorer()
    with pytest.raises(InputError, match="at most 4,096 columns, found 4,097"):
        olss.Gram().update(np.zeros((1, column_limit() + 1)))
    with pytest.raises(DataError, match="must have 12 columns, found 3"):
        olss.Gram().update(A).scorer()(A[:, :3])
    with pytest.raises(DataError, match="found NaN in row 1"):
        olss.Gram().update(A).scorer()(np.vstack([A[:1], np.full((1, 12), np.nan)]))


def test_the_automatic_ridge_solves_for_the_dimension():
    s = np.logspace(3, -3, 50)
    for target in (0.5, 3.0, 20.0, 49.0):
        ridge = RidgeRule("auto", dimension=target).of_spectrum(s)
        assert (s / (s + ridge)).sum() == pytest.approx(target, rel=1e-6)
    assert RidgeRule("auto", dimension=50).of_spectrum(s) == 0
    assert RidgeRule("auto", dimension=5).of_spectrum(np.zeros(4)) == 0


def test_a_gram_of_a_matrix_formed_elsewhere(A):
    whole = olss.Gram().update(A)
    made = olss.Gram.of(whole.matrix, 900)
    assert (made.rows, made.weight, made.columns) == (900, 900.0, 12)
    np.testing.assert_array_equal(made.scorer()(A), whole.scorer()(A))
    assert olss.Gram.of(whole.matrix, 900, 7.5).merge(made).weight == 907.5


@pytest.mark.parametrize("k", [3, 12, 20])
def test_a_factor_through_a_map_scores_what_the_map_makes(A, k):
    T = np.random.default_rng(1).standard_normal((k, 12))
    G = olss.Gram().update(A).matrix
    factor = factor_gram(T @ G @ T.T, 0.0, 1e-10)
    through = factor.through(T, np.sqrt(G.diagonal()))
    assert not np.tril(through.W, -1).any()
    np.testing.assert_allclose(through(A), factor(A.astype(np.float64) @ T.T), rtol=1e-4)
