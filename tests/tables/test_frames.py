"""Frames of each library become Arrow columns and come back equal, cell by cell."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import subprocess
import sys
import uuid

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olss.errors import DataError, OlssWarning
from olss.tables.frames import FrameKind, from_arrow, is_table, to_arrow
from olss.tables.schema import conform, unify_schemas
from olss.util.serialize import from_json, to_json

WORDS = ["red", "green", "", "ünï", "red "]
DAY = dt.datetime(2026, 3, 1)
NANOSECOND = pd.Timestamp("2026-03-01 00:00:00.000000001")
UUID = uuid.UUID(int=4711)
CELLS = {
    "whole": lambda r: int(r.integers(-100, 100)),
    "small": lambda r: int(r.integers(0, 100)),
    "large": lambda r: int(r.integers(-(2**62), 2**62)),
    "real": lambda r: float(r.standard_normal()),
    "flag": lambda r: bool(r.integers(2)),
    "text": lambda r: WORDS[r.integers(len(WORDS))],
    "bytes": lambda r: bytes(r.integers(0, 256, r.integers(4)).astype(np.uint8)),
    "moment": lambda r: DAY + dt.timedelta(seconds=int(r.integers(10**8))),
    "day": lambda r: (DAY + dt.timedelta(days=int(r.integers(10**4)))).date(),
    "clock": lambda r: dt.time(int(r.integers(24)), int(r.integers(60)), 1, int(r.integers(999))),
    "span": lambda r: dt.timedelta(seconds=int(r.integers(-(10**6), 10**6))),
    "money": lambda r: decimal.Decimal(int(r.integers(1000, 9999))) / 100,
    "list": lambda r: [int(v) for v in r.integers(0, 9, r.integers(3))],
    "words": lambda r: [WORDS[i] for i in r.integers(0, 5, r.integers(3))],
    "pair": lambda r: [float(v) for v in r.standard_normal(2)],
    "record": lambda r: {"a": int(r.integers(9)), "b": WORDS[r.integers(5)]},
}


def cells(kind, n, rng, gaps=True):
    """Return n values of a kind, None where a gap is."""
    return [None if gaps and rng.random() < 0.3 else CELLS[kind](rng) for _ in range(n)]


def _pandas(kind, dtype=None, gaps=True):
    return lambda n, r: pd.Series(cells(kind, n, r, gaps), dtype=dtype)


def _category(values, ordered=False):
    def make(n, r):
        codes = r.integers(-1, len(values) - 1, n)  # the last is never used
        return pd.Series(pd.Categorical.from_codes(codes, values, ordered=ordered))

    return make


PANDAS = {
    "float64": _pandas("real", "float64"),
    "float32": _pandas("real", "float32"),
    "float16": _pandas("small", "float16"),
    "int64": _pandas("large", "int64", gaps=False),
    "int8": _pandas("whole", "int8", gaps=False),
    "uint16": _pandas("small", "uint16", gaps=False),
    "bool": _pandas("flag", "bool", gaps=False),
    "Int64": _pandas("large", "Int64"),
    "UInt8": _pandas("small", "UInt8"),
    "Float32": _pandas("real", "Float32"),
    "boolean": _pandas("flag", "boolean"),
    "str": _pandas("text", "str"),
    "string[python]": _pandas("text", "string[python]"),
    "string[pyarrow]": _pandas("text", "string[pyarrow]"),
    **{f"object {kind}": _pandas(kind, object) for kind in CELLS if kind not in ("moment", "span")},
    "object nothing": lambda n, r: pd.Series([None] * n, dtype=object),
    "category": _category(["b", "a", "", "never"]),
    "ordered": _category(["low", "high", "never"], ordered=True),
    "category of numbers": _category([3, 1, 2, 0]),
    "category of floats": _category([0.5, 0.25]),
    "category of dates": _category(pd.to_datetime(["2026-01-02", "2026-01-01", "2026-02-01"])),
    "datetime64[s]": _pandas("moment", "datetime64[s]"),
    "datetime64[ns]": _pandas("moment", "datetime64[ns]"),
    "datetime64[us, zone]": _pandas("moment", "datetime64[us, Europe/Paris]"),
    "timedelta64[ms]": _pandas("span", "timedelta64[ms]"),
    "period": lambda n, r: pd.Series(pd.PeriodIndex(pd.Series(cells("day", n, r)), freq="D")),
    "interval": lambda n, r: pd.Series(
        pd.interval_range(0, n) if n else [], dtype="interval[int64]"
    ),
    "arrow int": _pandas("whole", pd.ArrowDtype(pa.int32())),
    "arrow text": _pandas("text", pd.ArrowDtype(pa.string())),
    "arrow list": _pandas("list", pd.ArrowDtype(pa.list_(pa.int64()))),
}

POLARS = {
    "Float64": ("real", pl.Float64),
    "Float32": ("real", pl.Float32),
    "Int64": ("large", pl.Int64),
    "Int8": ("whole", pl.Int8),
    "UInt64": ("small", pl.UInt64),
    "Boolean": ("flag", pl.Boolean),
    "String": ("text", pl.String),
    "Categorical": ("text", pl.Categorical),
    "Enum": ("text", pl.Enum([*reversed(WORDS), "never"])),
    "Datetime ms": ("moment", pl.Datetime("ms")),
    "Datetime zone": ("moment", pl.Datetime("ns", "Europe/Paris")),
    "Date": ("day", pl.Date),
    "Time": ("clock", pl.Time),
    "Duration": ("span", pl.Duration("us")),
    "Decimal": ("money", pl.Decimal(10, 2)),
    "List": ("list", pl.List(pl.Int64)),
    "List of text": ("words", pl.List(pl.String)),
    "List of categories": ("words", pl.List(pl.Categorical)),
    "Array": ("pair", pl.Array(pl.Float64, 2)),
    "Struct": ("record", pl.Struct({"a": pl.Int64, "b": pl.String})),
    "Binary": ("bytes", pl.Binary),
    "Null": (None, pl.Null),
}

ARROW = {
    "int16": ("whole", pa.int16()),
    "double": ("real", pa.float64()),
    "bool": ("flag", pa.bool_()),
    "string": ("text", pa.string()),
    "large_string": ("text", pa.large_string()),
    "string_view": ("text", pa.string_view()),
    "binary_view": ("bytes", pa.binary_view()),
    "dictionary": ("text", pa.dictionary(pa.int8(), pa.string())),
    "ordered": ("text", pa.dictionary(pa.uint16(), pa.large_string(), ordered=True)),
    "dictionary of numbers": ("whole", pa.dictionary(pa.int32(), pa.int64())),
    "timestamp[s]": ("moment", pa.timestamp("s")),
    "timestamp zone": ("moment", pa.timestamp("ms", "America/New_York")),
    "date32": ("day", pa.date32()),
    "time64": ("clock", pa.time64("us")),
    "duration": ("span", pa.duration("s")),
    "decimal": ("money", pa.decimal128(8, 2)),
    "list": ("list", pa.list_(pa.int32())),
    "list of views": ("words", pa.list_(pa.string_view())),
    "vector": ("pair", pa.list_(pa.float32(), 2)),
    "struct": ("record", pa.struct([("a", pa.int8()), ("b", pa.string_view())])),
    "null": (None, pa.null()),
}


def arrow_table(kinds, n, rng, gaps=True):
    """Return n rows with columns of some of `ARROW`'s kinds."""
    columns = {}
    for kind in kinds:
        cell, dtype = ARROW[kind]
        values = cells(cell, n, rng, gaps) if cell else [None] * n
        is_dictionary = pa.types.is_dictionary(dtype)
        array = pa.array(values, dtype.value_type if is_dictionary else dtype)
        columns[kind] = array.dictionary_encode().cast(dtype) if is_dictionary else array
    return pa.table(columns)


