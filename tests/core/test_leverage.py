"""Leverage scores against a float64 SVD, on matrices that break a plain Gram matrix."""

import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

import olss
import olss.core.leverage
from olss.core.leverage import leverage_scores, pool_scores
from olss.errors import DataError, InputError, OlssWarning

N, D = 1200, 60


def rng(seed=0):
    return np.random.default_rng(seed)


def svd_scores(A, rank=None, weights=None):
    """Scores by an SVD in float64, columns scaled to norm 1 first (leverage does not change)."""
    A = np.asarray(A, dtype=np.float64).reshape(len(A), -1)
    if weights is not None:
        A = A * np.sqrt(weights)[:, None]
    top = abs(A).max(axis=0)
    A = A[:, top > 0] / top[top > 0]
    A = A / np.linalg.norm(A, axis=0)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    rank = int((s > s[0] * 1e-13).sum()) if rank is None else rank
    return (U[:, :rank] ** 2).sum(axis=1)


def relative_error(scores, truth):
    seen = truth > 1e-14
    assert np.all(np.asarray(scores)[~seen] <= 1e-12)
    return float(np.max(abs(np.asarray(scores)[seen] / truth[seen] - 1)))


def smooth_images():
    """White noise blurred until neighbours are nearly equal: singular values fall by a million."""
    x = np.arange(D)
    return rng(1).standard_normal((N, D)) @ np.exp(-((x[:, None] - x) ** 2) / 6)


def dominant(scale):
    A = rng(2).standard_normal((N, D))
    A[17] *= scale
    return A


def one_row_apart(difference):
    A = rng(3).standard_normal((N, D)).astype(np.float32)
    A[:, 1] = A[:, 0]
    A[5, 1] *= 1 + difference
    return A


