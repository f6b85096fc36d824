import numpy as np
import pytest

from olss.lab.report.figures import apart, clusters


@pytest.mark.parametrize(
    "values", [[1.0, 1.0, 1.0], [5.0, 1.0, 1.1, 5.05], [9.9, 9.8, 9.95, 0.0], [3.0], []]
)
def test_labels_are_moved_apart_in_order_and_within_bounds(values):
    placed = np.array(apart(values, 1.0, 0.0, 10.0))
    order = np.argsort(values, kind="stable")
    assert all(np.diff(placed[order]) >= 1.0 - 1e-9)
    assert all((placed >= 0.5 - 1e-9) & (placed <= 9.5 + 1e-9))


def test_labels_with_room_stay_where_they_are():
    assert apart([2.0, 7.0, 4.5], 1.0, 0.0, 10.0) == [2.0, 7.0, 4.5]


def test_only_near_values_are_put_together():
    assert clusters([0.9, 0.1, 0.15, 0.5], 0.14) == [[1, 2], [3], [0]]
