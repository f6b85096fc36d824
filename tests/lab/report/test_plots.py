import numpy as np
import pytest

from olss.lab.report.plots import _apart


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [5.0, 1.0, 1.1, 5.05], [3.0], []])
def test_labels_are_moved_apart_in_order(values):
    placed = _apart(values, 1.0)
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.array(placed)[order]) >= 1.0 - 1e-9)
    assert sum(placed) == pytest.approx(sum(values))
