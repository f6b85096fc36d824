from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from olss.lab.report.statistics import (
    MEASURES,
    backward,
    difference,
    forgetting,
    forward,
    interval,
    log_ratio,
    seconds,
)
from olss.learn import Record

samples = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


@given(samples)
def test_interval_is_students(values):
    found = interval(values)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-12)
    assert found.count == len(values)
    spread = stats.sem(values)
    if spread < 1e-9:
        assert found.half == pytest.approx(0, abs=1e-6)
        return
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), spread)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


def test_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.8, 0.02, (4000, 3))
    hits = sum(i.low <= 0.8 <= i.high for i in map(interval, draws))
    # Standard error of the share: sqrt(.95 * .05 / 4000) = 0.0034; four of them.
    assert abs(hits / 4000 - 0.95) < 0.014


def test_one_value_has_no_spread_and_none_has_no_mean():
    one, none = interval([0.5]), interval([math.nan])
    assert (one.mean, one.count) == (0.5, 1)
    assert math.isnan(one.low)
    assert none.count == 0
    assert math.isnan(none.mean)


def test_shared_seeds_are_paired():
    rng = np.random.default_rng(1)
    seed_effect = rng.normal(0, 1, 5)
    a = dict(enumerate(seed_effect + 0.1 + rng.normal(0, 0.01, 5)))
    b = dict(enumerate(seed_effect + rng.normal(0, 0.01, 5)))
    found = difference(a, b)
    expected = stats.ttest_rel(list(a.values()), list(b.values())).confidence_interval(0.95)
    assert found.paired
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.low > 0  # unpaired, a spread of 1 would drown a difference of 0.1


def test_pairs_go_by_seed_and_not_by_place():
    a, b = {1: 0.5, 2: 0.7}, {2: 0.6, 1: 0.4, 9: 0.0}
    found = difference(a, b)
    assert found.mean == pytest.approx(0.1)
    assert found.half == pytest.approx(0, abs=1e-12)
    assert found.count == 2


def test_other_seeds_are_compared_by_welch():
    a, b = [0.91, 0.93, 0.95, 0.92], [0.80, 0.85, 0.70]
    found = difference(dict(enumerate(a)), {f"other {i}": v for i, v in enumerate(b)})
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert not found.paired
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_one_seed_each_gives_a_difference_without_interval():
    found = difference({0: 0.9}, {0: 0.7})
    assert found.mean == pytest.approx(0.2)
    assert math.isnan(found.low)


def test_ratio_is_geometric():
    found = log_ratio({0: 2.0, 1: 32.0}, {0: 1.0, 1: 4.0})
    assert found.mean == pytest.approx(4.0)
    logs = stats.ttest_1samp(np.log([2.0, 8.0]), 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(logs)))


NAN = math.nan
RECORD = Record(
    accuracy=[[0.90, NAN, NAN], [0.95, 0.80, NAN], [0.60, 0.70, 0.85]],
    ahead=[0.10, 0.30, 0.25],
    initial=[0.10, 0.12, 0.11],
    task_seconds={"select": [1, 2, 3], "train": [10, 10, 10], "evaluate": [5, 5, 5]},
)


def test_measures_worked_out_by_hand():
    assert forgetting(RECORD) == pytest.approx(((0.95 - 0.60) + (0.80 - 0.70)) / 2)
    assert backward(RECORD) == pytest.approx(((0.60 - 0.90) + (0.70 - 0.80)) / 2)
    assert forward(RECORD) == pytest.approx(((0.30 - 0.12) + (0.25 - 0.11)) / 2)
    assert seconds(RECORD) == 36
    found = {name: measure.of(RECORD) for name, measure in MEASURES.items()}
    assert found["average"] == pytest.approx((0.60 + 0.70 + 0.85) / 3)
    assert found["first"] == 0.60
    assert found["newest"] == 0.85
    assert found["learned"] == pytest.approx((0.90 + 0.80 + 0.85) / 3)


def test_forgetting_is_never_below_what_was_lost_since_learning():
    rng = np.random.default_rng(0)
    for _ in range(50):
        accuracy = np.tril(rng.random((6, 6)))
        accuracy[np.triu_indices(6, 1)] = NAN
        record = Record(accuracy=accuracy)
        assert forgetting(record) >= -backward(record) - 1e-12


def test_one_task_forgets_and_transfers_nothing_known():
    record = Record(accuracy=[[0.9]])
    assert all(math.isnan(measure(record)) for measure in (forgetting, backward, forward))
    assert MEASURES["average"].of(record) == 0.9


def test_times_never_measured_stay_unknown():
    assert math.isnan(seconds(Record(accuracy=[[0.9]])))


@pytest.mark.parametrize(("threads", "expected"), [(1, 30.0), (2, 36.0), (None, 36.0)])
def test_other_work_on_the_machine_does_not_lengthen_runs_of_one_thread(threads, expected):
    cpu = {"select": [1, 1, 1], "train": [9, 9, 9], "evaluate": [4, 4, 4]}
    config = {} if threads is None else {"training": {"threads": threads}}
    assert seconds(dataclasses.replace(RECORD, config=config, task_cpu_seconds=cpu)) == expected
    assert seconds(dataclasses.replace(RECORD, config=config)) == 36
