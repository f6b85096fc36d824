"""Forgetting at a chosen rate: the sketch is one of the decayed stream, however it is cut up."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olss.errors import DataError, InputError
from olss.files import compress
from olss.sketch import Sketch

ROWS, HALF = 3_000, 500.0
X = np.random.default_rng(0).standard_normal((ROWS, 3)) + np.linspace(0, 2, ROWS)[:, None]
SHARE = np.exp2(-(ROWS - 1 - np.arange(ROWS)) / HALF)
TRUTH = np.array([SHARE.sum(), *(SHARE @ X), *((X * SHARE[:, None]).T @ X)[np.triu_indices(3)]])


def sums(sketch):
    w, rows = sketch.weight, np.asarray(sketch.X)
    return np.array([w.sum(), *(w @ rows), *((rows * w[:, None]).T @ rows)[np.triu_indices(3)]])


def assert_unbiased(samples):
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    # A reservoir's total weight is right each time, up to rounding.
    z = (np.mean(samples, axis=0) - TRUTH) / np.maximum(error, 1e-9 * np.abs(TRUTH))
    assert np.abs(z).max() < 4.5, z  # ten means: by chance once in 15,000


def fed(sketch, cuts):
    for part in np.split(X, cuts):
        sketch.update(part)
    return sketch


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("cuts", [[], [7, 1_500, 2_999]], ids=["one update", "four updates"])
def test_sums_are_those_of_the_decayed_stream(policy, cuts):
    sketches = [fed(Sketch(100, policy, half_life=HALF, seed=s), cuts) for s in range(150)]
    assert_unbiased([sums(sketch) for sketch in sketches])


@pytest.mark.parametrize("cuts", [[], [7, 1_500, 2_999], range(100, 3_000, 100)])
def test_spectrum_and_base_weights_do_not_depend_on_the_cuts(cuts):
    sketch = fed(Sketch(100, half_life=HALF, seed=0), cuts)
    spectrum = sketch._state.moments
    np.testing.assert_allclose(spectrum.matrix, (X * SHARE[:, None]).T @ X, rtol=1e-6)
    assert spectrum.weight == pytest.approx(SHARE.sum())
    np.testing.assert_allclose(sketch._state.rows["initial_weight"], SHARE[sketch.index])


def test_merging_and_saving_keep_it(tmp_path):
    samples = []
    for seed in range(150):
        first = fed(Sketch(100, half_life=HALF, seed=seed), [])
        first = Sketch(100, half_life=HALF, seed=seed).update(X[:1_200])
        if seed < 5:
            first.save(tmp_path / "first.parquet")
            first = Sketch.load(tmp_path / "first.parquet", frame="arrow")
        second = Sketch(100, half_life=HALF, seed=1_000 + seed).update(X[1_200:])
        samples.append(sums(first.merge(second)))
    assert_unbiased(samples)


def test_estimates_are_those_of_the_decayed_stream():
    inside = 0
    for seed in range(100):
        sketch = fed(Sketch(150, half_life=HALF, seed=seed), [1_000, 2_000])
        low, high = sketch.estimate(lambda rows: rows[:, 0]).interval("total")
        inside += low < SHARE @ X[:, 0] < high
    assert inside >= 88  # 95 expected; 88 or fewer have a chance of 0.004


def times(rows=ROWS):
    return pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), "h")


def test_by_time_it_does_not_matter_how_many_rows_come():
    frame = pd.DataFrame({"x": X[:, 0], "day": times()})
    sketch = Sketch(100, half_life="500h", time="day", seed=0)
    for part in (frame[:100], frame[100:1_300], frame[1_300:]):
        sketch.update(part)
    base = sketch._state.rows["initial_weight"]
    np.testing.assert_allclose(base, SHARE[sketch.index], rtol=1e-9)
    assert sketch._state.moments.weight == pytest.approx(SHARE.sum())
    by_extra = Sketch(100, half_life="500h", time="day", seed=0)
    by_extra.update(X, extra={"day": times().to_numpy()})
    np.testing.assert_allclose(
        by_extra._state.rows["initial_weight"], SHARE[by_extra.index], rtol=1e-9
    )


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced-random", "recent"])
def test_a_window_has_a_hard_edge(policy):
    sketch = Sketch(100, policy, window=400, seed=0)
    for part in np.split(X, 10):
        sketch.update(part)
    assert sketch.index.min() >= ROWS - 400
    assert len(sketch) == 100
    if policy in ("weighted", "reservoir"):
        assert 200 < sketch.weight.sum() < 700
    by_time = Sketch(5_000, policy, window="48h", time="day", seed=0)
    by_time.update(pd.DataFrame({"x": X[:, 0], "day": times()}))
    assert sorted(by_time.index) == list(range(ROWS - 48, ROWS))


@pytest.mark.parametrize("policy", ["weighted", pytest.param("reservoir", marks=pytest.mark.slow)])
def test_files_obey_it_too(policy, tmp_path, monkeypatch):
    monkeypatch.setattr("olss.files.chunks.SMALL_BYTES", 1)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "when": times().to_numpy()})
    pq.write_table(table.slice(0, 1_000), tmp_path / "1.parquet", row_group_size=300)
    pq.write_table(table.slice(1_000), tmp_path / "2.parquet", row_group_size=700)
    options = {"policy": policy, "exclude": ["when"]}
    for name, rule in {
        "rows": {"half_life": HALF},
        "time": {"half_life": "500h", "time": "when"},
    }.items():
        samples = []
        for seed in range(60):
            out = tmp_path / f"{name}.parquet"
            out.unlink(missing_ok=True)
            compress(tmp_path / "1.parquet", into=out, size=100, seed=seed, **options, **rule)
            compress(tmp_path / "2.parquet", into=out)
            sketch = Sketch.load(out, frame="arrow")
            w = sketch.weight
            rows = np.column_stack([sketch.X.column(c).to_numpy() for c in "abc"])
            samples.append(
                [w.sum(), *(w @ rows), *((rows * w[:, None]).T @ rows)[np.triu_indices(3)]]
            )
            np.testing.assert_allclose(
                sketch._state.rows["initial_weight"], SHARE[sketch.index], rtol=1e-6
            )
        assert_unbiased(samples)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"half_life": 0}, "half_life must be a number above 0"),
        ({"half_life": -3}, "half_life must be a number above 0"),
        ({"half_life": "soon"}, "such as '30d'"),
        ({"half_life": 9, "policy": "paper"}, "half_life"),
        ({"half_life": 9, "policy": "balanced"}, "half_life"),
        ({"time": "day"}, "give one of them"),
        ({"window": 0}, "window"),
    ],
)
def test_what_cannot_be_is_said(options, says):
    with pytest.raises(InputError, match=says):
        Sketch(10, **options)


def test_time_that_is_missing_or_runs_backwards():
    frame = pd.DataFrame({"x": X[:1_200, 0], "day": times(1_200)})
    sketch = Sketch(100, half_life="9h", time="day", seed=0).update(frame)
    before = sketch.seen
    with pytest.raises(DataError, match="time"):
        sketch.update(frame.assign(day=frame["day"] - pd.Timedelta(days=90)))
    with pytest.raises(DataError, match=r"day.*row 3"):
        sketch.update(frame.assign(day=frame["day"].where(np.arange(1_200) != 3)))
    with pytest.raises(InputError, match="there is no column 'dya'"):
        Sketch(100, half_life="9h", time="dya").update(frame)
    assert sketch.seen == before


def test_rows_so_old_that_they_count_nothing_are_let_go_of(tmp_path):
    days = np.array(["1900-01-01", "2026-01-01", "2026-01-02"], "M8[s]")
    sketch = Sketch(10, half_life="1h", time="day").update(np.eye(3), extra={"day": days})
    assert len(sketch) == 2
    sketch.update(np.eye(3), extra={"day": days + np.timedelta64(60, "D")})
    assert len(sketch) == 2
    assert (sketch.weight > 0).all()
    sketch.save(tmp_path / "s.parquet")
    assert len(Sketch.load(tmp_path / "s.parquet", frame="arrow")) == 2


@pytest.mark.parametrize("option", ["half_life", "window"])
def test_a_length_of_time_needs_a_time(option):
    with pytest.raises(InputError, match=f"{option}.*time="):
        Sketch(10, **{option: "30d"})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [40, 2_000], ids=["rows that wait", "rows drawn from at once"])
def test_times_before_1970_are_times_like_others(rows):
    def fed_from(start):
        sketch = Sketch(4 * rows, half_life="30d", time="day", seed=0)
        for part in range(2):
            day = pd.Timestamp(start) + pd.to_timedelta(np.arange(rows) + part * rows, "h")
            sketch.update(pd.DataFrame({"x": X[:rows, 0], "day": day}))
        return sketch

    early, late = fed_from("1950-01-01"), fed_from("2026-01-01")
    np.testing.assert_allclose(early.weight, late.weight, rtol=1e-12)
    merged = Sketch(4 * rows, half_life="30d", time="day", seed=1).merge(early)
    np.testing.assert_array_equal(merged.weight, early.weight)
    assert merged._state.now == early._state.now


@pytest.mark.parametrize("setting", [{"half_life": "30d"}, {"window": "90d"}])
def test_a_length_of_time_wants_dates(setting):
    """Days counted 0, 1, 2 are not seconds."""
    sketch = Sketch(9, "reservoir", time="day", seed=0, **setting)
    with pytest.raises(InputError, match="time"):
        sketch.update(np.ones((5, 2)), extra={"day": np.arange(5)})
    dates = np.datetime64("2026-01-01") + np.arange(5)
    assert len(sketch.update(np.ones((5, 2)), extra={"day": dates})) == 5
