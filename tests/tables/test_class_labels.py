from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from olss.tables.class_labels import class_verdict, strata_codes

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("target", "is_class", "doubt"),
    [
        (np.array(["a", "b"]), True, False),
        (np.array(["a", None], dtype=object), True, False),
        (np.array([True, False]), True, False),
        (np.array([0, 1, 2]), True, False),
        (np.array([[0], [1]]), True, False),
        (np.array([0.0, 1.0, 2.0, np.nan]), True, False),
        (np.array([0.0, 1.5]), False, False),
        (np.array([0.0, np.inf]), False, False),
        (np.arange(32), True, False),
        (np.arange(33), True, True),
        (np.arange(33.0), False, True),
        (np.repeat(np.arange(100), 10), True, False),
        (np.repeat(np.arange(100.0), 10), True, False),
        (np.repeat(np.arange(100), 9), True, True),
        (np.repeat(np.arange(100.0), 9), False, True),
        (np.repeat(np.arange(1001), 50), False, True),
        (np.zeros((3, 2), int), False, False),
        (np.array([np.nan, np.nan]), False, False),
        (np.array(["2026-01-01"], "datetime64[D]"), False, False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_arrays_and_columns_obey_one_rule(target, is_class, doubt):
    verdict = class_verdict(target, "late")
    assert (verdict.is_class, bool(verdict.note)) == (is_class, doubt)
    if target.ndim == 1:
        values = [None if v != v else v for v in target.tolist()]
        column = pa.chunked_array([pa.array(values)])
        assert class_verdict(column, "late") == verdict
    if doubt:
        assert verdict.note.startswith(f"late: {len(np.unique(target)):,} different whole numbers")


@pytest.mark.parametrize(
    ("column", "is_class"),
    [
        (pa.array([1.5, 2.5]).dictionary_encode(), True),
        (pa.array(["a"], pa.string_view()), True),
        (pa.array([dt.date(2026, 1, 1)]), False),
        (pa.array([decimal.Decimal("1")]), False),
        (pa.array([[1]]), False),
        (pa.nulls(3), False),
        (pa.array([1, None], pa.int8()), True),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_columns_of_other_types(column, is_class):
    assert class_verdict(column).is_class == is_class


def groups(codes):
    return sorted(tuple(np.flatnonzero(codes == c)) for c in np.unique(codes))


@pytest.mark.parametrize(
    "make",
    [
        lambda v: pa.array(v),
        lambda v: pa.array(v).dictionary_encode(),
        lambda v: pa.array([None if x is None else float(x) for x in v]),
        lambda v: pa.array([np.nan if x is None else float(x) for x in v], from_pandas=False),
        lambda v: pa.array([None if x is None else str(x) for x in v], pa.large_string()),
        lambda v: pa.array([None if x is None else [x] for x in v]),
        lambda v: pa.array([None if x is None else {"a": x} for x in v]),
        lambda v: pa.array(v, pa.timestamp("s")),
        lambda v: pa.array([None if x is None else bool(x) for x in v]),
        lambda v: pa.array([None if x is None else decimal.Decimal(x) for x in v]),
        lambda v: pa.array([None if x is None else str(x).encode() for x in v]),
    ],
)
def test_strata_are_the_combinations_of_values(make):
    values = [0, 1, None, 1, 0, None, 1]
    other = ["x", "x", "y", "z", "x", "y", "x"]
    table = pa.table({"a": pa.chunked_array([make(values[:3]), make(values[3:])]), "b": other})
    codes = strata_codes(table, ["a", "b"])
    assert codes.dtype == np.int64
    assert sorted(set(codes)) == list(range(4))
    assert groups(codes) == [(0, 4), (1, 6), (2, 5), (3,)]


def test_no_columns_and_nothing_at_all():
    table = pa.table({"a": pa.nulls(3)})
    assert strata_codes(table, []).tolist() == [0, 0, 0]
    assert strata_codes(table, ["a"]).tolist() == [0, 0, 0]
    assert strata_codes(table.slice(0, 0), ["a"]).tolist() == []
