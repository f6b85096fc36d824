from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olss import leverage_scores
from olss.errors import DataError, InputError
from olss.memory.encoder import Encoder
from olss.memory.moments import SeenMoments
from olss.tables.encoder import NumberBlock, TableEncoder, fit_encoder
from olss.tables.frames import to_arrow
from olss.tables.scoring import TableRows, blocks, one_batch
from olss.util.serialize import from_json, to_json
from tests.tables.test_frames import ARROW, arrow_table


def plan_of(table, **options):
    return fit_encoder(table, **{"columns": None, "exclude": [], "apart": [], **options})


def uses(plan):
    return {c.name: c.use for c in plan.columns}


def scores_of(table, plan, intercept=False, batch=300):
    numbers, seen = Encoder(plan=plan, intercept=intercept), SeenMoments()
    batches = table.to_batches(max_chunksize=batch)
    for part in batches:
        seen = numbers.accumulate(seen, part, np.ones(len(part)), "file", 0)
    scorer = numbers.scorer(seen, "exact", 10**6, 0)
    return np.concatenate([scorer(part, "file", 0)[0] for part in batches])


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 1000
    return pd.DataFrame(
        {
            "real": rng.standard_normal(n) * 100 + 1e4,
            "small": rng.standard_normal(n).astype(np.float32),
            "whole": rng.integers(-5, 100, n),
            "flag": rng.random(n) < 0.3,
            "kind": rng.choice(["red", "green", "blue"], n),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**7, n), "s"),
        }
    )


def test_one_row_that_differs_a_little_is_found_beside_indicators():
    # Indicators of a column depend on each other by construction, and are not looked at again. That
    # must not hide a column that depends on another in all rows but one.
    rng = np.random.default_rng(0)
    twin = rng.standard_normal(1000)
    other = twin.copy()
    other[700] += 1e-7
    kind = rng.choice(["red", "green", "blue"], 1000)
    table = pa.table({"twin": twin, "other": other, "kind": kind})
    scores = scores_of(table, plan_of(table))
    assert scores[700] == pytest.approx(1, abs=1e-3)
    assert scores.sum() == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize("intercept", [False, True])
def test_scores_are_the_leverage_of_what_the_rule_says(frame, intercept):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    plan = plan_of(table)
    ticks = frame["when"].astype("int64").to_numpy().astype(float)
    median = np.sort(ticks)[len(ticks) // 2]
    A = np.column_stack(
        [
            frame[["real", "small", "whole", "flag"]].to_numpy(float),
            pd.get_dummies(frame["kind"]).to_numpy(float),
            (ticks - median) / 1e12,
            *([np.ones(len(frame))] if intercept else []),
        ]
    )
    np.testing.assert_allclose(scores_of(table, plan, intercept), leverage_scores(A), rtol=1e-6)


def test_without_categories_an_intercept_makes_the_difference():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((500, 3)) + np.array([5, 0, -2])
    table = pa.table({name: A[:, i] for i, name in enumerate("abc")})
    plan = plan_of(table)
    np.testing.assert_allclose(scores_of(table, plan), leverage_scores(A), rtol=1e-8)
    with_one = np.column_stack([A, np.ones(500)])
    np.testing.assert_allclose(scores_of(table, plan, True), leverage_scores(with_one), rtol=1e-8)


def test_float32_tables_are_scored_in_float32_to_five_digits():
    rng = np.random.default_rng(2)
    A = (rng.standard_normal((30_000, 8)) * 10.0 ** np.arange(-4, 4) + 3).astype(np.float32)
    table = pa.table({f"x{i}": A[:, i] for i in range(8)})
    plan = plan_of(table)
    assert plan.dtype == "float32"
    exact = leverage_scores(A.astype(np.float64))
    np.testing.assert_allclose(scores_of(table, plan, batch=20_000), exact, rtol=1e-4)


def test_missing_numbers_count_as_the_median_and_are_marked():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(400)
    x[rng.random(400) < 0.2] = np.nan
    y = rng.standard_normal(400)
    whole = [None if i % 7 == 0 else i % 5 for i in range(400)]
    table = pa.table({"x": x, "y": y, "whole": pa.array(whole, pa.int64())})
    plan = plan_of(table)
    assert [c.missing for c in plan.columns] == [True, False, True]

    def filled(values):
        present = np.sort(values[~np.isnan(values)])
        gone = np.isnan(values)
        return np.where(gone, present[len(present) // 2], values), gone

    w = np.array([np.nan if v is None else v for v in whole])
    A = np.column_stack([*filled(x), y, *filled(w)]).astype(float)
    np.testing.assert_allclose(scores_of(table, plan), leverage_scores(A), rtol=1e-8)


def test_nan_that_was_not_in_the_sample_counts_as_the_median():
    rng = np.random.default_rng(4)
    clean = rng.standard_normal((200, 2))
    table = pa.table({"x": clean[:, 0], "y": clean[:, 1]})
    plan = plan_of(table)
    later = clean.copy()
    later[[3, 70], 0] = np.nan
    median = np.sort(clean[:, 0])[100]
    filled = np.where(np.isnan(later), median, later)
    found = scores_of(pa.table({"x": later[:, 0], "y": later[:, 1]}), plan)
    np.testing.assert_allclose(found, leverage_scores(filled), rtol=1e-8)


def test_infinity_is_named_with_its_place():
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 5.0, 2.0]})
    plan = plan_of(table)
    bad = pa.record_batch({"x": [1.0, 2.0, np.inf], "y": [1.0, 5.0, 2.0]})
    with pytest.raises(DataError, match=r"f\.csv: column 'x' holds an infinite value in row 12"):
        Encoder(plan=plan).accumulate(SeenMoments(), bad, np.ones(3), "f.csv", 10)
    numbers = Encoder(plan=plan)
    seen = numbers.accumulate(SeenMoments(), table, np.ones(3))
    scorer = numbers.scorer(seen, "exact", 10, 0)
    with pytest.raises(DataError, match="infinite value in row 2"):
        scorer(bad, "f.csv", 0)


