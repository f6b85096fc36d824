from __future__ import annotations

import numpy as np
import pytest
import torch

from olss.tables.class_labels import class_labels, is_class_target

ROWS = np.arange(200)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.linspace(0, 1, 200), None),
        (np.random.default_rng(0).standard_normal((200, 2)), None),
        (np.zeros((200, 3, 3)), None),
        (np.eye(4)[ROWS % 4], ROWS % 4),
        (torch.tensor(np.eye(4)[ROWS % 4]), ROWS % 4),
        (np.eye(4)[ROWS % 4] + np.eye(4)[(ROWS + 1) % 4], None),
        (np.array(["cat", "dog"])[ROWS % 2], np.array(["cat", "dog"])[ROWS % 2]),
        (ROWS % 2 == 0, ROWS % 2 == 0),
        ((ROWS % 4)[:, None], ROWS % 4),
        (torch.tensor(ROWS % 4), ROWS % 4),
        (torch.linspace(0, 1, 200), None),
        (torch.linspace(0, 1, 200, dtype=torch.bfloat16), None),
        (ROWS % 3 * 1.0, ROWS % 3),
        (ROWS * 1.0, None),
    ],
)
def test_classes_are_read_from_labels_and_one_hot_rows_only(y, classes):
    assert is_class_target(y) == (classes is not None)
    if classes is not None:
        np.testing.assert_array_equal(class_labels([y]), classes)
        np.testing.assert_array_equal(class_labels([y[:50], y[50:]]), classes)