UGLY = {
    "plain": (rng().standard_normal((N, D)), None),
    "graded columns": (rng().standard_normal((N, D)) * np.logspace(0, -5, D), None),
    "rare pixels": (
        rng().standard_normal((N, D)) * (rng(1).random((N, D)) < np.logspace(0, -2.5, D)),
        None,
    ),
    "smooth images": (smooth_images(), None),
    "rank deficient": (rng().standard_normal((N, 20)) @ rng(1).standard_normal((20, D)), 20),
    "duplicated columns": (np.tile(rng().standard_normal((N, D // 2)), 2), D // 2),
    "one-hot sets": (
        np.hstack([np.eye(9)[rng(k).integers(9, size=N)] for k in range(4)] + [np.ones((N, 1))]),
        33,
    ),
    "duplicated rows": (np.repeat(rng().standard_normal((N // 3, D)), 3, axis=0), None),
    "dead columns": (rng().standard_normal((N, D)) * (np.arange(D) % 3 > 0), D - D // 3),
    "zero rows": (rng().standard_normal((N, D)) * (np.arange(N) % 2)[:, None], None),
    "dominant row 1e3": (dominant(1e3), D),
    "dominant row 1e7": (dominant(1e7), D),
    "dominant row 1e9": (dominant(1e9), D),
    "columns equal but for one row": (one_row_apart(1.0), D),
    "columns equal but for a trace in one row": (one_row_apart(1e-5), D),
    "values 1e25": (rng().standard_normal((N, D)) * 1e25, None),
    "values 1e-25": (rng().standard_normal((N, D)) * 1e-25, None),
    "columns from 1e-30 to 1e30": (rng().standard_normal((N, D)) * np.logspace(-30, 30, D), None),
    "one row more than columns": (rng().standard_normal((D + 1, D)), None),
}


@pytest.mark.parametrize("name", UGLY)
def test_float32_agrees_with_a_float64_svd(name):
    A, rank = UGLY[name]
    A = A.astype(np.float32)
    scores = leverage_scores(A)
    assert scores.dtype == np.float32
    assert relative_error(scores, svd_scores(A, rank)) < 1e-3


FLOAT64 = {
    "plain": (rng().standard_normal((N, D)), None, 1e-12),
    "graded over 1e9": (rng().standard_normal((N, D)) * np.logspace(0, -9, D), None, 1e-12),
    # Condition 1e10: an SVD itself has no more digits.
    "Vandermonde": (np.vander(np.linspace(0, 1, N), 14), None, 1e-5),
    "rank deficient": (rng().standard_normal((N, 20)) @ rng(1).standard_normal((20, D)), 20, 1e-8),
    "values 1e200": (rng().standard_normal((N, D)) * 1e200, None, 1e-12),
    "values 1e-200": (rng().standard_normal((N, D)) * 1e-200, None, 1e-12),
}


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_agrees_with_a_float64_svd(name):
    A, rank, tolerance = FLOAT64[name]
    assert relative_error(leverage_scores(A), svd_scores(A, rank)) < tolerance


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
@pytest.mark.parametrize("rows", [30, D])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fewer_rows_than_columns(rows, dtype):
    A = rng().standard_normal((rows, D)).astype(dtype)
    np.testing.assert_allclose(leverage_scores(A), 1.0, rtol=1e-5)
    A[rows // 2 :] = A[: rows - rows // 2]
    truth = svd_scores(A, rank=rows // 2)
    assert relative_error(leverage_scores(A), truth) < 1e-5


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_values_whose_squares_leave_the_range_are_scored_by_every_way(scale):
    wide = rng().standard_normal((30, D))
    wide[15:] = wide[:15]
    truth = svd_scores(wide, rank=15)
    assert relative_error(leverage_scores(wide * scale), truth) < 1e-10
    beside = leverage_scores(wide * scale, ridge=1.0)
    np.testing.assert_allclose(beside, truth if scale > 1 else 0.0, atol=1e-12)
    tall = rng().standard_normal((2000, 5))
    sketched = leverage_scores(tall * scale, method="sketched", seed=0)
    np.testing.assert_allclose(sketched, leverage_scores(tall), rtol=1e-10)  # scored exactly


@pytest.mark.parametrize("seed", range(5))
def test_rows_with_a_direction_each_to_themselves(seed):
    # A hundred rows alone in a column, beside rows that force the last rung: a column nearly equal
    # to another. Two of the hundred meet in one of 4 d buckets more often than not.
    A = rng(seed).standard_normal((3000, 150))
    A[:, 50:] = 0
    A[np.arange(100) * 25, 50 + np.arange(100)] = 1.0
    A[:, 1] = A[:, 0] + 1e-9 * A[:, 1]
    assert relative_error(leverage_scores(A), svd_scores(A, rank=150)) < 1e-5
    # Sketched scores are off by a small factor, for these rows as for others.
    tall = A[:, np.arange(150) != 1]
    off = leverage_scores(tall, method="sketched", seed=seed) / leverage_scores(tall)
    assert 0.25 < off.min() < off.max() < 4
    # The same where the column differs in one row only, as far as float32 tells.
    B = A.astype(np.float32)
    B[:, 1] = B[:, 0]
    B[7, 1] += 1
    assert relative_error(leverage_scores(B), svd_scores(B, rank=150)) < 1e-3


@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf"}, {"gamma": 3.0}, {"method": "bless", "ridge": 1.0, "rank": 3}],
)
def test_options_of_another_method_are_refused(options):
    with pytest.raises(InputError, match="for method='bless'"):
        leverage_scores(rng().standard_normal((20, 5)), **options)


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_wide_images_of_3072_columns():
    # Rows beyond columns in the primal form, and fewer in the dual, at CIFAR's width.
    A = rng().standard_normal((5000, 3072)).astype(np.float32)
    A[:, 5] = 0
    scores = leverage_scores(A)
    G = A.astype(np.float64).T @ A
    live = np.arange(3072) != 5
    x = A[:40, live].astype(np.float64)
    truth = np.einsum("ij,ij->i", x, np.linalg.solve(G[np.ix_(live, live)], x.T).T)
    assert relative_error(scores[:40], truth) < 1e-3
    assert abs(scores.sum(dtype=np.float64) - 3071) < 0.1
    np.testing.assert_allclose(leverage_scores(A[:300]), 1, rtol=1e-5)


def test_every_rung_of_the_ladder_is_reached(monkeypatch):
    rungs = []
    gram_of, last = olss.core.leverage.gram_of, olss.core.leverage.preconditioned_scores

    def gram(parts, dtype):
        rungs.append(dtype.name)
        return gram_of(parts, dtype)

    def preconditioned(parts, ridge):
        rungs.append("preconditioned")
        return last(parts, ridge)

    monkeypatch.setattr(olss.core.leverage, "gram_of", gram)
    monkeypatch.setattr(olss.core.leverage, "preconditioned_scores", preconditioned)
    seen = {}
    for name in ("plain", "dominant row 1e3", "dominant row 1e7"):
        rungs.clear()
        leverage_scores(UGLY[name][0].astype(np.float32))
        seen[name] = list(rungs)
    assert seen["plain"] == ["float32"]
    assert seen["dominant row 1e3"] == ["float32", "float64"]
    assert seen["dominant row 1e7"] == ["float32", "float64", "preconditioned"]


def test_the_self_check_notices_a_wrong_factor(monkeypatch):
    """Were the Gram matrix off by 1%, scores would be too: the check must not let it pass."""
    good, honest = [], olss.core.leverage.gram_of
    A = rng().standard_normal((N, D)).astype(np.float32)

    def damaged(parts, dtype):
        G = honest(parts, dtype)
        good.append(dtype.name)
        if dtype == np.float32:
            G[3, 3] *= 1.01
        return G

    monkeypatch.setattr(olss.core.leverage, "gram_of", damaged)
    assert relative_error(leverage_scores(A), svd_scores(A)) < 1e-3
    assert good == ["float32", "float64"]


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.uint8, np.int16, np.float16]),
        hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=12),
        elements=st.integers(0, 4),
    )
)
def test_scores_lie_between_0_and_1_and_sum_to_the_rank(A):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OlssWarning)
        scores = leverage_scores(A)
    rank = np.linalg.matrix_rank(A.reshape(len(A), -1).astype(np.float64))
    assert scores.shape == (len(A),)
    assert scores.min() >= 0
    assert scores.max() <= 1 + 1e-6
    assert abs(scores.sum(dtype=np.float64) - rank) < 1e-3 * max(rank, 1)


@pytest.mark.parametrize("method", ["exact", "sketched"])
def test_weights_are_those_of_scaled_rows(method):
    A, w = rng().standard_normal((N, D)).astype(np.float32), rng(1).random(N) * 9 + 0.1
    scores = leverage_scores(A, weights=w, method=method, seed=0)
    scaled = (A * np.sqrt(w)[:, None]).astype(np.float32)
    expected = leverage_scores(scaled, method=method, seed=0)
    np.testing.assert_allclose(scores, expected, rtol=1e-3)
    zero = np.where(np.arange(N) < 100, 0.0, w)
    assert relative_error(leverage_scores(A, weights=zero), svd_scores(A, weights=zero)) < 1e-3


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
@pytest.mark.parametrize("rows", [N, 40])
def test_ridge_agrees_with_its_definition(rows):
    A = rng().standard_normal((rows, D)) * np.logspace(0, -4, D)
    w = rng(1).random(rows) + 0.5
    ridge = 3.0
    G = (A * w[:, None]).T @ A + ridge * np.eye(D)
    truth = w * np.einsum("ij,ij->i", A, np.linalg.solve(G, A.T).T)
    scores = leverage_scores(A, ridge=ridge, weights=w)
    np.testing.assert_allclose(scores, truth, rtol=1e-9)
    single = leverage_scores(A.astype(np.float32), ridge=ridge, weights=w)
    np.testing.assert_allclose(single, truth, rtol=1e-3)


@pytest.mark.parametrize("rows", [N, 40])
def test_ridge_auto_reaches_the_effective_dimension(rows):
    A = rng().standard_normal((rows, D)) * np.logspace(0, -2, D)
    assert leverage_scores(A, ridge="auto", size=200).sum() == pytest.approx(10, rel=1e-3)
    assert leverage_scores(A, ridge="auto", dimension=7.5).sum() == pytest.approx(7.5, rel=1e-3)


def test_ridge_auto_takes_none_where_the_rank_is_below_the_target():
    A = rng().standard_normal((N, D))
    np.testing.assert_allclose(
        leverage_scores(A, ridge="auto", size=20 * D), leverage_scores(A), rtol=1e-9
    )


def test_ridge_of_rank_k_follows_cohen_musco_musco():
    A = rng().standard_normal((N, D)) * np.logspace(0, -3, D)
    s = np.linalg.svd(A, compute_uv=False) ** 2
    ridge = s[10:].sum() / 10
    scores = leverage_scores(A, rank=10)
    np.testing.assert_allclose(scores, leverage_scores(A, ridge=ridge), rtol=1e-6)
    assert scores.sum() <= 2 * 10


def test_a_ridge_scales_with_extreme_values():
    A = rng().standard_normal((N, D))
    plain = leverage_scores(A, ridge=2.0)
    np.testing.assert_allclose(
        leverage_scores((A * 1e25).astype(np.float32), ridge=2e50), plain, rtol=1e-3
    )


@pytest.mark.parametrize("name", ["plain", "rare pixels", "rank deficient", "graded columns"])
def test_sketched_scores_have_the_documented_error(name):
    A = np.vstack([UGLY[name][0], UGLY[name][0] * 0.5])[:, :40].astype(np.float32)
    truth = svd_scores(A, 20 if name == "rank deficient" else None)
    scores = leverage_scores(A, method="sketched", seed=3)
    assert scores.sum(dtype=np.float64) == pytest.approx(truth.sum(), rel=0.02)
    error = abs(scores - truth) / truth
    # Documented: half within 12%, 99 of 100 within 50%; here with room for one draw's luck.
    assert np.median(error) < 0.2
    assert np.quantile(error, 0.99) < 0.75


def test_sketched_scores_are_seeded():
    A = rng().standard_normal((N, 20))
    one, two = (leverage_scores(A, method="sketched", seed=s) for s in (1, 1))
    np.testing.assert_array_equal(one, two)
    assert (one != leverage_scores(A, method="sketched", seed=2)).any()


def test_bless_is_reached_and_approximates_ridge_leverage():
    A = rng().standard_normal((500, 8))
    scores = leverage_scores(A, method="bless", ridge=20.0, seed=0)
    ratio = scores / leverage_scores(A, ridge=20.0)
    assert 1 / 3 < ratio.min() < ratio.max() < 3
    with pytest.raises(InputError, match=r"bless.*needs ridge"):
        leverage_scores(A, method="bless")


def test_parts_score_as_one_table():
    A = rng().standard_normal((N, D)).astype(np.float32)
    w = rng(1).random(N) + 0.5
    parts, weights = [A[:300], A[300:301], A[301:]], [w[:300], w[300:301], w[301:]]
    scores = pool_scores(parts, weights=weights)
    assert [len(s) for s in scores] == [300, 1, N - 301]
    assert {s.dtype for s in scores} == {np.dtype(np.float64)}
    np.testing.assert_allclose(np.concatenate(scores) * w, leverage_scores(A, weights=w), rtol=1e-4)
    with pytest.raises(DataError, match="same number of columns"):
        pool_scores([A, A[:, :5]])


def test_fewer_rows_than_columns_says_so_and_how_to_help():
    with pytest.warns(OlssWarning, match=r"20 rows of 60 columns.*ridge='auto'"):
        leverage_scores(rng().standard_normal((20, D)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leverage_scores(rng().standard_normal((20, D)), ridge=1.0)


# The kinds of arrays people have


def test_rows_of_any_shape_are_flattened():
    A = rng().standard_normal((200, 3, 4, 5))
    np.testing.assert_allclose(leverage_scores(A), leverage_scores(A.reshape(200, -1)))


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.bool_, np.float16, np.int32, np.int64, np.longdouble]
)
def test_any_real_dtype(dtype):
    A = rng().integers(0, 2, size=(300, 10)).astype(dtype)
    scores = leverage_scores(A)
    wide = np.dtype(dtype).itemsize > 2
    assert scores.dtype == (np.float64 if wide else np.float32)
    assert relative_error(scores, svd_scores(A)) < 1e-3


def test_a_memory_map_is_read_block_by_block(tmp_path, monkeypatch):
    monkeypatch.setattr("olss.core.blocks.PIECE_BYTES", 4096)
    A = np.memmap(tmp_path / "A", dtype=np.float32, mode="w+", shape=(N, D))
    A[:] = rng().standard_normal((N, D))
    assert relative_error(leverage_scores(A), svd_scores(A)) < 1e-3


def test_views_with_strides_and_lists():
    A = rng().standard_normal((N, 20))
    np.testing.assert_allclose(leverage_scores(A[::2, ::3]), leverage_scores(A[::2, ::3].copy()))
    np.testing.assert_allclose(leverage_scores(A[::-1]), leverage_scores(A)[::-1])
    np.testing.assert_allclose(leverage_scores(A[:50].tolist()), leverage_scores(A[:50]))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]
)
@pytest.mark.parametrize("method", ["exact", "sketched"])
def test_a_tensor_comes_back_as_a_tensor(dtype, method):
    T = torch.from_numpy(rng().integers(0, 9, size=(600, 12))).to(dtype)
    T.requires_grad_(dtype.is_floating_point)
    scores = leverage_scores(T, method=method, seed=0)
    assert isinstance(scores, torch.Tensor)
    assert scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = leverage_scores(T.detach().double().numpy(), method=method, seed=0)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["plain", "rank deficient", "dominant row 1e7", "values 1e25"])
def test_arrays_of_other_devices_stay_there(name):
    """array-api-strict stands for arrays that are neither NumPy's nor on the host."""
    A, rank = UGLY[name]
    S = array_api_strict.asarray(A.astype(np.float32))
    scores = leverage_scores(S)
    assert type(scores) is type(S)
    assert scores.device == S.device
    assert relative_error(np.asarray(scores), svd_scores(A.astype(np.float32), rank)) < 1e-3


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_array])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.5}, {"method": "sketched", "seed": 0}])
def test_sparse_rows(kind, options):
    A = sp.random_array((2000, 30), density=0.1, rng=rng(), format="csr", dtype=np.float64)
    dense = leverage_scores(A.toarray(), **options)
    np.testing.assert_allclose(leverage_scores(kind(A), **options), dense, rtol=1e-6, atol=1e-12)


