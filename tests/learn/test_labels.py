import numpy as np
import pytest
import torch

from olss.errors import DataError, InputError
from olss.learn.labels import ClassMask, Labels


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


INF = float("inf")


def opened(mode, *tasks):
    head = ClassMask(mode, 4)
    for classes in tasks:
        head.open(torch.tensor(classes))
    return head


def test_all_classes_seen_so_far_compete():
    head = opened("seen", [0, 2])
    assert head.apply(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, -INF]]
    head.open(torch.tensor([3]))
    assert head.apply(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, 1]]


def test_only_the_classes_of_each_rows_task_compete():
    head = opened("task", [0, 1], [2, 3])
    z = head.apply(torch.ones(2, 4), torch.tensor([1, 0]))
    assert z.tolist() == [[-INF, -INF, 1, 1], [1, 1, -INF, -INF]]
    assert head.apply(torch.ones(1, 4), 0).tolist() == [[1, 1, -INF, -INF]]
    with pytest.raises(InputError, match="task must be given"):
        head.apply(torch.ones(1, 4), None)


def test_every_output_competes():
    assert opened("all", [0]).apply(torch.ones(1, 4), None).tolist() == [[1, 1, 1, 1]]


def test_outputs_shut_out_get_no_gradient():
    z = torch.randn(3, 4, requires_grad=True)
    head = opened("seen", [0, 2])
    loss = torch.nn.functional.cross_entropy(head.apply(z, None), torch.tensor([0, 2, 0]))
    loss.backward()
    assert loss.isfinite()
    assert (z.grad[:, [1, 3]] == 0).all()
    assert (z.grad[:, [0, 2]] != 0).all()
