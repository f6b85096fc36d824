import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from olss.errors import DataError, InputError
from olss.learn import DivergedError, recipe
from olss.learn.model import ClassMask, Labels
from olss.learn.nets import ParameterVector, mlp, resnet18
from olss.learn.regularizers import Regularizer

from .tasks import stream


@pytest.mark.parametrize("classes", [[7, 3, 11], ["b", "a", "c"], [-1, 5, 0], [1.0, 2.0, 0.0]])
def test_labels_of_any_kind_come_back(classes):
    labels = Labels(classes)
    y = np.array(classes * 2)
    codes = labels.encode(y)
    assert sorted(set(codes.tolist())) == [0, 1, 2]
    np.testing.assert_array_equal(labels.decode(codes), y)


def test_an_unknown_label_is_named():
    with pytest.raises(DataError, match=r"label 9, .* 2 classes"):
        Labels([0, 1]).encode([0, 9])


@pytest.mark.parametrize("y", [[0.5, 1.0], [[1], [0]]])
def test_numbers_are_no_labels(y):
    with pytest.raises(DataError, match="loss='l2'"):
        Labels([0, 1]).encode(y)


@pytest.mark.parametrize("labels", [[b"a", b"b"], np.array(["2026-01-01"], "M8[D]")])
def test_labels_that_no_file_holds_are_refused_at_once(labels):
    with pytest.raises(DataError, match="classes must hold"):
        Labels(labels)


INF = float("inf")


def opened(mode, *tasks):
    head = ClassMask(mode, 4)
    for classes in tasks:
        head.begin_task(torch.tensor(classes))
    return head


def test_all_classes_seen_so_far_compete():
    head = opened("seen", [0, 2])
    assert head.apply(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, -INF]]
    head.begin_task(torch.tensor([3]))
    assert head.apply(torch.ones(1, 4), None).tolist() == [[1, -INF, 1, 1]]


def test_only_the_classes_of_each_rows_task_compete():
    head = opened("task", [0, 1], [2, 3])
    z = head.apply(torch.ones(2, 4), torch.tensor([1, 0]))
    assert z.tolist() == [[-INF, -INF, 1, 1], [1, 1, -INF, -INF]]
    assert head.apply(torch.ones(1, 4), 0).tolist() == [[1, 1, -INF, -INF]]
    with pytest.raises(InputError, match="task is required"):
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


def test_parameters_and_gradients_are_views_of_the_vectors():
    net = mlp(5, 3, (4,))
    expected = [p.detach().clone() for p in net.parameters()]
    flat = ParameterVector(net)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), expected, strict=True))
    x = torch.rand(6, 5)
    net(x).square().sum().backward()
    by_hand = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    torch.testing.assert_close(flat.gradient, torch.cat([g.flatten() for g in by_hand]))
    flat.theta.zero_()
    assert all((p == 0).all() for p in net.parameters())


def test_an_optimiser_on_the_vector_steps_the_net():
    net = mlp(5, 3, (4,))
    flat = ParameterVector(net)
    before = flat.theta.clone()
    net(torch.rand(6, 5)).sum().backward()
    torch.optim.SGD([flat.theta], lr=0.5).step()
    torch.testing.assert_close(flat.theta, before - 0.5 * flat.gradient)
    assert net[1].weight.data_ptr() == flat.theta.data_ptr()


def test_state_holds_running_means_and_comes_back():
    net = resnet18(3, 5, 4)
    flat = ParameterVector(net)
    first = flat.state()
    net.train()(torch.rand(4, 3, 8, 8)).sum().backward()
    flat.theta.add_(1)
    assert not torch.equal(net[1].running_mean, first["buffer.1.running_mean"])
    flat.load(first)
    assert torch.equal(net[1].running_mean, first["buffer.1.running_mean"])
    assert torch.equal(flat.theta, first["theta"])


def test_frozen_parameters_stay_out():
    net = mlp(5, 3, (4,))
    net[1].weight.requires_grad_(False)
    flat = ParameterVector(net)
    assert flat.theta.numel() == 4 + 12 + 3
    assert "buffer.1.weight" in flat.state()


def test_nothing_to_train_or_mixed_precision_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        ParameterVector(nn.ReLU())
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(InputError, match=r"torch\.float32, torch\.float64"):
        ParameterVector(mixed)


STEPS = 4


class Trace(Regularizer):
    """Notes the weights and running means after each step."""

    def start(self):
        super().start()
        self.theta, self.means = [], []

    def after_step(self, flat, lr):
        self.theta.append(flat.theta.clone())
        self.means.append(flat.net[1].running_mean.clone())


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def make(name="sgd", **settings):
    return recipe(name, **{"net": net, "batch": 20, "lr": 0.1, "regularizer": Trace} | settings)


def mean_of(values):
    """By the definition: plain over the first steps, then each counts one over STEPS."""
    mean = values[0]
    for number, value in enumerate(values[1:], start=2):
        mean = mean + (value - mean) / min(number, STEPS)
    return mean


def test_the_mean_over_the_last_steps_answers():
    learner = make(average_steps=STEPS)
    for task in stream(2):
        learner.fit_task(task)
    trace = learner.parts.regularizers[0]
    assert len(trace.theta) == 12
    torch.testing.assert_close(learner.model.params.theta, mean_of(trace.theta))
    torch.testing.assert_close(learner.model.net[1].running_mean, mean_of(trace.means))
    assert int(learner.model.net[1].num_batches_tracked) == 12


@pytest.mark.parametrize("name", ["sgd", "er", "ewc+si+er", "gem"])
def test_training_goes_on_from_the_weights_as_if_nothing_were_averaged(name):
    plain, averaged = make(name), make(name, average_steps=STEPS)
    for task in stream(3):
        for learner in (plain, averaged):
            learner.fit_task(task)
            learner.score(task.X_test, task.y_test)
    assert torch.equal(averaged.model.average.state["theta"], plain.model.params.theta)
    assert not torch.equal(averaged.model.params.theta, plain.model.params.theta)


def test_a_net_that_starts_anew_is_averaged_anew():
    learner = make("gdumb", size=60, average_steps=STEPS)
    for task in stream(2):
        learner.fit_task(task)
    newest = learner.parts.regularizers[0].theta[-3:]  # 60 rows in steps of 20
    torch.testing.assert_close(learner.model.params.theta, mean_of(newest))


def test_after_an_error_the_weights_and_their_mean_are_as_before():
    learner, again = (
        recipe("sgd", net="mlp-16", batch=20, lr=0.1, average_steps=STEPS) for _ in range(2)
    )
    first, second = stream(2)
    for one in (learner, again):
        one.fit_task(first)
    with pytest.raises(DivergedError):
        learner.fit_task(dataclasses.replace(second, X=second.X * 1e30))
    assert torch.equal(learner.model.params.theta, again.model.params.theta)
    for one in (learner, again):
        one.fit_task(second)
    assert torch.equal(learner.model.params.theta, again.model.params.theta)


def test_a_saved_learner_goes_on(tmp_path):
    learner, again = make(average_steps=STEPS), make(average_steps=STEPS)
    first, second = stream(2)
    learner.fit_task(first)
    learner.save(tmp_path / "saved")
    again.load(tmp_path / "saved")
    for one in (learner, again):
        one.fit_task(second)
    assert torch.equal(learner.model.params.theta, again.model.params.theta)