def test_sparse_rows_never_become_dense_as_a_whole(monkeypatch):
    A = sp.random_array((5000, 50), density=0.02, rng=rng(), format="csr")
    monkeypatch.setattr("olss.core.blocks.PIECE_BYTES", 40_000)
    monkeypatch.setattr("olss.core.qr.IN_CACHE", 40_000)
    largest = 0
    whole = sp.csr_array.toarray

    def toarray(self, *args, **kwargs):
        nonlocal largest
        largest = max(largest, self.shape[0])
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", toarray)
    leverage_scores(A, method="sketched", seed=0)
    leverage_scores(A)
    assert 0 < largest <= 200


# Bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [N, 30])
@pytest.mark.parametrize("options", [{}, {"method": "sketched"}, {"ridge": 1.0}])
def test_values_that_are_not_finite_are_named(bad, rows, options):
    A = rng().standard_normal((rows, D)).astype(np.float32)
    A[23, 4] = bad
    what = "NaN" if np.isnan(bad) else "an infinite value"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OlssWarning)
        with pytest.raises(DataError, match=f"found {what} in row 23"):
            leverage_scores(A, **options)


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (np.zeros((0, 3)), r"at least one row and one column, found shape \(0, 3\)"),
        (np.zeros((3, 0)), r"found shape \(3, 0\)"),
        (np.zeros(3), r"two or more dimensions.*reshape\(-1, 1\)"),
        (5.0, "two or more dimensions"),
        (np.array([["a", "b"]]), "must hold real numbers, found dtype <U1"),
        (np.array([[None, 1]]), "found dtype object"),
        (np.ones((2, 2), dtype=complex), "found dtype complex128"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "found dtype datetime64"),
    ],
)
def test_what_is_not_a_table_of_numbers_is_refused(A, message):
    with pytest.raises(DataError, match=message):
        leverage_scores(A)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "svd"}, "method must be 'exact', 'sketched' or 'bless', found 'svd'"),
        ({"ridge": -1}, "ridge must be a number"),
        ({"ridge": np.nan}, "ridge must be a number"),
        ({"ridge": "much"}, "ridge must be a number or 'auto', found 'much'"),
        ({"ridge": True}, "ridge must be a number"),
        ({"ridge": "auto"}, "ridge='auto' needs size"),
        ({"ridge": "auto", "size": 0}, "size must be"),
        ({"ridge": "auto", "size": 2.5}, "size must be"),
        ({"rank": 0}, "rank must be"),
        ({"rank": 3, "ridge": 1.0}, "either ridge or rank"),
        ({"weights": np.ones(3)}, r"weights must .*shape \(3,\)"),
        ({"weights": -np.ones(N)}, "not negative, found -1.0"),
        ({"weights": np.full(N, np.nan)}, "finite and not negative, found nan"),
        ({"weights": np.array(["x"] * N)}, "weights must"),
    ],
)
def test_wrong_arguments_are_named_with_their_value(options, message):
    with pytest.raises(InputError, match=message):
        leverage_scores(rng().standard_normal((N, 5)), **options)


def test_one_row_and_one_column():
    with pytest.warns(OlssWarning):
        np.testing.assert_allclose(leverage_scores([[3.0, 4.0]]), [1.0])
    np.testing.assert_allclose(leverage_scores([[3.0], [4.0]]), [9 / 25, 16 / 25])
    assert leverage_scores(np.zeros((5, 2))).tolist() == [0.0] * 5


@pytest.mark.parametrize("method", ["exact", "sketched"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_scores_are_the_same_to_the_byte_on_any_number_of_threads(method, kind, monkeypatch):
    monkeypatch.setattr("olss.core.blocks.PIECE_BYTES", 100_000)
    monkeypatch.setattr("olss.core.qr.IN_CACHE", 30_000)
    A = (rng().random((6_000, 70)) * 200).astype(kind)
    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            weights = np.linspace(1, 2, len(A))
            found.append(leverage_scores(A, method=method, weights=weights, seed=0).tobytes())
    assert found[0] == found[1] == found[2]