def test_what_each_kind_of_column_is_used_for():
    n = 600
    table = pa.table(
        {
            "text": [f"word {i}" for i in range(n)],
            "code": [f"c{i % 100}" for i in range(n)],
            "kind": [f"k{i % 3}" for i in range(n)],
            "category": pa.array([f"k{i % 4}" for i in range(n)]).dictionary_encode(),
            "day": [dt.date(2024, 1, 1) + dt.timedelta(i) for i in range(n)],
            "price": [decimal.Decimal(i) / 100 for i in range(n)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * n)), 2),
            "list": [[i] for i in range(n)],
            "bytes": [b"x"] * n,
            "nothing": pa.nulls(n),
            "y": np.arange(n),
            "left": np.arange(n),
        }
    )
    plan = plan_of(table, apart=["y"], exclude=["left"])
    assert uses(plan) == {
        "text": "passthrough",
        "code": "hashed",
        "kind": "one-hot",
        "category": "one-hot",
        "day": "date",
        "price": "number",
        "vector": "vector",
        "list": "passthrough",
        "bytes": "passthrough",
        "nothing": "passthrough",
        "y": "passthrough",
        "left": "passthrough",
    }
    assert uses(plan_of(table, columns=["day"]))["kind"] == "passthrough"
    assert from_json(TableEncoder, to_json(plan)) == plan
    encoded = plan.encode(one_batch(table))
    out = np.empty((plan.width + 1, n))
    plan.fill(encoded, slice(0, n), out)
    assert np.isfinite(out).all()
    code = out[: plan.columns[1].width]
    assert np.all(code.sum(axis=0) == 1)


def test_values_never_seen_before_go_to_the_column_for_others():
    table = pa.table({"kind": ["a", "b"] * 10})
    plan = plan_of(table)
    new = pa.record_batch({"kind": ["b", "zebra", None, "a"]})
    out = np.empty((4, 4))
    plan.fill(plan.encode(new), slice(0, 4), out)
    np.testing.assert_array_equal(out[:3].argmax(axis=0), [1, 2, 2, 0])


def test_constant_columns_do_not_change_the_scores():
    rng = np.random.default_rng(5)
    A = rng.standard_normal((100, 2))
    table = pa.table({"a": A[:, 0], "c": [7.5] * 100, "k": ["same"] * 100, "b": A[:, 1]})
    np.testing.assert_allclose(scores_of(table, plan_of(table)), leverage_scores(A), rtol=1e-8)


def test_large_dates_keep_their_seconds():
    start = dt.datetime(2024, 1, 1)
    times = [start + dt.timedelta(seconds=i) for i in range(100)]
    table = pa.table({"t": pa.array(times, pa.timestamp("ns"))})
    x = np.arange(100.0) - 50
    found = scores_of(table, plan_of(table))
    np.testing.assert_allclose(found, leverage_scores(x[:, None]), rtol=1e-9)


def test_too_many_columns_are_refused():
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(10_000)), 5000)})
    with pytest.raises(InputError, match="5,000 numbers"):
        plan_of(table)