def through_everything(table, kind):
    """Yield (rows, table, kind) along the ways that rows go."""
    n = table.num_rows
    everything = np.arange(n)
    yield everything, table, kind
    kind = from_json(FrameKind, json.loads(json.dumps(to_json(kind))))
    yield everything, table, kind
    file = io.BytesIO()
    pq.write_table(table, file)
    read = conform(pq.read_table(file).replace_schema_metadata(None), table.schema, place="file")
    yield everything, read, kind
    rows = np.random.default_rng(n).integers(0, max(n, 1), 3) if n else everything
    taken = read.take(pa.array(rows, pa.int64()))
    yield rows, taken, kind
    joined = pa.concat_tables([taken, table]).combine_chunks()
    yield np.concatenate([rows, everything]).astype(int), joined, kind


def some_of(kinds):
    return st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=6, unique=True)


ROWS, SEEDS = st.integers(0, 12), st.integers(0, 2**32)


def same_objects(a, b):
    for name in a.columns:
        if a[name].dtype == object:
            assert [type(v) for v in a[name]] == [type(v) for v in b[name]]


@settings(max_examples=150, deadline=None)
@given(some_of(PANDAS), ROWS, SEEDS)
def test_pandas_frames_come_back_equal(kinds, n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({kind: PANDAS[kind](n, rng) for kind in kinds})
    for rows, table, kind in through_everything(*to_arrow(frame)):
        found, expected = from_arrow(table, kind), frame.iloc[rows].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected)
        same_objects(found, expected)


