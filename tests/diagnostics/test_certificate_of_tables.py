"""The certificate of tables fed in parts, and after removals, against a float64 SVD of all rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import olss
from olss.diagnostics.certificate import certify
from olss.memory.moments import SeenMoments
from olss.sketch import state_of
from olss.tables.scoring import row_map


def whitened(A, rank=None):
    """Return (rank, U) of a float64 SVD of A with columns scaled; of a rank given, or the usual."""
    A = A / np.maximum(np.linalg.norm(A, axis=0), 1e-300)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    rank = rank or int((s > s[0] * max(A.shape) * np.finfo(float).eps).sum())
    return rank, U[:, :rank]


def true_error(A, rows, weight, rank=None):
    """Return (rank, relative error) of some rows of A for all of A; U'U = I for all of them."""
    rank, U = whitened(A, rank)
    h = np.linalg.eigvalsh((U[rows] * weight[:, None]).T @ U[rows])
    return rank, max(h[-1] - 1, 1 - h[0])


def encoded(sketch, table):
    """Return the numbers of all rows of a table in float64, as the sketch's own plan makes them."""
    X = pa.Table.from_pandas(table, preserve_index=False)
    rows = state_of(sketch).encoder.rows(X, find_nan=True)
    return np.vstack([block.copy() for _, block in rows.read(np.dtype(np.float64))])


def column(kind, rng, step, n):
    """Return n values of a column of some kind, as update number `step` brings them."""
    if kind == "text":
        return rng.choice(["a", "b", "c"][: 2 + step % 2], n)
    if kind == "category":
        return pd.Categorical(rng.choice(["u", "v", "w"], n), categories=["u", "v", "w"])
    if kind == "missing":
        x = rng.standard_normal(n)
        x[rng.random(n) < 0.2] = np.nan
        return x
    if kind == "date":
        days = step * 40 + rng.integers(0, 30, n)
        return np.datetime64("2019-01-01", "ns") + days * np.timedelta64(1, "D")
    if kind == "year":
        return 1900 + 10 * step + rng.integers(0, 10, n)
    if kind == "far":  # beside where the first update had it by a million times its spread
        return 1e6 * (step > 0) + rng.standard_normal(n)
    if kind == "large":
        return 1e8 + rng.integers(0, 100, n)
    return rng.standard_normal(n)


KINDS = ["text", "category", "missing", "date", "year", "far", "large", "number"]


def stream(kinds, steps, n, seed):
    rng = np.random.default_rng(seed)
    return [
        pd.DataFrame({f"{k}{i}": column(k, rng, step, n) for i, k in enumerate(kinds)})
        for step in range(steps)
    ]


TABLES = {
    "kinds": st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    "steps": st.integers(1, 60),
    "n": st.integers(40, 200),
    "seed": st.integers(0, 10**6),
}
SLOW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,  # rare tables are known to fail: see the last test
    suppress_health_check=[HealthCheck.too_slow],
)


@given(**TABLES)
@SLOW
@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_a_table_kept_whole_has_no_error_and_the_rank_of_an_svd(kinds, steps, n, seed):
    sketch = olss.Sketch(size=10**6, seed=0)
    parts = stream(kinds, steps, n, seed)
    for part in parts:
        sketch.update(part)
    found = sketch.error()
    assert found.directions == whitened(encoded(sketch, pd.concat(parts)))[0]
    assert found.relative < 1e-6
    assert found.guaranteed


@given(size=st.integers(60, 400), **TABLES)
@SLOW
@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_the_error_of_a_sketch_of_a_table_is_that_of_an_svd(size, kinds, steps, n, seed):
    sketch = olss.Sketch(size=size, seed=0)
    parts = stream(kinds, steps, n, seed)
    for part in parts:
        sketch.update(part)
    A = encoded(sketch, pd.concat(parts))
    rank, error = true_error(A, sketch.index, sketch.weight)
    found = sketch.error()
    assert found.directions == rank
    if found.relative == np.inf:
        assert error > 1 - 1e-5
    else:
        assert found.relative == pytest.approx(error, rel=1e-5, abs=1e-6)


@given(intercept=st.booleans(), **TABLES)
@SLOW
@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_leverage_of_a_table_fed_in_parts_is_that_of_an_svd(intercept, kinds, steps, n, seed):
    sketch = olss.Sketch(size=10**6, seed=0, intercept=intercept)
    parts = stream(kinds, steps, n, seed)
    for part in parts:
        sketch.update(part)
    state, table = state_of(sketch), pd.concat(parts)
    varies = state.encoder.varying(state.moments)
    T = row_map(state.encoder.plan, varies, intercept=intercept)
    rank, U = whitened(encoded(sketch, table) @ T.T)
    scorer = state.encoder.scorer(state.moments, "exact", 10**6, 0)
    scores, _ = scorer(pa.Table.from_pandas(table, preserve_index=False))
    assert scorer.dimension == rank
    np.testing.assert_allclose(scores, (U**2).sum(axis=1), rtol=1e-3, atol=1e-9)