def test_weighted_gram_is_that_of_repeated_rows():
    rng = np.random.default_rng(6)
    table = pa.table({"x": rng.standard_normal(20), "k": ["a", "b"] * 10})
    plan = plan_of(table)
    times = rng.integers(1, 4, 20)
    repeated = table.take(np.repeat(np.arange(20), times))
    weighted = SeenMoments().update(TableRows(plan, table, times.astype(float)))
    every = SeenMoments().update(TableRows(plan, repeated))
    np.testing.assert_allclose(weighted.matrix, every.matrix, atol=1e-12)


def test_ridge_for_sketches_smaller_than_twice_the_columns():
    rng = np.random.default_rng(7)
    A = rng.standard_normal((200, 30))
    table = pa.table({f"x{i}": A[:, i] for i in range(30)})
    numbers = Encoder(plan=plan_of(table))
    seen = numbers.accumulate(SeenMoments(), table, np.ones(200))
    auto = numbers.scorer(seen, "auto", 40, 0)
    assert auto.dimension == pytest.approx(2, rel=1e-3)
    exact = numbers.scorer(seen, "auto", 60, 0)
    assert exact.dimension == 30


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(ARROW)), min_size=1, max_size=6, unique=True),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_any_columns_become_finite_numbers(kinds, n, gaps, seed):
    rng = np.random.default_rng(seed)
    first, _ = to_arrow(arrow_table(kinds, n, rng, gaps))
    later, _ = to_arrow(arrow_table(kinds, n, rng))
    plan = from_json(TableEncoder, to_json(fit_encoder(first)))
    for table in (first, later):
        for rows, Z in blocks(plan, one_batch(table), find_nan=True):
            assert Z.shape == (plan.width + 1, rows.stop - rows.start)
            assert np.isfinite(Z).all()
            assert set(np.unique(Z[:-1][plan.is_indicator])) <= {0, 1}


ROWS = 1_000


def columns_of(names, dtype, rng):
    return {name: pa.array((5 + rng.standard_normal(ROWS)).astype(dtype)) for name in names}


def table(rng):
    floats = columns_of("abc", np.float32, rng)
    mixed = {"n": pa.array(np.arange(ROWS)), "kind": pa.array(["x", "y"] * (ROWS // 2))}
    return pa.table(floats | mixed | columns_of("de", np.float64, rng))


def numbers(plan, batch, find_nan, dtype):
    parts = [Z.copy() for _, Z in blocks(plan, batch, find_nan=find_nan, dtype=np.dtype(dtype))]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gaps", [False, True])
def test_they_are_what_they_are_one_by_one(dtype, gaps):
    rng = np.random.default_rng(0)
    plan = fit_encoder(table(rng))
    new = table(rng)
    if gaps:  # where the sample had none
        new = new.set_column(1, "b", pa.array([*range(9), None, *range(ROWS - 10)], pa.float32()))
    batch = new.combine_chunks().to_batches()[0].slice(3, 500)
    together = [isinstance(column, NumberBlock) for column, _ in plan.encode(batch)]
    assert sum(together) == (1 if gaps else 2)
    # One by one is how it is done with care.
    np.testing.assert_array_equal(
        numbers(plan, batch, False, dtype), numbers(plan, batch, True, dtype)
    )


def test_a_gap_is_the_median_wherever_it_is():
    rng = np.random.default_rng(0)
    plan = fit_encoder(table(rng).select(["a", "b", "c"]))
    new = pa.table(columns_of("abc", np.float32, rng))
    holes = np.where(np.arange(ROWS) % 7, new.column("b").to_numpy(), np.nan)
    new = new.set_column(1, "b", pa.array(holes.astype(np.float32)))
    found = numbers(plan, new.to_batches()[0], True, "float32")
    assert (found[1, ::7] == 0).all()
    assert np.isfinite(found).all()


def test_many_texts_with_few_rows_each_are_identifiers_unless_the_user_says_otherwise():
    n = 60
    table = pa.table(
        {
            "id": [f"customer {i % 20}" for i in range(n)],
            "zip": [f"{i % 20}" for i in range(n)],
            "x": np.arange(float(n)),
            "counter": np.arange(n),
        }
    )
    assert {c.name: c.use for c in fit_encoder(table).columns}["id"] == "passthrough"
    kinds = {"zip": "category", "counter": "ignore", "x": "number"}
    chosen = {c.name: c.use for c in fit_encoder(table, columns=kinds).columns}
    assert chosen == {
        "id": "passthrough",
        "zip": "one-hot",
        "x": "number",
        "counter": "passthrough",
    }
    for wrong in ({"id": "number"}, {"x": "category"}):
        with pytest.raises(InputError, match=f"columns: '{next(iter(wrong))}'"):
            fit_encoder(table, columns=wrong)
