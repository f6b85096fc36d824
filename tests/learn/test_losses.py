import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from olss.learn.buffers import TrainingSet
from olss.learn.losses import (
    ROW_LOSSES,
    AsymmetricLoss,
    LogitAdjustedLoss,
    Loss,
    old_class_loss,
    row_losses,
)
from olss.learn.model import ClassMask
from olss.learn.regularizers import stored_output_loss
from olss.learn.training import Batch


def model(*tasks, outputs=4):
    head = ClassMask("seen", outputs)
    for classes in tasks:
        head.begin_task(torch.tensor(classes))
    return SimpleNamespace(mask=head, out=outputs)


def labelled(*labels, weight=None):
    y = torch.tensor(labels)
    return Batch(torch.zeros(len(y), 1), y, torch.zeros_like(y), torch.arange(len(y)), weight)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_the_loss_of_a_step_is_the_mean_of_its_rows(name):
    z = torch.randn(6, 4)
    y = torch.randint(4, (6,)) if name == "cross-entropy" else torch.randn(6, 4)
    rows = row_losses(name, z, y)
    assert rows.shape == (6,)
    batch = Batch(z, y, torch.zeros(6), torch.arange(6), torch.rand(6))
    seen = model([0, 1, 2, 3])
    torch.testing.assert_close(Loss(name)(seen, z, batch, 2), rows.mean())
    weighted = (rows * batch.weight).sum() / batch.weight.sum()
    torch.testing.assert_close(Loss(name, weighted_loss=True)(seen, z, batch, 2), weighted)
    split = (rows[:4].mean() + 0.3 * rows[4:].mean()) / 1.3
    torch.testing.assert_close(Loss(name, beta=0.3)(seen, z, batch, 2), split)


def test_losses_for_numbers_by_hand():
    z, y = torch.tensor([[3.0]]), torch.tensor([[1.0]])
    assert row_losses("l1", z, y).item() == 2
    assert row_losses("l2", z, y).item() == 4
    assert row_losses("huber", z, y).item() == 1.5


def test_a_net_trained_with_adjusted_logits_answers_as_if_classes_came_alike():
    # One free output a class: trained plainly, z becomes the log of the shares; adjusted, equal.
    rows = labelled(*[0] * 90, *[1] * 10)
    seen, training = model([0, 1]), TrainingSet(rows, 100)
    found = []
    for loss in (Loss(), LogitAdjustedLoss(), LogitAdjustedLoss(tau=0.5)):
        loss.begin_task(seen, training)
        z = torch.zeros(4, requires_grad=True)
        optimiser = torch.optim.SGD([z], lr=2.0)
        for _ in range(300):
            optimiser.zero_grad()
            loss(seen, z.expand(100, 4), rows, 0).backward()
            optimiser.step()
        found.append((z[0] - z[1]).item())
    assert found == pytest.approx([math.log(9), 0.0, math.log(9) / 2], abs=1e-3)


@pytest.mark.parametrize(("batch", "new"), [(2, 2), (4, 4), (10, 4)])
def test_the_shares_expected_in_a_step_count_new_and_replayed_rows(batch, new):
    training = TrainingSet(labelled(0, 0, 1, 1), batch, labelled(2, 2, 2, 0), 30)
    ((rows, replayed),) = itertools.islice(training.batches(1, np.random.default_rng(0)), 1)
    assert len(rows) - replayed == new  # there are no more
    whole = np.array([new / 2 + 7.5, new / 2, 22.5, 0])
    assert training.class_shares(4).tolist() == pytest.approx(whole / (new + 30))


@pytest.mark.parametrize("beta", [None, 0.5, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_adjusted_logits_know_what_rows_count_in_the_loss(beta, weighted):
    # Whatever weights and beta make of the rows, classes that come unlike end up alike.
    new = dataclasses.replace(labelled(2, 2, 3, 2), weight=torch.tensor([1.0, 1, 4, 1]))
    past = dataclasses.replace(labelled(0, 1, 1), weight=torch.tensor([5.0, 1, 2]))
    training = TrainingSet(new, 4, past, 3)
    seen, step = model([0, 1], [2, 3]), new.join(past)
    loss = LogitAdjustedLoss(weighted_loss=weighted, beta=beta)
    loss.begin_task(seen, training)
    z = torch.zeros(4, requires_grad=True)
    loss(seen, z.expand(7, 4), step, 3).backward()
    assert z.grad.tolist() == pytest.approx([0.0] * 4, abs=1e-6)


def test_losses_that_do_not_count_may_be_infinite():
    # beta = 0 leaves replayed labels out, so old classes are not expected at all.
    loss, seen = LogitAdjustedLoss(beta=0.0), model([0, 1], [2, 3])
    loss.begin_task(seen, TrainingSet(labelled(2, 3), 2, labelled(0, 1), 2))
    z = torch.zeros(4, 4, requires_grad=True)
    loss(seen, z, labelled(2, 3, 0, 1), 2).backward()
    assert z.grad.isfinite().all()
    assert (z.grad[:, :2] == 0).all()


def test_new_rows_push_no_old_class_down_with_er_ace():
    z = torch.zeros(3, 4, requires_grad=True)
    found = AsymmetricLoss()(model([0, 1], [2, 3]), z, labelled(2, 3, 0), replayed=1)
    # New rows choose between two classes, the remembered one between four.
    assert found.item() == pytest.approx(math.log(2) + math.log(4), rel=1e-6)
    found.backward()
    assert (z.grad[:2, :2] == 0).all()
    assert (z.grad[2, 1:] > 0).all()


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
