import pytest
import torch

from olss.errors import InputError
from olss.learn.labels import Head

INF = float("inf")


def opened(mode, *tasks):
    head = Head(mode, 4)
    for classes in tasks:
        head.open(torch.tensor(classes))
    return head


def test_all_classes_seen_so_far_compete():
    head = opened("seen", [0, 2])
    assert head.mask(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, -INF]]
    head.open(torch.tensor([3]))
    assert head.mask(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, 1]]


def test_only_the_classes_of_each_rows_task_compete():
    head = opened("task", [0, 1], [2, 3])
    z = head.mask(torch.ones(2, 4), torch.tensor([1, 0]))
    assert z.tolist() == [[-INF, -INF, 1, 1], [1, 1, -INF, -INF]]
    assert head.mask(torch.ones(1, 4), 0).tolist() == [[1, 1, -INF, -INF]]
    with pytest.raises(InputError, match="task must be given"):
        head.mask(torch.ones(1, 4), None)


def test_every_output_competes():
    assert opened("all", [0]).mask(torch.ones(1, 4), None).tolist() == [[1, 1, 1, 1]]


def test_outputs_shut_out_get_no_gradient():
    z = torch.randn(3, 4, requires_grad=True)
    head = opened("seen", [0, 2])
    loss = torch.nn.functional.cross_entropy(head.mask(z, None), torch.tensor([0, 2, 0]))
    loss.backward()
    assert loss.isfinite()
    assert (z.grad[:, [1, 3]] == 0).all()
    assert (z.grad[:, [0, 2]] != 0).all()
