from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from olss.tables.class_labels import classify_target

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
        (np.arange(33), False, True),
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
    verdict = classify_target(target, "late")
    assert (verdict.is_class, bool(verdict.note)) == (is_class, doubt)
    if target.ndim == 1:
        values = [None if v != v else v for v in target.tolist()]
        column = pa.chunked_array([pa.array(values)])
        assert classify_target(column, "late") == verdict
    if doubt:
        assert verdict.note.startswith(f"late: {len(np.unique(target)):,} distinct integers")


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
    assert classify_target(column).is_class == is_class
