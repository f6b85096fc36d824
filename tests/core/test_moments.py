"""Moments equal what NumPy finds in all rows, however the rows came."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from olss.core.moments import Moments, one_hot
from olss.errors import DataError, InputError


def rows(n=1_000, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, 5)) + offset
    return X, X[:, :2] @ [[1.0, -1], [2, 0.5]] + rng.standard_normal((n, 2))


def of(X, y, weight=None, dtype=np.float64):
    return Moments.empty(X.shape[1], y.shape[1], dtype).update(X, y, weight)


def check(moments, X, y, w=None, rtol=1e-10):
    w = np.ones(len(X)) if w is None else w
    m, n = np.average(X, axis=0, weights=w), np.average(y, axis=0, weights=w)
    A, B = X - m, y - n
    assert_allclose(moments.weight, w.sum(), rtol=rtol)
    assert_allclose(moments.mean, m, rtol=rtol, atol=rtol)
    assert_allclose(moments.target_mean, n, rtol=rtol, atol=rtol)
    for found, truth in (
        (moments.scatter, (A * w[:, None]).T @ A),
        (moments.cross, (A * w[:, None]).T @ B),
        (moments.target_scatter, (B * w[:, None]).T @ B),
    ):
        assert_allclose(found, truth, rtol=rtol, atol=rtol * abs(truth).max())


def test_a_hundred_updates_and_one_are_the_same():
    X, y = rows(offset=100.0)
    w = np.random.default_rng(1).uniform(0, 2, len(X))
    moments = Moments.empty(5, 2)
    for part in np.array_split(np.arange(len(X)), 100):
        moments = moments.update(X[part], y[part], w[part])
    check(moments, X, y, w)
    check(of(X, y, w), X, y, w)
    assert moments.count == 1_000


def test_blocks_of_wide_rows_are_joined(monkeypatch):
    monkeypatch.setattr("olss.core.moments.BLOCK_BYTES", 4_000)
    X, y = rows(offset=-3.0)
    check(of(X, y), X, y)


def test_merging_is_seeing_both():
    X, y = rows()
    X[300:] += 50
    parts = [of(X[p], y[p]) for p in np.array_split(np.arange(len(X)), 7)]
    joined = Moments.empty(5, 2)
    for part in parts:
        joined = joined.merge(part)
    check(joined, X, y)
    check(joined.merge(Moments.empty(5, 2)), X, y)


def test_what_is_subtracted_was_never_there():
    X, y = rows(offset=10.0)
    left = of(X, y).subtract(of(X[100:700], y[100:700]))
    keep = np.r_[0:100, 700:1000]
    check(left, X[keep], y[keep])
    assert left.count == 400
    nothing = of(X, y).subtract(of(X, y))
    assert nothing.count == nothing.weight == 0


def test_rows_that_were_not_there_cannot_be_subtracted():
    X, y = rows()
    with pytest.raises(DataError, match="X"):
        of(X[:10], y[:10]).subtract(of(X, y))
    with pytest.raises(DataError, match="X"):
        of(X, y).subtract(of(100 * X[:500], y[:500]))


def test_a_column_left_constant_by_subtraction_is_known_to_be():
    X, y = rows()
    X[:, 0] = np.where(np.arange(len(X)) < 500, X[:, 0], 7.0)
    left = of(X, y).subtract(of(X[:500], y[:500]))
    assert abs(left.scatter[0, 0]) <= left.noise[0]
    assert (left.scatter.diagonal()[1:] > 1e6 * left.noise[1:]).all()


def test_fading_multiplies_weights():
    X, y = rows()
    w = np.where(np.arange(len(X)) < 400, 0.25, 1.0)
    check(of(X[:400], y[:400]).scale(0.25).update(X[400:], y[400:]), X, y, w)
    with pytest.raises(InputError, match="factor"):
        of(X, y).scale(0.0)


def test_a_large_offset_costs_no_digits():
    X, y = rows()
    moments = Moments.empty(5, 2)
    far = X + 1e9  # rounded to 1e-7 by this, and by nothing else
    for part in np.array_split(np.arange(len(X)), 20):
        moments = moments.update(far[part], y[part])
    truth = np.cov(far - 1e9, rowvar=False)
    assert_allclose(moments.covariance(), truth, rtol=1e-7, atol=1e-7)


def test_a_constant_column_has_no_scatter_at_all():
    X, y = rows()
    X[:, 2] = 0.1
    moments = of(X[:333], y[:333]).update(X[333:600], y[333:600]).merge(of(X[600:], y[600:]))
    assert moments.scatter[2, 2] == 0
    assert np.isnan(moments.correlation()[2]).all()


def test_classes_as_they_come_are_padded():
    X, _ = rows()
    codes = np.arange(len(X)) // 250
    moments = Moments.empty(5, 1)
    for k in range(4):
        part = codes == k
        moments = moments.pad(k + 1).update(X[part], one_hot(codes[part], k + 1))
    check(moments, X, np.eye(4)[codes])
    first = Moments.empty(5, 2).update(X[:500], one_hot(codes[:500], 2))
    check(
        first.merge(Moments.empty(5, 4).update(X[500:], one_hot(codes[500:], 4))),
        X,
        np.eye(4)[codes],
    )
    swapped = moments.arrange_targets(np.array([3, 1, 0, 2]))
    check(swapped, X, np.eye(4)[codes][:, [3, 1, 0, 2]])


def test_single_precision_is_close_and_half_the_size():
    X, y = rows(offset=5.0)
    single = of(X.astype(np.float32), y, dtype=np.float32)
    assert single.scatter.dtype == np.float32
    check(single, X, y, rtol=3e-5)


def test_rows_without_weight_count_for_nothing():
    X, y = rows()
    w = (np.arange(len(X)) % 2).astype(float)
    X[0] = 1e30
    moments = of(X, y, w)
    check(moments, X[1::2], y[1::2])
    assert moments.count == 500


def test_any_columns_can_be_the_target():
    X, y = rows()
    Z = np.hstack([X, y])
    check(of(X, y).select([0, 2, 5], [6, 1]), Z[:, [0, 2, 5]], Z[:, [6, 1]])


def test_covariance_and_correlation():
    X, y = rows()
    assert_allclose(of(X, y).covariance(), np.cov(X, rowvar=False), rtol=1e-10)
    assert_allclose(of(X, y).correlation(), np.corrcoef(X, rowvar=False), rtol=1e-10)
    with pytest.raises(InputError, match="rows"):
        of(X[:1], y[:1]).covariance()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays_hold_everything(dtype):
    X, y = rows()
    moments = of(X, y, dtype=dtype)
    arrays = moments.to_arrays()
    assert sum(a.nbytes for a in arrays.values()) == moments.nbytes
    again = Moments.from_arrays(arrays)
    assert_array_equal(again.scatter, moments.scatter)
    assert again.scatter.dtype == dtype
    check(again, X, y, rtol=1e-10 if dtype == np.float64 else 3e-5)
    with pytest.raises(ValueError, match="triangle"):
        Moments.from_arrays(arrays | {"scatter": arrays["scatter"][:-1]})


def test_what_does_not_fit_is_named():
    X, y = rows(10)
    moments = of(X, y)
    with pytest.raises(DataError, match="X"):
        moments.update(X[:, :3], y)
    with pytest.raises(DataError, match="y"):
        moments.update(X, y[:, :1])
    with pytest.raises(DataError, match="weight"):
        moments.update(X, y, -np.ones(10))
    with pytest.raises(DataError, match="columns"):
        moments.merge(of(X[:, :3], y))
    X[3, 3] = np.nan
    with pytest.raises(DataError, match="finite"):
        moments.update(X, y)
