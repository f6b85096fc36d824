"""Each kind of column against numbers worked out by hand or by pandas."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olss.errors import DataError
from olss.tables.columns import Column
from olss.tables.encoder import KINDS, TableEncoder, fit_column, fit_encoder
from olss.tables.scoring import blocks
from olss.util.serialize import from_json, to_json


def numbers(array, later=None):
    """Return (width, rows) numbers of an array, planned on itself, or of a later one."""
    plan = fit_encoder(pa.table({"c": array}))
    batch = pa.record_batch({"c": array if later is None else later})
    return np.concatenate([Z.copy() for _, Z in blocks(plan, batch, find_nan=True)], axis=1)[:-1]


def by_rule(values):
    """Return z and the mark of floats with NaN, as the rule says it."""
    present = np.sort(values[~np.isnan(values)])
    shift = present[len(present) // 2]
    scale = np.sqrt(np.mean((present - shift) ** 2))
    z = np.where(np.isnan(values), 0, (values - shift) / scale)
    return np.stack([z, np.isnan(values)]) if np.isnan(values).any() else z[None]


VALUES = np.array([3.0, np.nan, 1.0, 7.0, 4.0, np.nan, 0.0])
WHOLE = [None if np.isnan(v) else int(v) for v in VALUES]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32()),
        *(pa.decimal32(5, 1), pa.decimal64(9, 1), pa.decimal128(20, 1), pa.decimal256(50, 1)),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int8(), pa.float64()),
    ],
    ids=str,
)
def test_numbers_of_every_type_are_the_same_numbers(kind):
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_decimal(kind):
        array = pa.array([None if v is None else decimal.Decimal(v) for v in WHOLE], plain)
    elif pa.types.is_float16(kind):
        array = pa.array([None if v is None else np.float16(v) for v in WHOLE], plain)
    else:
        array = pa.array(WHOLE, plain)
    array = array if plain == kind else array.dictionary_encode().cast(kind)
    np.testing.assert_allclose(numbers(array), by_rule(VALUES), rtol=1e-6)


def test_booleans_with_gaps():
    array = pa.array([True, None, False, False, True, True])
    expected = by_rule(np.array([1, np.nan, 0, 0, 1, 1.0]))
    np.testing.assert_allclose(numbers(array), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
        *(pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
        *(pa.timestamp("s"), pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns", "+02:00")),
    ],
    ids=str,
)
def test_dates_times_and_durations_count_in_their_unit(kind):
    ticks = np.array([5.0, np.nan, 1.0, 9.0, 3.0]) * (86_400_000 if kind == pa.date64() else 1)
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    array = pa.array([None if np.isnan(t) else int(t) for t in ticks], width).view(kind)
    np.testing.assert_allclose(numbers(array), by_rule(ticks), rtol=1e-12)


def test_dates_of_a_finer_unit_are_scored_as_before():
    start = dt.datetime(2026, 1, 1)
    times = [start + dt.timedelta(seconds=i * i) for i in range(50)]
    coarse = pa.array(times, pa.timestamp("s"))
    for unit in ("ms", "us", "ns"):
        np.testing.assert_array_equal(
            numbers(coarse, coarse.cast(pa.timestamp(unit))), numbers(coarse)
        )
    days = pa.array([t.date() for t in times], pa.date32())
    later = days.cast(pa.timestamp("us"))
    np.testing.assert_array_equal(numbers(days, later), numbers(days))


def test_gaps_in_nanoseconds_cost_no_digits():
    ticks = [1_700_000_000_000_000_000 + i for i in range(9)]
    clean = pa.array(ticks, pa.timestamp("ns"))
    gappy = pa.array([*ticks, None], pa.timestamp("ns"))
    plan = fit_encoder(pa.table({"t": clean}))
    (_, Z), *_ = blocks(plan, pa.record_batch({"t": gappy}))
    step = np.diff(Z[0, :9])
    np.testing.assert_array_equal(step, step[0])
    assert step[0] > 0


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_text_of_every_type_is_the_same_text(kind):
    words = ["b", "a", None, "b", "a", "c", "c"]
    array = pa.array(words)
    array = (
        array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array.cast(kind)
    )
    column = fit_column("c", pa.chunked_array([array]))
    assert (column.use, column.values) == ("one-hot", ("a", "b", "c"))
    np.testing.assert_array_equal(numbers(array).argmax(axis=0), [1, 0, 3, 1, 0, 2, 2])


def test_vectors_with_gaps_are_zero_there():
    lists = [[3.0, 4.0], None, [None, 5.0], [0.0, 0.0]]
    for item in (pa.float16(), pa.float32(), pa.float64()):
        typed = [
            [None if v is None else np.float16(v) for v in row] if row else row for row in lists
        ]
        values = typed if item == pa.float16() else lists
        found = numbers(pa.array(values, pa.list_(item, 2)))
        scale = np.sqrt((9 + 16 + 25) / 7)  # a missing list is two zeros, a missing item nothing
        expected = np.array([[3, 0, 0, 0], [4, 0, 5, 0]]) / scale
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_cannot_be_scored_says_why():
    n = 6
    columns = {
        "nothing": pa.nulls(n),
        "no text": pa.array([None] * n, pa.string()),
        "words": pa.array([f"w{i}" for i in range(n)]),
        "bytes": pa.array([b"x"] * n),
        "view": pa.array([b"x"] * n, pa.binary_view()),
        "struct": pa.array([{"a": 1}] * n),
        "interval": pa.array([(1, 2, 3)] * n, pa.month_day_nano_interval()),
        "names": pa.array([["a", "b"]] * n, pa.list_(pa.string(), 2)),
    }
    assert {c.name: (c.use, c.why) for c in fit_encoder(pa.table(columns)).columns} == {
        "nothing": ("passthrough", "empty"),
        "no text": ("passthrough", "empty"),
        "words": ("passthrough", "text, 6 values in 6"),
        "bytes": ("passthrough", "neither number, date nor text"),
        "view": ("passthrough", "neither number, date nor text"),
        "struct": ("passthrough", "neither number, date nor text"),
        "interval": ("passthrough", "neither number, date nor text"),
        "names": ("passthrough", "lists of string"),
    }


def plan_of_every_kind():
    n = 300
    return fit_encoder(
        pa.table(
            {
                "number": pa.array([None, *range(n - 1)]),
                "date": pa.array(range(n), pa.timestamp("us")),
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * n)), 2),
                "few": [f"{i % 3}" for i in range(n)],
                "many": [f"{i % 50}" for i in range(n)],
                "passthrough": [b"x"] * n,
            }
        )
    )


def test_every_kind_comes_back_from_json():
    plan = plan_of_every_kind()
    assert [c.use for c in plan.columns] == list(KINDS)
    assert from_json(TableEncoder, json.loads(json.dumps(to_json(plan)))) == plan


def test_every_number_has_a_name_of_its_own():
    labels = plan_of_every_kind().labels()
    assert len(set(labels)) == len(labels)
    one_hot = ["few = '0'", "few = '1'", "few = '2'", "few, others"]
    assert labels[:9] == [
        "number", "number is missing", "date", "vector[0]", "vector[1]", *one_hot
    ]  # fmt: skip


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([*KINDS, 1 << 40, -1, 0, 1e308, "float64", [], {}, ["a", "a"], [1]]),
    st.lists(st.text(max_size=2), max_size=3),
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_changed_plan_is_refused_or_harmless(data):
    state = json.loads(json.dumps(to_json(plan_of_every_kind())))
    column = data.draw(st.sampled_from([state, *state["columns"]]))
    key = data.draw(st.sampled_from([*column, "more"]))
    if data.draw(st.booleans()):
        column.pop(key, None)
    else:
        column[key] = data.draw(HOSTILE)
    try:
        plan = from_json(TableEncoder, state)
    except ValueError:
        return
    assert plan.width <= 1 << 20
    assert len(plan.offsets) == len(plan.is_indicator) == plan.width == len(plan.owners())
    assert len(plan.labels()) == plan.width
    assert from_json(TableEncoder, to_json(plan)) == plan


@pytest.mark.parametrize(
    ("use", "key", "value"),
    [
        ("number", "scale", 0),
        ("number", "scale", "1"),
        ("number", "shift", float("nan")),
        ("number", "missing", 1),
        ("date", "unit", "year"),
        ("date", "shift", 1e30),
        ("vector", "length", 10**12),
        ("one-hot", "values", [1]),
        ("hashed", "buckets", -1),
        ("hashed", "buckets", 10**12),
        ("passthrough", "name", 3),
        ("passthrough", "class", "guessed"),
    ],
)
def test_impossible_entries_are_refused(use, key, value):
    state = {c.use: to_json(c) for c in plan_of_every_kind().columns}[use]
    names = "width" if key in ("length", "buckets") else "Column" if key == "class" else key
    with pytest.raises(ValueError, match=names):
        from_json(Column, {**state, key: value})


def test_time_grows_with_the_number_of_columns_not_its_square(monkeypatch):
    monkeypatch.setenv("OLSS_GRAM_MB", "10000")

    def seconds(n):
        table = pa.table({f"c{i}": np.arange(8.0) for i in range(n)})
        batch = table.to_batches()[0]
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            plan = fit_encoder(table, exclude=table.schema.names[: n // 2])
            for _ in blocks(plan, batch):
                pass
            plan.uses(np.ones(plan.width, bool))
            best = min(best, time.perf_counter() - start)
        return best

    # Ten times the columns; what is quadratic would take a hundred times as long.
    assert seconds(10_000) < 40 * seconds(1_000)


def test_lists_of_floats_of_one_length_are_vectors():
    rows = [[1.0, 2.0], None, [3.0, 4.0]]
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)):
        found = numbers(pa.array(rows, kind))
        np.testing.assert_allclose(found, numbers(pa.array(rows, pa.list_(pa.float64(), 2))))
    assert (
        fit_column("c", pa.chunked_array([[[1.0], [1.0, 2.0]]])).why == "lists of different lengths"
    )
    assert fit_column("c", pa.chunked_array([[[1, 2], [3, 4]]])).use == "passthrough"
    with pytest.raises(DataError, match=r"'c'.*lists of 2 numbers.*one of 3"):
        numbers(pa.array([[1.0, 2.0]]), pa.array([[1.0, 2.0, 3.0]]))
