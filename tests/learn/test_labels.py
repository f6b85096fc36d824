import numpy as np
import pytest

from olss.errors import DataError
from olss.learn.labels import Labels


@pytest.mark.parametrize("classes", [[7, 3, 11], ["b", "a", "c"], [-1, 5, 0], [1.0, 2.0, 0.0]])
def test_labels_of_any_kind_come_back(classes):
    labels = Labels(classes)
    y = np.array(classes * 2)
    codes = labels.encode(y)
    assert sorted(set(codes.tolist())) == [0, 1, 2]
    np.testing.assert_array_equal(labels.decode(codes), y)


def test_an_unknown_label_is_named():
    with pytest.raises(DataError, match="label 9, which is none of the 2 classes"):
        Labels([0, 1]).encode([0, 9])


@pytest.mark.parametrize("y", [[0.5, 1.0], [[1], [0]]])
def test_numbers_are_no_labels(y):
    with pytest.raises(DataError, match="loss='l2'"):
        Labels([0, 1]).encode(y)


@pytest.mark.parametrize("labels", [[b"a", b"b"], np.array(["2026-01-01"], "M8[D]")])
def test_labels_that_no_file_holds_are_refused_at_once(labels):
    with pytest.raises(DataError, match="text or numbers"):
        Labels(labels)
