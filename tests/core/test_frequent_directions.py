import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from olss.core import frequent_directions as directions
from olss.core.frequent_directions import FrequentDirections
from olss.errors import DataError, InputError

# Rounding of B'B relative to ||A||_F^2, as the class documents it.
ROUNDING = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-14}


def make_matrix(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    if kind == "decaying":
        return A * 0.6 ** np.arange(d)
    if kind == "low rank":
        return rng.normal(size=(n, 2)) @ rng.normal(size=(2, d))
    if kind == "one dominant row":
        A[n // 2] *= 1e5
    if kind == "drifting":
        A *= np.linspace(0, 1, n)[:, None] ** 3
    if kind == "duplicated":
        A[:] = A[0]
    if kind == "zero":
        A[:] = 0
    if kind == "rank one per block":
        A[:] = np.repeat(np.eye(d), -(-n // d), axis=0)[:n]
    return A


KINDS = ["normal", "decaying", "low rank", "one dominant row", "drifting", "duplicated", "zero"]
KINDS.append("rank one per block")

matrices = st.builds(
    make_matrix,
    st.sampled_from(KINDS),
    st.integers(1, 120),
    st.integers(1, 30),
    st.integers(0, 2**32),
)
dtypes = st.sampled_from([np.float32, np.float64])
sizes = st.integers(1, 20)


def check_bounds(fd, A):
    """Check all inequalities against the eigenvalues of A'A - B'B and the SVD of A."""
    B, A = fd.matrix, A.astype(np.float64)
    assert len(B) <= fd.size
    assert fd.seen == len(A)
    slack = ROUNDING[B.dtype] * np.sum(A**2)
    B = B.astype(np.float64)
    gap = np.linalg.eigvalsh(A.T @ A - B.T @ B)
    assert gap[0] >= -slack
    error = gap[-1]
    assert error <= fd.error_bound() + slack
    values = np.linalg.svd(A, compute_uv=False) ** 2
    for k in range(fd.size + 1):
        theory = values[k:].sum() / (fd.size + 1 - k)
        assert error <= theory + slack
        assert fd.error_bound() <= theory + slack
        assert theory <= fd.error_bound(k) + slack
        if k < fd.size:
            assert error <= values[k:].sum() / (fd.size - k) + slack


@given(matrices, sizes, dtypes, st.lists(st.integers(0, 120), max_size=4))
@settings(max_examples=150, deadline=None)
def test_bounds_hold_for_any_blocks(A, size, dtype, cuts):
    A = A.astype(dtype)
    fd = FrequentDirections(size)
    for block in np.split(A, sorted(min(cut, len(A)) for cut in cuts)):
        if len(block):
            fd.update(block)
    assert fd.matrix.dtype == dtype
    check_bounds(fd, A)


@given(matrices, sizes, dtypes, st.integers(2, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_bounds_hold_after_merges_in_any_tree(A, size, dtype, leaves, data):
    A = A.astype(dtype)
    parts = [part for part in np.array_split(A, leaves) if len(part)]
    sketches = [FrequentDirections(size).update(part) for part in parts]
    while len(sketches) > 1:
        one = sketches.pop(data.draw(st.integers(0, len(sketches) - 1)))
        two = data.draw(st.integers(0, len(sketches) - 1))
        sketches[two].merge(one)
    check_bounds(sketches[0], A)


def test_merged_sketches_take_further_rows():
    A = make_matrix("decaying", 300, 25, 0)
    one = FrequentDirections(6).update(A[:100])
    one.merge(FrequentDirections(6).update(A[100:230])).update(A[230:])
    check_bounds(one, A)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_stays_small_over_a_long_stream(dtype):
    A = np.random.default_rng(0).normal(size=(40_000, 12)).astype(dtype)
    A *= (0.5 ** np.arange(12)).astype(dtype)
    for size in (2, 3):  # by shrinking 20,000 times, and by the Gram matrix
        check_bounds(FrequentDirections(size).update(A), A)


def test_exact_while_the_rank_fits():
    A = make_matrix("low rank", 400, 30, 1)
    fd = FrequentDirections(5).update(A)
    scale = np.sum(A**2)
    np.testing.assert_allclose(fd.matrix.T @ fd.matrix, A.T @ A, rtol=0, atol=1e-13 * scale)
    assert fd.error_bound() <= 1e-14 * scale


def test_exact_when_there_are_no_more_columns_than_rows_kept():
    A = make_matrix("normal", 500, 8, 2)
    fd = FrequentDirections(8).update(A)
    np.testing.assert_allclose(fd.matrix.T @ fd.matrix, A.T @ A, atol=1e-10)
    assert fd.error_bound() == 0


def test_few_rows_are_kept_as_they_are():
    A = make_matrix("normal", 5, 21, 3)
    fd = FrequentDirections(5).update(A)
    assert np.array_equal(fd.matrix, A)


def test_the_bound_is_of_use():
    # The certificate must be of the size of the error, not merely above it.
    A = make_matrix("decaying", 2_000, 40, 4)
    fd = FrequentDirections(8).update(A)
    error = np.linalg.norm(A.T @ A - fd.matrix.T @ fd.matrix, 2)
    assert error >= 0.5 * fd.error_bound()
    assert fd.error_bound() < fd.error_bound(0) == pytest.approx(np.sum(A**2) / 9)


def test_one_factorisation_for_as_many_rows_as_kept(monkeypatch):
    calls, shrink = [], directions._shrink
    monkeypatch.setattr(directions, "_shrink", lambda *args: calls.append(1) or shrink(*args))
    A = make_matrix("normal", 5_000, 101, 5)
    fd = FrequentDirections(25)
    for row in A[:2_500]:
        fd.update(row[None])
    fd.update(A[2_500:])
    assert len(calls) <= len(A) / 25
    check_bounds(fd, A)


def test_reading_changes_nothing():
    A = make_matrix("normal", 400, 30, 6)
    read, unread = FrequentDirections(7), FrequentDirections(7)
    for block in np.array_split(A, 31):
        read.update(block)
        unread.update(block)
        read.matrix[:] = 0
        read.error_bound(3)
    assert np.array_equal(read.matrix, unread.matrix)


def test_blocks_do_not_matter():
    A = make_matrix("decaying", 300, 20, 7)
    whole, parts = FrequentDirections(4).update(A), FrequentDirections(4)
    for block in np.array_split(A, 17):
        parts.update(block)
    assert np.array_equal(whole.matrix, parts.matrix)
    assert whole.error_bound() == parts.error_bound()


def test_narrow_rows_lose_nothing_before_the_end():
    A = make_matrix("normal", 700, 20, 7)
    fd = FrequentDirections(5)
    for block in np.array_split(A, 17):
        fd.update(block)
    values, vectors = np.linalg.eigh(A.T @ A)
    best = (vectors * np.maximum(values - values[-6], 0)) @ vectors.T
    np.testing.assert_allclose(fd.matrix.T @ fd.matrix, best, atol=1e-10)
    assert fd.error_bound() == pytest.approx(values[-6])


def test_other_kinds_of_rows():
    torch = pytest.importorskip("torch")
    A = np.random.default_rng(8).integers(0, 3, size=(90, 4, 5)).astype(np.float32)
    flat = A.reshape(90, 20)
    for size in (3, 6):
        expected = FrequentDirections(size).update(A).matrix
        assert expected.dtype == np.float32
        for rows in (flat, flat.tolist(), torch.tensor(A, requires_grad=True), sp.csr_array(flat)):
            B = FrequentDirections(size).update(rows).matrix
            np.testing.assert_allclose(B.T @ B, expected.T @ expected, rtol=1e-4)
    assert FrequentDirections(6).update(A.astype(np.uint8)).matrix.dtype == np.float32
    assert FrequentDirections(6).update(A.astype(np.int64)).matrix.dtype == np.float64


def test_one_float64_block_makes_the_matrix_float64():
    A = make_matrix("normal", 10, 4, 9)
    narrow = FrequentDirections(3).update(A.astype(np.float32))
    assert narrow.copy().update(A).matrix.dtype == np.float64
    assert narrow.copy().merge(FrequentDirections(3).update(A)).matrix.dtype == np.float64
    assert FrequentDirections(3).merge(narrow).matrix.dtype == np.float32


def test_copy_is_independent():
    A = make_matrix("normal", 50, 10, 10)
    fd = FrequentDirections(4).update(A)
    before, other = fd.matrix, fd.copy()
    other.update(A)
    assert np.array_equal(fd.matrix, before)
    assert (fd.seen, other.seen) == (50, 100)


@pytest.mark.parametrize("size", [2, 4])
def test_merge_leaves_the_other_and_may_be_with_itself(size):
    A = make_matrix("normal", 90, 10, 11)
    fd, other = FrequentDirections(size).update(A[:40]), FrequentDirections(size).update(A[40:])
    before = other.matrix
    fd.merge(other)
    assert np.array_equal(other.matrix, before)
    fd.merge(fd)
    check_bounds(fd, np.concatenate([A, A]))


def test_nothing_seen_yet():
    fd = FrequentDirections(4)
    assert repr(fd) == "FrequentDirections(size=4, columns=None, seen=0)"
    assert fd.matrix.shape == (0, 0)
    assert fd.error_bound() == fd.error_bound(2) == 0
    assert fd.merge(FrequentDirections(4)).seen == 0
    assert fd.merge(FrequentDirections(4).update(np.eye(3))).columns == 3


@pytest.mark.parametrize("size", [0, -3, 2.0, "4", None, True])
def test_bad_sizes(size):
    with pytest.raises(InputError, match="size must be"):
        FrequentDirections(size)


@pytest.mark.parametrize("k", [-1, 5, 1.0, True, "1"])
def test_bad_ranks(k):
    fd = FrequentDirections(4).update(np.eye(6))
    with pytest.raises(InputError, match="k must be"):
        fd.error_bound(k)


BAD_ROWS = [
    (np.array([[1.0, 2, 3], [4, np.nan, 6]]), "NaN in row 1"),
    (np.array([[1.0, -np.inf, 3]]), "infinite value in row 0"),
    (np.full((2, 3), 1e200), "too large"),
    (np.ones((2, 4)), "must have 3 columns as before, found 4"),
    (np.ones(3), "two or more dimensions"),
    (np.ones((0, 3)), "at least one row"),
    (np.array([["a", "b", "c"]]), "real numbers"),
    (np.array([[1j, 2, 3]]), "real numbers"),
]


@pytest.mark.parametrize(("rows", "message"), BAD_ROWS)
def test_bad_rows_leave_the_state_as_it_was(rows, message):
    fd = FrequentDirections(2).update(make_matrix("normal", 7, 3, 12))
    before, bound = fd.matrix, fd.error_bound()
    with np.errstate(over="ignore"), pytest.raises(DataError, match=message):
        fd.update(rows)
    assert np.array_equal(fd.matrix, before)
    assert (fd.error_bound(), fd.seen, fd.columns) == (bound, 7, 3)


def test_bad_merges():
    fd = FrequentDirections(4).update(np.eye(3))
    with pytest.raises(InputError, match="must have size 4 to be merged, found 5"):
        fd.merge(FrequentDirections(5))
    with pytest.raises(InputError, match="must have 3 columns, found 2"):
        fd.merge(FrequentDirections(4).update(np.eye(2)))
    with pytest.raises(InputError, match="must be a FrequentDirections, found ndarray"):
        fd.merge(np.eye(3))
    with pytest.raises(DataError, match="too large"):
        fd.update(np.full((1, 3), 7e153)).merge(fd)


# Weights, decay, removal and scoring, as the spectrum of everything seen needs them


@pytest.mark.parametrize("columns", [30, 90])  # the matrix itself, and a buffer of rows
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_weights_are_those_of_scaled_rows(columns, kind):
    A = np.random.default_rng(0).standard_normal((400, columns))
    w = np.random.default_rng(1).random(400) * 5
    fd = FrequentDirections(10).update(kind(A[:150]), w[:150]).update(kind(A[150:]), w[150:])
    check_bounds(fd, A * np.sqrt(w)[:, None])


@pytest.mark.parametrize("columns", [30, 90])
def test_scaling_scales_the_matrix_and_its_bound(columns):
    A = np.random.default_rng(0).standard_normal((400, columns))
    fd = FrequentDirections(10).update(A)
    half = fd.scale(0.5)
    check_bounds(half, A * np.sqrt(0.5))
    check_bounds(fd, A)
    check_bounds(half.update(A), np.vstack([A * np.sqrt(0.5), A]))


@pytest.mark.parametrize("columns", [30, 90])
def test_what_is_left_after_removals_stays_between_its_bounds(columns):
    A = np.random.default_rng(0).standard_normal((400, columns)) * 0.9 ** np.arange(columns)
    w = np.random.default_rng(1).random(400) + 0.5
    fd = FrequentDirections(10).update(A, w)
    left = fd.subtract(A[:100], w[:100]).subtract(A[100:130], w[100:130])
    assert (fd.seen, left.seen) == (400, 270)
    rest = A[130:] * np.sqrt(w[130:])[:, None]
    B = left.matrix
    gap = np.linalg.eigvalsh(rest.T @ rest - B.T @ B)
    assert -left.over - 1e-9 <= gap[0] < gap[-1] <= left.error_bound() + 1e-9
    assert fd.over == 0
    with pytest.raises(DataError, match=f"must have {columns} columns"):
        fd.subtract(A[:, :3])


@pytest.mark.parametrize("columns", [30, 90])
def test_a_state_goes_on_as_the_sketch_would(columns):
    A = np.random.default_rng(0).standard_normal((400, columns))
    fd = FrequentDirections(10).update(A[:333])
    again = FrequentDirections.from_state(fd.state())
    np.testing.assert_array_equal(again.update(A).matrix, fd.update(A).matrix)
    assert FrequentDirections.from_state(FrequentDirections(3).state()).columns is None


def test_scores_are_ridge_leverage_against_the_directions():
    A = np.random.default_rng(0).standard_normal((400, 90)) * 0.8 ** np.arange(90)
    fd = FrequentDirections(10).update(A)
    B, shed = fd.matrix, fd.error_bound()
    for ridge in (0.0, 3 * shed):
        inverse = np.linalg.inv(B.T @ B + max(ridge, shed) * np.eye(90))
        truth = np.einsum("ij,jk,ik->i", A, inverse, A)
        np.testing.assert_allclose(fd.scorer(ridge)(A), truth, rtol=1e-8)
        np.testing.assert_allclose(fd.scorer(ridge)(sp.csr_array(A)), truth, rtol=1e-8)
    exact = FrequentDirections(30).update(A[:25])
    np.testing.assert_allclose(exact.scorer()(A[:25]), 1.0, rtol=1e-6)
    with pytest.raises(DataError, match="must have 90 columns, found 3"):
        fd.scorer()(A[:, :3])


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_after_most_rows_were_taken_out(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((155, 33))
    left = FrequentDirections(4).update(A).subtract(A[:146])
    error = np.linalg.norm(A[146:].T @ A[146:] - left.matrix.T @ left.matrix, 2)
    assert error <= min(left.error_bound(k) for k in (None, 0, 2, 4)) * (1 + 1e-9)
