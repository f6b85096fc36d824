"""What two sketches know of everything they saw, put together in one's coordinates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from olss.errors import DataError, InputError, OlssWarning
from olss.files import compress, inspect
from olss.sketch import Sketch


def day(seed, rows=1500, values=("a", "b"), gaps=False):
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2026-01-01") + pd.Timedelta(days=20 * seed)
    table = pd.DataFrame(
        {
            "text": rng.choice(list(values), rows),
            "number": 3.0 * seed + (1 + seed) * rng.standard_normal(rows),
            "when": start + pd.to_timedelta(rng.integers(0, 86_400, rows), "s"),
            "code": [f"c{i}" for i in rng.integers(0, 60, rows)],
        }
    )
    if gaps:
        table.loc[::7, "number"] = np.nan
    return table


def array(seed, gaps=None):
    X = np.random.default_rng(seed).standard_normal((1500, 4)) + seed
    if gaps is not None:
        X[::5, gaps] = np.nan
    return X


PAIRS = {
    "other medians and scales": (day(0), day(3)),
    "values only one has": (day(0), day(1, values=("a", "x", "y"))),
    "gaps only here": (day(0, gaps=True), day(1)),
    "gaps only there": (day(0), day(1, gaps=True)),
    "dates of another unit": (day(0), day(1).astype({"when": "datetime64[s]"})),
    "arrays": (array(0), array(1)),
    "arrays, gaps only here": (array(0, gaps=1), array(1)),
    "arrays, gaps in other columns": (array(0, gaps=1), array(1, gaps=2)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_spectrum_of_two_is_that_of_one_that_saw_both(name):
    first, second = PAIRS[name]
    merged = Sketch(200, seed=0).update(first).merge(Sketch(200, seed=1).update(second))
    updated = Sketch(200, seed=0).update(first).update(second)
    ours, truth = merged._state.moments, updated._state.moments
    assert (ours.rows, ours.weight) == (truth.rows, truth.weight)
    scale = np.sqrt(np.maximum(truth.matrix.diagonal(), 1e-300))
    np.testing.assert_allclose((ours.matrix - truth.matrix) / scale / scale[:, None], 0, atol=1e-12)
    assert merged.error().relative < 2 * updated.error().relative + 0.05


def test_gaps_that_only_the_other_array_has_are_filled_as_there():
    first, second = array(0), array(1, gaps=1)
    merged = Sketch(200, seed=0).update(first).merge(Sketch(200, seed=1).update(second))
    filled = np.where(np.isnan(second), merged._state.encoder.missing.fill, second)
    truth = Sketch(200, seed=0).update(first).update(filled)._state.moments
    np.testing.assert_allclose(merged._state.moments.matrix, truth.matrix, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"intercept": True}])
def test_an_empty_sketch_becomes_the_other(options):
    merged = Sketch(500, seed=0, **options).merge(Sketch(500, seed=1, **options).update(day(1)))
    assert merged.error().relative < 2
    merged.update(day(0))
    assert merged._state.moments.rows == merged.seen == 3000


def test_a_column_of_which_the_other_knows_nothing_is_named():
    some, many = day(0), day(1).assign(text=[f"t{i}" for i in range(1500)])
    sketch = Sketch(200, seed=0).update(some)
    with pytest.raises(InputError, match="column 'text'"):
        sketch.merge(Sketch(200, seed=1).update(many))
    sketch.merge(Sketch(1500, seed=1).update(many))  # all its rows are there to be looked at
    assert sketch._state.moments.rows == 3000


@pytest.mark.parametrize("options", [{"half_life": 100}, {"window": 100}])
def test_sketches_that_forget_differently_do_not_merge(options):
    plain, other = Sketch(50).update(array(0)), Sketch(50, **options).update(array(1))
    for one, two in ((plain, other), (other, plain)):
        with pytest.raises(InputError, match="other"):
            one.merge(two)


def test_a_spectrum_that_only_one_keeps_is_told():
    with_it = Sketch(50, "reservoir", moments=True, seed=0).update(array(0))
    with pytest.warns(OlssWarning, match="other keeps no moments"):
        with_it.merge(Sketch(50, "reservoir", seed=1).update(array(1)))
    with pytest.raises(InputError, match="error needs the moments"):
        with_it.error()


def columns_of(frame):
    return {name: frame[name].tolist() for name in frame}


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table, columns_of])
def test_a_target_keeps_its_name_and_is_not_taken_for_another(kind):
    table = day(0).assign(late=day(0)["number"] > 0)
    other = Sketch(50, seed=0).update(kind(table), y="late")
    merged = Sketch(50, seed=1).merge(other)
    assert merged._state.table.target == "late"
    merged.update(kind(table), y="late")
    early = kind(table.rename(columns={"late": "early"}))
    with pytest.raises(DataError, match="y"):
        Sketch(50, seed=1).update(early, y="early").merge(other)


def compressed(folder, seed, **options):
    day(seed).assign(shift=seed).to_parquet(folder / f"{seed}.parquet")
    into = folder / f"sketch-{seed}.parquet"
    compress(folder / f"{seed}.parquet", into=into, size=100, seed=seed, **options)
    return Sketch.load(into)


def test_sketches_of_files_know_the_files_of_both_and_where_rows_are_from(tmp_path):
    one, two = (compressed(tmp_path, seed) for seed in (0, 1))
    by_hand = Sketch(100, seed=2).update(day(2).assign(shift=2), task="by hand")
    merged = one.merge(by_hand).merge(two)
    assert merged.seen == 4500
    for path, rows in merged.frame.groupby("olss_source", dropna=False, observed=True):
        given = day(2).assign(shift=2) if pd.isna(path) else pd.read_parquet(path)
        places = rows["olss_index"] - 1500 if pd.isna(path) else rows["olss_row"]
        same = given.iloc[places].reset_index(drop=True)
        kept = rows[same.columns].reset_index(drop=True)
        pd.testing.assert_frame_equal(kept, same, check_dtype=False)
    merged.save(tmp_path / "both.parquet")
    summary = compress(
        [tmp_path / "0.parquet", tmp_path / "1.parquet"], into=tmp_path / "both.parquet"
    )
    assert (summary.new, summary.seen) == (0, 4500)  # not taken in a second time


def test_an_empty_sketch_goes_on_with_files_as_the_other_would(tmp_path):
    merged = Sketch(100, seed=5).merge(compressed(tmp_path, 1, task="shift"))
    merged.save(tmp_path / "both.parquet")
    day(2).assign(shift=7).to_parquet(tmp_path / "2.parquet")
    compress(tmp_path / "2.parquet", into=tmp_path / "both.parquet")
    assert set(Sketch.load(tmp_path / "both.parquet").task) == {1, 7}


def test_intervals_are_wider_after_a_merge_with_a_sketch_that_lost_all_its_rows():
    other = Sketch(50, seed=0).update(array(0))
    other.remove(other.index)
    assert Sketch(50, seed=1).update(array(1)).merge(other)._state.removed == 50


LATE = {
    "a text told apart here alone": (day(0, values="abx"), day(1), day(2, values="abxx")),
    "a gap marked here alone": (day(0, gaps=True), day(1), day(2, gaps=True)),
    "a gap marked nowhere": (day(0), day(1), day(2, gaps=True)),
    "a gap in an array": (array(0, gaps=1), array(1), array(2, gaps=1)),
}


@pytest.mark.parametrize("name", LATE)
def test_what_the_other_did_not_tell_apart_is_not_said_to_be_known(name, tmp_path):
    first, second, third = LATE[name]
    other = Sketch(200, seed=1).update(second).update(third)
    with pytest.warns(OlssWarning, match="moments of both"):
        merged = Sketch(200, seed=0).update(first).merge(other)
    merged.save(tmp_path / "merged.parquet")
    with pytest.warns(OlssWarning, match="moments of both"):
        into_empty = Sketch(200).merge(merged)
    merged.update(first)  # what is not known stays so
    for sketch in (merged, Sketch.load(tmp_path / "merged.parquet"), into_empty):
        with pytest.raises(InputError, match="error needs the moments"):
            sketch.error()
    assert "encoded columns differently" in str(inspect(tmp_path / "merged.parquet"))
    if "array" not in name:
        with pytest.raises(InputError, match="calibrate"):
            merged.estimate("number", calibrate=True)
    assert Sketch(200, seed=1).update(second).merge(Sketch(200).update(third[:100])).error()


def test_calibrated_sums_hold_after_a_merge_with_a_sketch_that_tells_more_apart():
    first, second = day(0), day(1, values="abx", gaps=True)
    merged = Sketch(200, seed=0).update(first).merge(Sketch(200, seed=1).update(second))
    found = merged.estimate(by="text", calibrate=True)
    known = (first["text"] == "a").sum() + (second["text"] == "a").sum()
    assert found["a"].count == pytest.approx(known)
