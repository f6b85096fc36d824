import math

import pytest
import torch

from olss.learn.losses import LOSSES, loss_of_rows, mean_loss, old_class_loss, stored_output_loss


@pytest.mark.parametrize("name", LOSSES)
def test_the_mean_loss_is_the_mean_of_the_rows(name):
    z = torch.randn(6, 4)
    y = torch.randint(4, (6,)) if name == "cross-entropy" else torch.randn(6, 4)
    rows = loss_of_rows(name, z, y)
    assert rows.shape == (6,)
    torch.testing.assert_close(mean_loss(name, z, y), rows.mean())
    share = torch.rand(6)
    torch.testing.assert_close(mean_loss(name, z, y, share), (rows * share).sum())


def test_losses_for_numbers_by_hand():
    z, y = torch.tensor([[3.0]]), torch.tensor([[1.0]])
    assert mean_loss("l1", z, y).item() == 2
    assert mean_loss("l2", z, y).item() == 4
    assert mean_loss("huber", z, y).item() == 1.5


def test_distance_to_stored_outputs_by_hand():
    nan = math.nan
    z = torch.tensor([[1.0, 2.0], [0.0, 4.0], [9.0, 9.0]])
    stored = torch.tensor([[0.0, 0.0], [1.0, 1.0], [nan, nan]])
    # Rows: (1 + 4) / 2 and (1 + 9) / 2; the third has nothing stored.
    assert stored_output_loss(z, stored, rows=3).item() == pytest.approx((2.5 + 5.0) / 3)


def test_rows_without_stored_outputs_get_no_gradient():
    z = torch.ones(2, 2, requires_grad=True)
    stored = torch.tensor([[0.0, 0.0], [math.nan, math.nan]])
    stored_output_loss(z, stored, rows=2).backward()
    assert z.grad.tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_icarl_loss_by_hand():
    z = torch.tensor([[0.3, -1.0, 2.0, 5.0]])
    before = torch.tensor([[1.5, 9.0, 9.0, 9.0]])
    old = torch.tensor([True, False, False, False])
    seen = torch.tensor([True, True, True, False])

    def logistic(z, target):
        p = 1 / (1 + math.exp(-z))
        return -target * math.log(p) - (1 - target) * math.log(1 - p)

    soft = 1 / (1 + math.exp(-1.5))
    expected = logistic(0.3, soft) + logistic(-1.0, 0) + logistic(2.0, 1)
    found = old_class_loss(z, torch.tensor([2]), before, seen, old)
    assert found.item() == pytest.approx(expected, rel=1e-6)