@settings(max_examples=100, deadline=None)
@given(some_of(POLARS), ROWS, SEEDS)
def test_polars_frames_come_back_equal(kinds, n, seed):
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        [
            pl.Series(kind, cells(cell, n, rng) if cell else [None] * n, dtype=dtype)
            for kind, (cell, dtype) in ((kind, POLARS[kind]) for kind in kinds)
        ]
    )
    for rows, table, kind in through_everything(*to_arrow(frame)):
        polars.testing.assert_frame_equal(from_arrow(table, kind), frame[rows.tolist()])


@settings(max_examples=100, deadline=None)
@given(some_of(ARROW), ROWS, SEEDS)
def test_arrow_tables_come_back_equal(kinds, n, seed):
    original = arrow_table(kinds, n, np.random.default_rng(seed))
    values = original.to_pydict()
    for rows, table, kind in through_everything(*to_arrow(original)):
        found = from_arrow(table, kind)
        found.validate(full=True)
        assert found.schema.equals(original.schema)
        assert found.to_pydict() == {k: [v[i] for i in rows] for k, v in values.items()}


@settings(max_examples=60, deadline=None)
@given(some_of(CELLS), ROWS, SEEDS)
def test_mappings_of_lists_come_back_equal(kinds, n, seed):
    rng = np.random.default_rng(seed)
    mapping = {kind: cells(kind, n, rng) for kind in kinds}
    for rows, table, kind in through_everything(*to_arrow(mapping)):
        assert from_arrow(table, kind) == {k: [v[i] for i in rows] for k, v in mapping.items()}


def test_mappings_of_arrays_come_back_as_arrays():
    mapping = {
        "f": np.array([1.5, np.nan, 3.0], np.float32),
        "i": np.array([1, 2, 3], np.uint8),
        "v": np.arange(6.0).reshape(3, 2),
        "b": np.array([True, False, True]),
        "s": np.array(["a", "bc", ""]),
        "t": np.array(["2026-01-01", "NaT", "2026-01-03"], "datetime64[s]"),
    }
    for rows, table, kind in through_everything(*to_arrow(mapping)):
        found = from_arrow(table, kind)
        for name, values in mapping.items():
            assert found[name].dtype == values.dtype or values.dtype.kind == "U"
            np.testing.assert_array_equal(found[name], values[rows])


def test_extension_types_and_runs_come_back():
    ids = pa.array([b"0123456789abcdef", None, b"fedcba9876543210"], pa.binary(16))
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1.0, 2.0]))
    table = pa.table({"id": ids.cast(pa.uuid()), "runs": runs})
    plain, kind = to_arrow(table)
    assert plain.schema.types == [pa.binary(16), pa.float64()]
    assert from_arrow(plain, kind).equals(table)


def test_anything_with_an_arrow_stream_is_a_table():
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"x": [1, 2]}).__arrow_c_stream__(requested_schema)

    assert is_table(Stream())
    table, kind = to_arrow(Stream())
    assert from_arrow(table, kind).equals(pa.table({"x": [1, 2]}))


def test_batches_and_readers_are_tables():
    batch = pa.record_batch({"x": [1, 2]})
    for rows in (batch, pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])):
        assert is_table(rows)
        assert to_arrow(rows)[0].column("x").to_pylist()[:2] == [1, 2]


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((2, 2)),
        [[1, 2]],
        "x",
        None,
        pd.Series([1]),
        pl.Series([1]),
        pa.array([1]),
        pa.chunked_array([[1]]),
    ],
    ids=lambda rows: type(rows).__module__ + "." + type(rows).__name__,
)
def test_what_is_no_table(rows):
    assert not is_table(rows)


def test_whole_numbers_as_names_come_back():
    frame = pd.DataFrame(np.arange(6.0).reshape(3, 2))
    table, kind = to_arrow(frame)
    assert table.schema.names == ["0", "1"]
    pd.testing.assert_frame_equal(from_arrow(table, kind), frame)


