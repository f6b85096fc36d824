from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from olss import leverage_scores
from olss.errors import DataError
from olss.memory.encoder import Encoder, MissingIndicator
from olss.memory.moments import SeenMoments
from olss.tables.encoder import fit_encoder
from olss.util.serialize import from_json, to_json


def gappy(n=300, d=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * 10.0 ** np.arange(d)
    A[rng.random((n, d)) < 0.2] = np.nan
    A[:, 0] = rng.standard_normal(n)
    return A.astype(dtype)


def test_scores_are_those_of_the_same_columns_in_a_table():
    A = gappy()
    table = pa.table({f"x{i}": A[:, i] for i in range(A.shape[1])})
    numbers = Encoder(plan=fit_encoder(table))
    seen = numbers.accumulate(SeenMoments(), table, np.ones(len(A)))
    found = leverage_scores(MissingIndicator.fit(A).transform(A))
    scores, _ = numbers.scorer(seen, "exact", 10**6, 0)(table)
    np.testing.assert_allclose(found, scores, rtol=1e-8)


def test_a_gap_counts_as_the_median_of_the_first_rows_and_is_marked_if_there_was_one():
    first, later = gappy(seed=1), gappy(seed=2)
    later[5, 0] = np.nan
    gaps = MissingIndicator.fit(first)
    found = gaps.transform(later)
    assert gaps.marked.tolist() == [1, 2, 3]
    for i in range(4):
        present = np.sort(first[:, i][~np.isnan(first[:, i])])
        median = present[len(present) // 2]
        np.testing.assert_array_equal(
            found[:, i], np.where(np.isnan(later[:, i]), median, later[:, i])
        )
    np.testing.assert_array_equal(found[:, 4:], np.isnan(later[:, 1:]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_, np.uint8])
def test_arrays_without_gaps_are_scored_as_they_are(dtype):
    A = np.arange(24).reshape(4, 2, 3).astype(dtype)
    found = MissingIndicator.fit(A).transform(A)
    assert found.dtype == A.dtype
    assert np.shares_memory(found, A)


def test_clean_rows_after_rows_with_gaps_keep_the_width():
    gaps = MissingIndicator.fit(gappy(dtype=np.float32))
    found = gaps.transform(np.ones((3, 4), np.float32))
    assert found.shape == (3, gaps.width) == (3, 7)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, 4:], 0)


def test_a_column_of_gaps_alone_counts_as_zero():
    gaps = MissingIndicator.fit(np.full((3, 1), np.nan))
    assert gaps.transform(np.array([[np.nan], [2.0]])).tolist() == [[0, 1], [2, 0]]


def test_large_sums_are_no_infinite_values():
    A = np.full((10, 2), np.finfo(np.float64).max)
    np.testing.assert_array_equal(MissingIndicator.fit(A).transform(A), A)


def test_other_widths_are_refused():
    with pytest.raises(DataError, match="X must have 4 numbers"):
        MissingIndicator.fit(gappy()).transform(np.zeros((2, 3)))


def test_the_rule_comes_back_from_json():
    A = gappy()
    gaps = MissingIndicator.fit(A)
    again = from_json(MissingIndicator, json.loads(json.dumps(to_json(gaps))))
    np.testing.assert_array_equal(again.transform(A), gaps.transform(A))
