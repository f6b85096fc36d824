"""The last rung: a sparse sketch, and scores of matrices no Gram matrix can hold."""

import numpy as np
import pytest
import scipy.sparse as sp

from olss.core.blocks import Blocks
from olss.core.qr import (
    factor_rows,
    is_null_vector,
    preconditioned_scores,
    sparse_sketch,
    stacked_qr,
)

WIDE = np.dtype(np.float64)


def test_a_sparse_sketch_keeps_the_gram_matrix_in_expectation():
    """E[(SA)'SA] = A'A: mean over 400 sketches within 5 standard errors in every entry."""
    A = np.random.default_rng(0).standard_normal((300, 4))
    w = np.random.default_rng(1).random(300) + 0.5
    draws = []
    for seed in range(400):
        S = sparse_sketch(
            [Blocks(A[:120], w[:120]), Blocks(A[120:], w[120:])],
            40,
            np.random.default_rng(seed),
            WIDE,
        )
        draws.append(S.T @ S)
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    truth = (A * w[:, None]).T @ A
    assert (abs(np.mean(draws, axis=0) - truth) <= 5 * error).all()
    assert error.max() > 0


def test_rows_of_a_sparse_sketch_can_be_scaled_to_norm_1():
    A = np.random.default_rng(0).standard_normal((300, 4)) * np.logspace(0, 12, 300)[:, None]
    S = sparse_sketch([Blocks(A)], 300, np.random.default_rng(0), WIDE, unit_rows=True)
    assert abs(S).max() < 6


@pytest.mark.parametrize("condition", [1e2, 1e8, 1e11])
def test_scores_survive_any_condition(condition):
    """A = U diag(s) V' with known U: its leverage is that of U whatever s is."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((500, 10)))[0]
    V = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    A = U * np.logspace(0, -np.log10(condition), 10) @ V.T
    (scores,) = preconditioned_scores([Blocks(A)], 0.0)
    np.testing.assert_allclose(scores, (U**2).sum(axis=1), rtol=condition * 1e-13)


def test_weights_and_a_ridge():
    rng = np.random.default_rng(0)
    A, w = rng.standard_normal((400, 8)), rng.random(400) + 0.5
    G = (A * w[:, None]).T @ A + 2 * np.eye(8)
    scores = preconditioned_scores([Blocks(A[:99], w[:99]), Blocks(A[99:], w[99:])], 2.0)
    truth = np.einsum("ij,ij->i", A, np.linalg.solve(G, A.T).T)
    np.testing.assert_allclose(np.concatenate(scores), truth, rtol=1e-10)


def test_one_row_decides_whether_a_combination_vanishes():
    A = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    A[:, 2] = A[:, 0]
    v, norms = np.array([1.0, 0.0, -1.0]), np.linalg.norm(A.astype(np.float64), axis=0)
    assert is_null_vector([Blocks(A)], v, norms)
    A[7, 2] *= 1 + 1e-5
    assert not is_null_vector([Blocks(A)], v, norms)
    weights = np.ones(1000)
    weights[7] = 0
    assert is_null_vector([Blocks(A, weights)], v, norms)


@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_stacked_rows_have_the_gram_matrix_of_all(ridge):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 6)) @ rng.standard_normal((6, 10)) * np.logspace(0, 6, 10)
    w = rng.random(300) + 0.5
    B = stacked_qr([Blocks(A[:100], w[:100]), Blocks(sp.csr_array(A[100:]), w[100:])])
    assert B.shape == (6, 10)
    G = (A * w[:, None]).T @ A
    np.testing.assert_allclose(B.T @ B, G, rtol=1e-9, atol=1e-9 * abs(G).max())
    factor = factor_rows(B, ridge)
    rows = A * np.sqrt(w)[:, None] / np.logspace(0, 6, 10)  # units do not matter without a ridge
    truth = (np.linalg.svd(rows, full_matrices=False)[0][:, :6] ** 2).sum(axis=1) / w
    if ridge:
        truth = np.einsum("ij,ij->i", A, np.linalg.solve(G + ridge * np.eye(10), A.T).T)
    np.testing.assert_allclose(factor(A), truth, rtol=1e-4)
    assert factor.dimension == pytest.approx(factor(A) @ w, rel=1e-6)
