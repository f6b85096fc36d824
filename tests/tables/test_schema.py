from __future__ import annotations

import datetime as dt
import itertools
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

from olss.errors import DataError
from olss.tables.schema import arrow_array, conform, numpy_array, unify_schemas


def test_columns_in_another_order_are_put_right():
    known = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.float64()})
    table = pa.table({"c": [0.5], "a": [1], "b": ["x"]})
    assert unify_schemas(known, table.schema, place="rows") == known
    assert conform(table, known, place="rows").to_pylist() == [{"a": 1, "b": "x", "c": 0.5}]


@pytest.mark.parametrize(
    ("known", "new", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int8(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int8(), pa.float32(), pa.float64()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.timestamp("s"), pa.null(), pa.timestamp("s")),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.duration("s"), pa.duration("ms"), pa.duration("ms")),
        (pa.time32("s"), pa.time64("ns"), pa.time64("ns")),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.date32(), pa.timestamp("ns")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.binary(), pa.large_binary(), pa.large_binary()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string()),
        *[
            (pa.dictionary(pa.int32(), pa.string()), new, pa.dictionary(pa.int32(), pa.string()))
            for new in (pa.string(), pa.dictionary(pa.int32(), pa.string(), ordered=True))
        ],
        (pa.decimal128(5, 2), pa.decimal128(10, 4), pa.decimal128(10, 4)),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.float32(), 2), pa.list_(pa.float64(), 2), pa.list_(pa.float64(), 2)),
    ],
    ids=str,
)
def test_types_are_promoted_where_nothing_is_lost(known, new, both):
    found = unify_schemas(pa.schema({"x": known}), pa.schema({"x": new}), place="rows")
    assert found.field("x").type == both
    for kind in (known, new):
        table = pa.table({"x": pa.nulls(3, kind)})
        assert conform(table, found, place="rows").schema == found


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.float64(), pa.decimal128(5, 2)),
        (pa.timestamp("s"), pa.timestamp("s", "UTC")),
        (pa.timestamp("s", "UTC"), pa.date32()),
        (pa.list_(pa.float64(), 2), pa.list_(pa.float64(), 3)),
        (pa.list_(pa.float64(), 2), pa.list_(pa.float64())),
        (pa.dictionary(pa.int32(), pa.string()), pa.int64()),
    ],
    ids=str,
)
def test_other_types_are_refused_with_the_column(known, new):
    for a, b in ((known, new), (new, known)):
        with pytest.raises(DataError, match=r"may.csv: column 'x' is "):
            unify_schemas(pa.schema({"x": a}), pa.schema({"x": b}), place="may.csv")


NUMBERS = [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.float32(), pa.float64()]


@pytest.mark.parametrize(("a", "b"), [*itertools.product(NUMBERS, repeat=2)], ids=str)
def test_promoted_values_are_what_they_were(a, b):
    schema = unify_schemas(pa.schema({"x": a}), pa.schema({"x": b}), place="rows")
    for kind in (a, b):
        values = [0, 1, 100, 127, None]
        if not pa.types.is_unsigned_integer(kind):
            values.append(-128)
        table = conform(pa.table({"x": pa.array(values, kind)}), schema, place="rows")
        assert table.column("x").to_pylist() == values


def test_a_date_becomes_its_midnight():
    days = pa.array([dt.date(1969, 12, 31), None, dt.date(2026, 3, 1)])
    schema = unify_schemas(
        pa.schema({"x": days.type}), pa.schema({"x": pa.timestamp("us")}), place="rows"
    )
    table = conform(pa.table({"x": days}), schema, place="rows")
    midnights = [dt.datetime(1969, 12, 31), None, dt.datetime(2026, 3, 1)]
    assert table.column("x").to_pylist() == midnights


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([dt.date(1600, 1, 1)]), pa.timestamp("ns")),
        (pa.array([2**63], pa.uint64()), pa.int64()),
        (pa.array([2**60], pa.timestamp("s")), pa.timestamp("ns")),
    ],
)
def test_a_value_that_would_change_is_refused(values, kind):
    with pytest.raises(DataError, match=r"rows: column 'x' is .* cannot become"):
        conform(pa.table({"x": values}), pa.schema({"x": kind}), place="rows")


def test_categories_and_text_go_into_each_other():
    words = pa.array(["a", None, "b", "a"])
    table = pa.table({"x": words})
    coded = pa.table({"x": words.dictionary_encode()})
    as_codes = conform(table, coded.schema, place="rows")
    assert pa.types.is_dictionary(as_codes.schema.field("x").type)
    assert as_codes.column("x").to_pylist() == words.to_pylist()
    assert conform(coded, table.schema, place="rows").equals(table)


def test_missing_and_extra_columns_are_named_with_near_names():
    known = pa.schema({"price": pa.int64(), "day": pa.date32()})
    with pytest.raises(DataError, match=r"may.csv lacks the column 'day'"):
        unify_schemas(known, pa.schema({"price": pa.int64()}), place="may.csv")
    new = pa.schema({"prize": pa.int64(), "day": pa.date32()})
    with pytest.raises(DataError, match=r"lacks .*'price'.* has .*'prize'.*Did you mean 'price'\?"):
        unify_schemas(known, new, place="may.csv")
    more = pa.schema({"price": pa.int64(), "day": pa.date32(), "new": pa.string()})
    with pytest.raises(DataError, match=r"'new'.* leave them out\.$"):
        unify_schemas(known, more, place="may.csv")
    with pytest.raises(DataError, match=r"'new'.*new_columns"):
        unify_schemas(known, more, place="rows", allow_new=False)


