import dataclasses
import math

import numpy as np
import pytest

from olss.lab.report.statistics import MEASURES, backward, forgetting, forward, seconds
from olss.learn import Record

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
