"""Rows too wide for a Gram matrix are projected, and the caller is told."""

import numpy as np
import pytest
import scipy.sparse as sp

import olss
import olss.core.leverage
from olss.core.row_blocks import Blocks
from olss.core.wide_rows import narrowed
from olss.errors import OlssWarning


def test_a_hundred_thousand_columns_form_no_square_matrix(monkeypatch):
    """5,000 sparse rows of 100,000 columns: the unusual rows still stand out."""
    monkeypatch.setattr(olss.core.leverage, "COLUMN_LIMIT", 1024)
    rng = np.random.default_rng(0)
    columns = rng.integers(200, size=(5000, 20))
    columns[:10] = rng.integers(200, 100_000, size=(10, 20))
    A = sp.csr_array(
        (np.ones(100_000), columns.ravel(), np.arange(0, 100_001, 20)), shape=(5000, 100_000)
    )
    with pytest.warns(OlssWarning, match=r"100,000 columns.*projection to 1,024"):
        scores = olss.leverage_scores(A, ridge=1.0)
    assert scores[:10].min() > 4 * scores[10:].max()


def test_dense_rows_and_tensors_project_alike(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(olss.core.leverage, "COLUMN_LIMIT", 30)
    A = np.random.default_rng(0).standard_normal((400, 50))
    with pytest.warns(OlssWarning, match="50 columns"):
        scores = olss.leverage_scores(A)
    assert scores.sum() == pytest.approx(30, rel=1e-6)
    with pytest.warns(OlssWarning):
        again = olss.leverage_scores(torch.from_numpy(A))
    np.testing.assert_allclose(again.numpy(), scores)


def test_few_wide_rows_need_no_projection():
    A = np.random.default_rng(0).standard_normal((40, 20_000)).astype(np.float32)
    A[1] = A[0]
    with pytest.warns(OlssWarning, match="carries no information"):
        scores = olss.leverage_scores(A)
    np.testing.assert_allclose(scores[:3], [0.5, 0.5, 1.0], rtol=1e-5)


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_the_projection_keeps_inner_products_in_expectation():
    """Entries of the projected Gram are unbiased: z-score of the mean entry error below 4."""
    A = np.random.default_rng(0).standard_normal((30, 600))
    (part,) = narrowed([Blocks(A)], 200)
    B = np.concatenate([block for _, block in part.read(np.dtype(np.float64))])
    assert B.shape == (30, 200)
    error = (B @ B.T - A @ A.T)[np.triu_indices(30, 1)]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
