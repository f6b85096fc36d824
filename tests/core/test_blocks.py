"""Whatever holds the numbers, blocks of floats come out."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import olss
import olss.core.leverage
from olss.core.blocks import Blocks, project_columns, to_numpy
from olss.errors import DataError, OlssWarning

A = np.arange(60, dtype=np.float64).reshape(20, 3) % 7
KINDS = {
    "numpy": A,
    "uint8": A.astype(np.uint8),
    "float16": A.astype(np.float16),
    "fortran": np.asfortranarray(A),
    "images": A.reshape(20, 3, 1),
    "sparse": sp.csr_array(A),
    "torch": torch.from_numpy(A),
    "torch bfloat16": torch.from_numpy(A).to(torch.bfloat16),
    "list": A.tolist(),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_put_together_are_the_source(name, dtype, monkeypatch):
    monkeypatch.setattr("olss.core.blocks.BLOCK_BYTES", 1)
    blocks = Blocks(np.repeat(A, 10, axis=0) if name == "numpy" else KINDS[name])
    read = [
        block.toarray() if sp.issparse(block) else block.copy()
        for _, block in blocks.read(np.dtype(dtype))
    ]
    together = np.concatenate(read)
    assert together.dtype == dtype
    np.testing.assert_array_equal(together, np.repeat(A, 10, axis=0) if name == "numpy" else A)
    if name == "numpy":
        assert len(read) > 1
    assert (blocks.rows, blocks.columns) == together.shape


def test_no_copy_is_made_of_what_fits_already():
    block = next(block for _, block in Blocks(A).read(np.dtype(np.float64)))
    assert np.shares_memory(block, A)


def test_a_column_scale_multiplies_columns():
    for source in (A, sp.csr_array(A), torch.from_numpy(A)):
        blocks = Blocks(source)
        blocks.scale = np.array([1.0, 2.0, 4.0])
        (block,) = (block for _, block in blocks.read(np.dtype(np.float32)))
        dense = block.toarray() if sp.issparse(block) else block
        np.testing.assert_array_equal(dense, A * [1, 2, 4])
        np.testing.assert_array_equal(blocks.max_abs(), [6, 12, 24])


def test_only_the_first_bad_row_is_named():
    bad = A.copy()
    bad[[4, 9], 1] = np.inf, np.nan
    for source in (bad, sp.csr_array(bad), torch.from_numpy(bad)):
        with pytest.raises(
            DataError, match="table must be finite, found an infinite value in row 4"
        ):
            Blocks(source, name="table").check_finite()


def test_a_complex_tensor_is_refused():
    with pytest.raises(DataError, match="real numbers"):
        Blocks(torch.ones((2, 2), dtype=torch.complex64))


def test_to_numpy_takes_gradients_away():
    assert to_numpy(torch.ones(3, requires_grad=True)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([[1, 2], [3]], "X must be an array, found rows of different lengths"),
        ([[1, 2], "ab"], "X must be an array, found rows of different lengths"),
        (torch.eye(3).to_sparse(), "X must be dense, found a sparse Tensor"),
        (torch.empty((3, 3), device="meta"), "X must hold numbers, found a tensor on the meta"),
        (np.ma.masked_equal(np.eye(3), 1), "X has masked values"),
        (np.eye(3, dtype=object), "X must hold real numbers"),
        (np.eye(3, dtype=complex), "X must hold real numbers"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(values, found):
    with pytest.raises(DataError, match=found):
        Blocks(values, name="X")


def test_a_mask_that_hides_nothing_is_taken_off():
    block = Blocks(np.ma.masked_equal(np.eye(3), 7))
    assert not np.ma.isMaskedArray(block.source)


def test_a_hundred_thousand_columns_form_no_square_matrix(monkeypatch):
    """5,000 sparse rows of 100,000 columns: the unusual rows still stand out."""
    monkeypatch.setattr(olss.core.leverage, "column_limit", lambda: 1024)
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
    monkeypatch.setattr(olss.core.leverage, "column_limit", lambda: 30)
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
    (part,) = project_columns([Blocks(A)], 200)
    B = np.concatenate([block for _, block in part.read(np.dtype(np.float64))])
    assert B.shape == (30, 200)
    error = (B @ B.T - A @ A.T)[np.triu_indices(30, 1)]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
