import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from olss.lab.report.statistics import difference, interval, log_ratio

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