def test_a_new_column_is_added_on_request_and_null_before():
    known = pa.schema({"x": pa.int64()})
    new = pa.schema({"k": pa.dictionary(pa.int32(), pa.string()), "x": pa.int64()})
    both = unify_schemas(known, new, place="rows", allow_new=True)
    assert both.names == ["x", "k"]
    old = conform(pa.table({"x": [1, 2]}), both, place="rows")
    assert old.column("k").to_pylist() == [None, None]
    with pytest.raises(DataError, match="lacks the column 'x'"):
        unify_schemas(known, pa.schema({"k": pa.int64()}), place="rows", allow_new=True)


def test_batches_and_nullability():
    known = pa.schema([pa.field("x", pa.int64())])
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    assert unify_schemas(known, strict, place="rows") == known
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=strict)
    found = conform(batch, known, place="rows")
    assert isinstance(found, pa.RecordBatch)
    assert found.schema == known


def test_two_columns_of_one_name_are_refused():
    twice = pa.schema([("x", pa.int64()), ("x", pa.int64())])
    with pytest.raises(DataError, match="two columns named 'x'"):
        unify_schemas(pa.schema({"x": pa.int64()}), twice, place="rows")


def test_time_grows_with_the_number_of_columns_not_its_square():
    def seconds(n):
        names = [f"c{i}" for i in range(n)]
        table = pa.table({name: np.arange(3) for name in names})
        other = pa.schema({name: pa.float64() for name in reversed(names)})
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            conform(table, unify_schemas(other, table.schema, place="rows"), place="rows")
            best = min(best, time.perf_counter() - start)
        return best

    # Ten times the columns; what is quadratic would take a hundred times as long.
    assert seconds(10_000) < 40 * seconds(1_000)


ARRAYS = {
    "whole": np.arange(5),
    "small": np.arange(5, dtype=np.uint8),
    "strided": np.arange(10, dtype=np.int32)[::2],
    "nan": np.array([1.0, np.nan]),
    "single": np.array([0.5, -np.inf], dtype=np.float32),
    "text": np.array(["", "a", "äöü", "🦆"]),
    "no text": np.array([], dtype=np.str_),
    "nothing": np.array([], dtype=np.int64),
    "truth": np.array([True, False]),
    "days": np.array(["2026-11-16"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_it_is_what_pyarrow_makes(name: str) -> None:
    values = ARRAYS[name]
    found = arrow_array(values)
    found.validate(full=True)
    expected = pa.array(values)
    assert found.type == expected.type
    assert str(found.to_pylist()) == str(expected.to_pylist())  # NaN, too


COLUMNS = {
    "whole": pa.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], pa.int8()),
    "whole with gaps": pa.array([1, None, 3, 4, None, 6, 7, 8, None, 10], pa.uint16()),
    "floats": pa.array([0.5, np.nan, 1, -np.inf, 2, 3, 4, 5, 6, 7], pa.float64()),
    "floats with gaps": pa.array([None, np.nan, 1, 2, None, 3, 4, 5, 6, None], pa.float32()),
    "all gaps": pa.array([None] * 10, pa.float32()),
    "half": pa.array(np.arange(10, dtype=np.float16)),
    "truth": pa.array([True, False] * 5),
    "text": pa.array([*"abcdefghi", None]),
    "days": pa.array(np.arange(10), pa.timestamp("ms")),
}


@pytest.mark.parametrize("part", [slice(0, 10), slice(1, 4), slice(9, 10), slice(3, 3)])
@pytest.mark.parametrize("name", COLUMNS)
def test_as_numpy_it_is_what_pyarrow_makes(name: str, part: slice) -> None:
    array = COLUMNS[name].slice(part.start, part.stop - part.start)
    expected = array.to_numpy(zero_copy_only=False)
    for found in (numpy_array(array), numpy_array(pa.chunked_array([array]))):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    chunks = pa.chunked_array([array, COLUMNS[name]])
    np.testing.assert_array_equal(numpy_array(chunks), chunks.to_numpy())


@pytest.mark.parametrize("policy", ["reservoir", "weighted"])
@pytest.mark.parametrize("text", [False, True])
def test_a_sample_of_a_file_loads_no_pandas(policy: str, text: bool, tmp_path: object) -> None:
    heavy = ("pandas", "scipy.optimize", "torch")
    code = f"""
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
class Watch:
    def find_spec(self, name, path, target=None):
        if name in {heavy!r}:
            raise SystemExit("loads " + name)
from olss.tables.schema import arrow_array
sys.meta_path.insert(0, Watch())
x = np.random.default_rng(0).standard_normal(5_000)
table = {{"x": arrow_array(x), "n": arrow_array(np.arange(5_000))}}
if {text}:
    table["kind"] = arrow_array(np.repeat(["a", "b"], 2_500))
pq.write_table(pa.table(table), "{tmp_path}/in.parquet")
from olss.files import compress
compress("{tmp_path}/in.parquet", into="{tmp_path}/out.parquet", size=50, policy="{policy}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
