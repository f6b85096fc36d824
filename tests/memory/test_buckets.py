"""Moments of a window: those of its rows, and of less than a sixteenth of it more."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression

import olss
from olss.errors import InputError
from olss.sketch import state_of

N, WINDOW = 6_000, 1_600
X = np.random.default_rng(0).standard_normal((N, 4)) + np.linspace(0, 5, N)[:, None]
Y = X @ [1.0, -2.0, 3.0, 0.0] + np.random.default_rng(1).standard_normal(N) + X[:, 0] ** 2
DAY = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(N), "h")


def fed(sketch, cuts, start=0, stop=N):
    for part in np.split(np.arange(start, stop), [c - start for c in cuts if start < c < stop]):
        sketch.update(X[part], Y[part])
    return sketch


def assert_are_the_newest(sketch, seen=N):
    """Check moments against the newest rows, of which they say how many they cover."""
    count = state_of(sketch).moments.rows
    assert min(seen, WINDOW) <= count < WINDOW * 17 / 16 + 1
    rows = slice(seen - count, seen)
    full = LinearRegression().fit(X[rows], Y[rows])
    model = sketch.linear_model(kind="least-squares")
    assert model.rows == count
    assert_allclose(model.coef[:, 0], full.coef_, rtol=1e-8, atol=1e-8)
    assert model.r2 == pytest.approx(full.score(X[rows], Y[rows]), rel=1e-8)
    covariance = sketch.moments.covariance()
    assert_allclose(covariance, np.cov(X[rows], rowvar=False), rtol=1e-8)


@pytest.mark.parametrize("cuts", [[], [7, 2_500, 5_999], range(90, N, 90), range(1_100, N, 1_100)])
def test_moments_are_those_of_the_newest_rows_however_they_come(cuts):
    sketch = fed(olss.Sketch(100, window=WINDOW, seed=0), cuts)
    assert_are_the_newest(sketch)
    assert len(state_of(sketch).buckets.buckets) <= 17
    assert "window" in sketch.linear_model().note
    assert "window" in str(sketch.error())


def test_a_window_shorter_than_a_bucket_of_rows_is_exact():
    sketch = fed(olss.Sketch(5, window=10, seed=0), range(300, N, 300))
    assert state_of(sketch).moments.rows == 10
    assert_allclose(sketch.moments.mean["column 1"], X[-10:, 1].mean())


def test_the_certificate_compares_with_the_window():
    """Against the Gram matrix of the rows covered, by an eigendecomposition."""
    sketch = fed(olss.Sketch(200, window=WINDOW, seed=0), range(500, N, 500))
    count = state_of(sketch).moments.rows
    G = X[-count:].T @ X[-count:]
    kept = sketch.X * np.sqrt(sketch.weight)[:, None]
    L = np.linalg.inv(np.linalg.cholesky(G))
    wanted = abs(np.linalg.eigvalsh(L @ (kept.T @ kept) @ L.T) - 1).max()
    assert sketch.error().relative == pytest.approx(wanted, rel=1e-6)


def test_saved_and_continued_it_is_the_same(tmp_path):
    sketch = fed(olss.Sketch(100, window=WINDOW, seed=0), [1_300, 2_700], stop=4_000)
    sketch.save(tmp_path / "sketch.parquet")
    loaded = olss.Sketch.load(tmp_path / "sketch.parquet")
    assert state_of(loaded).moments == state_of(sketch).moments
    for one in (sketch, loaded):
        fed(one, [5_000], start=4_000)
        assert_are_the_newest(one)
    assert (sketch.index == loaded.index).all()


@pytest.mark.parametrize("cut", [300, 3_333, 5_700])
def test_merged_rows_come_after(cut):
    a = fed(olss.Sketch(100, window=WINDOW, seed=0), [1_000, 2_222], stop=cut)
    b = fed(olss.Sketch(100, window=WINDOW, seed=1), [4_444], start=cut)
    assert_are_the_newest(a.merge(b))
    fed(a, [], start=0, stop=100)  # it goes on
    assert WINDOW <= state_of(a).moments.rows < WINDOW * 17 / 16 + 1


def test_many_small_merges_stay_few_buckets():
    sketch = olss.Sketch(50, window=WINDOW, seed=0)
    for start in range(0, N, 150):
        sketch.merge(fed(olss.Sketch(50, window=WINDOW, seed=start), [], start, start + 150))
    buckets = state_of(sketch).buckets.buckets
    assert len(buckets) <= 34
    assert all(b.newest - b.oldest < WINDOW / 16 for b in buckets)
    assert_are_the_newest(sketch)


def test_by_time_rows_may_be_out_of_order_and_come_from_two_machines():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=Y, day=DAY)
    a, b = (
        olss.Sketch(100, window=f"{WINDOW}h", time="day", exclude=["day"], seed=s) for s in (0, 1)
    )
    for start in range(0, N, 1_000):
        part = frame.iloc[start + rng.permutation(1_000)]
        a.update(part[::2], y="y")
        b.update(part[1::2], y="y")
    assert_are_the_newest(a.merge(b))


def test_removed_rows_are_subtracted_from_their_bucket():
    sketch = fed(olss.Sketch(300, window=WINDOW, seed=0), range(500, N, 500))
    count, gone = state_of(sketch).moments.rows, sketch.index[::3]
    sketch.remove(index=gone)
    rows = np.setdiff1d(np.arange(N - count, N), gone)
    full = LinearRegression().fit(X[rows], Y[rows])
    assert_allclose(sketch.linear_model(kind="least-squares").coef[:, 0], full.coef_, rtol=1e-7)
    fed(sketch, [], stop=2 * WINDOW)  # the rows removed have left
    count = state_of(sketch).moments.rows
    assert_allclose(sketch.moments.mean["column 0"], X[2 * WINDOW - count : 2 * WINDOW, 0].mean())


def test_a_half_life_fades_rows_inside_the_window():
    sketch = fed(olss.Sketch(100, window=WINDOW, half_life=400, seed=0), range(350, N, 350))
    count = state_of(sketch).moments.rows
    weight = 0.5 ** (np.arange(count)[::-1] / 400)
    full = LinearRegression().fit(X[-count:], Y[-count:], weight)
    assert_allclose(sketch.linear_model(kind="least-squares").coef[:, 0], full.coef_, rtol=1e-7)


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_have_the_same_window(by_time, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("olss.files.chunks.SMALL_BYTES", 1)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=Y, day=DAY)
    names = []
    for i, part in enumerate(np.split(np.arange(N), [1_000, 1_250, 4_100])):
        names.append(str(tmp_path / f"{i}.{kind}"))
        if kind == "csv":
            frame.iloc[part].to_csv(names[-1], index=False)
        else:
            frame.iloc[part].to_parquet(names[-1], row_group_size=333, index=False)
    rule = {"window": f"{WINDOW}h", "time": "day"} if by_time else {"window": WINDOW}
    options = {"size": 100, "target": "y", "exclude": ["day"], **rule}
    out = tmp_path / "out.parquet"
    for files in (names[:2], names[2:]):
        olss.compress(files, into=out, **options)
    assert_are_the_newest(olss.Sketch.load(out))


def test_totals_off_by_a_bucket_are_not_calibrated_to():
    frame = pd.DataFrame(X, columns=list("abcd"))
    sketch = olss.Sketch(100, window=WINDOW, seed=0).update(frame[:3_000]).update(frame[3_000:])
    with pytest.raises(InputError, match="calibrate"):
        sketch.estimate("a", calibrate=True)