def test_a_year_that_moves_on_beside_a_text():
    rng = np.random.default_rng(0)
    sketch = olss.Sketch(size=10**6, seed=0)
    for start in (1900, 1950, 2000):
        year = start + rng.integers(0, 10, 3000)
        sketch.update(pd.DataFrame({"kind": rng.choice(["a", "b"], 3000), "year": year}))
    assert sketch.error().directions == 3
    assert sketch.error().relative < 1e-6


CONDITIONS = [0.0, 1e2, 3e5, 1e7, 1e9, 1e12]


@pytest.mark.filterwarnings("ignore:.*known to about.*:olss.OlssWarning")
@pytest.mark.parametrize("gone", [1, 50])
@pytest.mark.parametrize("offset", CONDITIONS)
def test_rows_removed_leave_the_error_of_an_svd_of_the_rest(offset, gone):
    X = np.random.default_rng(0).standard_normal((3000, 5)) + offset
    sketch = olss.Sketch(200, seed=0).update(X)
    removed = sketch.index[100 : 100 + gone].copy()
    sketch.remove(index=removed)
    left = np.setdiff1d(np.arange(3000), removed)
    rows = np.searchsorted(left, sketch.index)
    _, error = true_error(X[left], rows, sketch.weight, rank=5)
    found = sketch.error()
    assert found.directions == 5
    assert found.relative == pytest.approx(error, rel=1e-4 + 6e-14 * offset)


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
@pytest.mark.parametrize("huge", [1e3, 1e5, 1e6, 1e7, 1e8, 1e9, 1e12])
def test_a_huge_row_removed_leaves_the_truth_or_says_that_it_is_not_known(huge):
    X = np.random.default_rng(0).standard_normal((3000, 5))
    X[17] *= huge
    sketch = olss.Sketch(200, seed=0).update(X)
    sketch.remove(index=17)
    left = np.delete(np.arange(3000), 17)
    rank, error = true_error(X[left], np.searchsorted(left, sketch.index), sketch.weight)
    found = sketch.error()
    low, high = found.relative_interval
    assert low * 0.999 <= error <= high * 1.001
    if found.guaranteed:
        assert found.directions == rank == 5
    if huge in (1e3, 1e7):  # by squares and by rows
        assert found.relative == pytest.approx(error, rel=1e-2)
    if huge >= 1e9:
        assert found.hidden
        assert found.lost == 1
        assert "rounding hides" in str(found)


def test_a_huge_row_removed_from_a_sketch_that_holds_all_is_as_if_never_seen():
    X = np.random.default_rng(0).standard_normal((300, 5))
    X[17] *= 1e12
    sketch = olss.Sketch(500, seed=0).update(X)
    sketch.remove(index=17)
    assert sketch.error().directions == 5
    assert sketch.error().relative < 1e-6


def test_the_last_row_of_a_direction_removed_is_said_to_be_gone():
    X = np.random.default_rng(0).standard_normal((3000, 5))
    X[:, 4] = 0
    X[17, 4] = 1.0
    sketch = olss.Sketch(200, seed=0).update(X)
    sketch.remove(index=17)
    found = sketch.error()
    assert found.directions == 4
    assert found.guaranteed
    assert "not counted" in str(found)


def test_no_guarantee_names_the_columns_of_the_missing_direction():
    A = np.random.default_rng(0).standard_normal((500, 5))
    A[:, 3] = 0
    A[0, 3] = 1.0
    found = certify(SeenMoments().update(A), [A[1:]], names=list("abcde"))
    assert not found.guaranteed
    assert found.columns == ("d",)
    assert found.promise.startswith("No guarantee")
    assert "spanned by d" in found.promise
    twice = certify(SeenMoments().update(A), [A], [np.where(np.arange(500) == 0, 3.0, 1.0)])
    assert twice.relative == pytest.approx(2)
    assert twice.columns == ("column 3",)
    assert "3 times" in twice.promise
    assert "1e+02%" not in str(found) + str(twice)


def test_a_poor_error_is_shown_with_the_digits_it_needs():
    A = np.random.default_rng(0).standard_normal((500, 3))
    A[:, 2] = 0
    A[:2, 2] = [1.0, 0.05]
    found = certify(SeenMoments().update(A), [A[1:]])
    assert 0.99 < found.relative < 1
    assert f"{100 * found.relative:.6g}%" in found.promise
    assert "e+02" not in str(found)


@pytest.mark.xfail(strict=True, reason="a direction of about the rounding of far columns is kept")
@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
def test_two_columns_far_from_zero_beside_strings():
    sketch = olss.Sketch(size=60, seed=0)
    parts = stream(["text", "far", "far"], steps=23, n=191, seed=60)
    for part in parts:
        sketch.update(part)
    rank, _ = true_error(encoded(sketch, pd.concat(parts)), sketch.index, sketch.weight)
    assert sketch.error().directions == rank