def test_an_index_that_matters_is_kept_on_request_and_said_otherwise():
    frame = pd.DataFrame({"x": [1, 2, 3]}, index=pd.Index(["a", "b", "c"], name="who"))
    with pytest.warns(OlssWarning, match=r"index of rows \(who\) is dropped.*keep_index"):
        table, kind = to_arrow(frame)
    pd.testing.assert_frame_equal(from_arrow(table, kind), frame.reset_index(drop=True))
    table, kind = to_arrow(frame, keep_index=True)
    assert table.schema.names == ["who", "x"]
    pd.testing.assert_frame_equal(from_arrow(table, kind), frame)
    two = frame.set_index(pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]))
    pd.testing.assert_frame_equal(from_arrow(*to_arrow(two, keep_index=True)), two)


def test_row_numbers_are_no_index_that_matters(recwarn):
    frame = pd.DataFrame({"x": [1, 2, 3]}).iloc[[2, 0]]
    table, kind = to_arrow(frame)
    pd.testing.assert_frame_equal(from_arrow(table, kind), frame.reset_index(drop=True))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns named 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "two columns named '1'"),
        (pd.DataFrame([[1, 2]], columns=[("a", "b"), ("a", "c")]), r"found \('a', 'b'\)"),
        (pd.DataFrame(index=range(3)), "has no columns"),
        (pd.DataFrame({"m": [1, "a"]}, dtype=object), "column 'm' of dtype object.*one type"),
        (pd.DataFrame({"m": [b"x", {"a": 1}]}), "column 'm' of dtype object.*one type"),
        (pd.DataFrame({"c": [1j]}), "column 'c' of dtype complex128"),
        (pd.DataFrame({"u": [UUID, None]}), r"column 'u' of dtype object.*astype\(str\)"),
        (pd.DataFrame({"u": pd.Categorical([UUID])}), "column 'u' of dtype category"),
        (pd.DataFrame({"c": pd.cut([1, 2], 2)}), r"column 'c' .* interval.*astype\(str\)"),
        (pd.DataFrame({"c": pd.Categorical([pd.Period("2026")])}), "column 'c' .*are period"),
        ({"u": [UUID]}, "column 'u'.*strings"),
        (pd.DataFrame({"t": pd.Series([NANOSECOND], dtype=object)}), "column 't' of dtype object"),
        (pd.DataFrame({"t": pd.Series([NANOSECOND - DAY], dtype=object)}), "column 't'.*object"),
        (pd.DataFrame({"t": [[NANOSECOND]]}), "column 't' of dtype object"),
        (pd.DataFrame({"d": [{"a": 1}, {"b": 2}]}), "column 'd' of dtype object"),
        (pd.DataFrame({"d": [[{"a": 1}], [{"b": 2}]]}), "column 'd' of dtype object"),
        (pd.DataFrame({"s": [{1, 2}, {3}]}), "column 's' of dtype object"),
        (pd.DataFrame({"b": [b"x", "x"]}), "column 'b' of dtype object"),
        (pd.DataFrame({"t": [DAY.date(), DAY]}, dtype=object), "column 't' of dtype object"),
        ({"t": [NANOSECOND]}, "column 't'"),
        ({"d": [{"a": 1}, {"b": 2}]}, "column 'd'"),
        ({"s": np.array([{1, 2}, {3}])}, "column 's'"),
        (pl.DataFrame({"v": pl.Series([[]], dtype=pl.Array(pl.Float64, 0))}), "column 'v'"),
        ({"v": np.zeros((3, 0))}, "column 'v'"),
        (pd.DataFrame({"s": pd.arrays.SparseArray([0, 1])}), "column 's' of dtype Sparse"),
        (pl.DataFrame({"x": [1]}).lazy(), "LazyFrame.*collect"),
        (pl.DataFrame({"a": [1], "x": pl.Series([{}], dtype=pl.Object)}), "column 'x'.*Object"),
        (pl.DataFrame({"a": [1], "x": pl.Series([1], dtype=pl.Int128)}), "column 'x'.*Int128"),
        (pa.table([[1], [2]], names=["a", "a"]), "two columns named 'a'"),
        ({}, "has no columns"),
        ({"a": [1, 2], "b": [1]}, "one length, found 2 of 'a', 1 of 'b'"),
        ({"a": [1, "x"]}, "column 'a' cannot be read"),
        ({"a": "text"}, "column 'a' cannot be read.*str"),
        ({"a": 3}, "column 'a' cannot be read"),
        ({1: [1]}, "found 1"),
        ({"a": np.zeros((2, 2, 2))}, r"shape \(2, 2, 2\)"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_column(rows, message):
    with pytest.raises(DataError, match=message):
        to_arrow(rows)


def test_categories_of_two_frames_are_joined():
    first = pd.DataFrame({"c": pd.Categorical(["b", "a"], ["b", "a"], ordered=True)})
    second = pd.DataFrame({"c": pd.Categorical(["z", "a"], ["z", "a"], ordered=True)})
    (a, kind_a), (b, kind_b) = to_arrow(first), to_arrow(second)
    schema = unify_schemas(a.schema, b.schema, place="second")
    found = from_arrow(pa.concat_tables([a, b]), kind_a.merge(kind_b, schema))["c"]
    assert found.tolist() == ["b", "a", "z", "a"]
    assert found.cat.categories.tolist() == ["b", "a", "z"]
    assert not found.cat.ordered
    again = kind_a.merge(kind_a, schema)
    assert from_arrow(a, again)["c"].cat.ordered


def test_promoted_columns_come_back_as_the_later_frame_had_them():
    first = pd.DataFrame({"n": [1, 2], "t": ["a", "b"], "gone": [None, None]})
    second = pd.DataFrame({"n": [1.5, np.nan], "t": pd.Categorical(["a", "c"]), "gone": [1.0, 2.0]})
    (a, kind_a), (b, kind_b) = to_arrow(first), to_arrow(second)
    schema = unify_schemas(a.schema, b.schema, place="second")
    table = pa.concat_tables([conform(part, schema, place="rows") for part in (a, b)])
    found = from_arrow(table, kind_a.merge(kind_b, schema))
    expected = pd.DataFrame(
        {
            "n": [1, 2, 1.5, np.nan],
            "t": ["a", "b", "a", "c"],
            "gone": [np.nan, np.nan, 1.0, 2.0],
        }
    )
    pd.testing.assert_frame_equal(found, expected)


def test_a_new_column_is_missing_before_and_loses_nothing():
    first = pd.DataFrame({"x": [1.0]})
    second = pd.DataFrame({"x": [2.0], "n": [2**62 + 1], "b": [True]})
    (a, kind_a), (b, kind_b) = to_arrow(first), to_arrow(second)
    schema = unify_schemas(a.schema, b.schema, place="second", allow_new=True)
    table = pa.concat_tables([conform(part, schema, place="rows") for part in (a, b)])
    found = from_arrow(table, kind_a.merge(kind_b, schema))
    assert found["n"].dtype == "Int64"
    assert found["n"].tolist() == [pd.NA, 2**62 + 1]
    assert found["b"].tolist() == [pd.NA, True]


HOSTILE = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=8),
    st.binary(max_size=8).map(lambda b: b.hex()),
    st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_kind_is_refused_or_harmless(data):
    frame = pd.DataFrame({"x": [1.5], "c": pd.Categorical(["a"]), "s": ["t"]})
    table, kind = to_arrow(frame)
    state = to_json(kind)
    inside = data.draw(st.sampled_from([state, state["dtypes"], state["categories"]["c"]]))
    key = data.draw(st.sampled_from(sorted(inside)))
    old = inside[key]
    if isinstance(old, str) and old and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(old) - 1))
        inside[key] = old[:at] + data.draw(st.text(max_size=2)) + old[at + 1 :]
    else:
        inside[key] = data.draw(HOSTILE)
    try:
        changed = from_json(FrameKind, json.loads(json.dumps(state)))
    except ValueError:
        return
    try:
        assert len(from_arrow(table, changed)) in (1, 3)
    except DataError:
        return


def test_neither_pandas_nor_polars_is_loaded_before_a_frame_is_there():
    code = (
        "import sys, olss, olss.tables.frames, olss.tables.encoder, olss.tables.schema;"
        "assert not {'pandas', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gaps_of_objects_come_back_as_what_they_were():
    # To scikit-learn's imputers NaN is a gap and None is a value.
    frame = pd.DataFrame(
        {"nan": ["a", np.nan], "none": ["a", None], "full": ["a", "b"]}, dtype=object
    )
    table, kind = to_arrow(frame)
    found = from_arrow(table, kind)
    assert np.isnan(found["nan"][1])
    assert found["none"][1] is None
    later, other = to_arrow(
        pd.DataFrame({"nan": ["a"], "none": ["a"], "full": [np.nan]}, dtype=object)
    )
    both = conform(later, table.schema, place="rows")
    found = from_arrow(both, kind.merge(other, table.schema))
    assert np.isnan(found["full"][0])
