import dataclasses

import pytest
import torch
from torch import nn

from olss.learn import DivergedError, recipe
from olss.learn.regularizers import Penalty

from .tasks import stream

STEPS = 4


class Trace(Penalty):
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
    return recipe(name, **{"net": net, "batch": 20, "lr": 0.1, "penalty": Trace} | settings)


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
    trace = learner.parts.penalties[0]
    assert len(trace.theta) == 12
    torch.testing.assert_close(learner.model.flat.theta, mean_of(trace.theta))
    torch.testing.assert_close(learner.model.net[1].running_mean, mean_of(trace.means))
    assert int(learner.model.net[1].num_batches_tracked) == 12


@pytest.mark.parametrize("name", ["sgd", "er", "ewc+si+er", "gem"])
def test_training_goes_on_from_the_weights_as_if_nothing_were_averaged(name):
    plain, averaged = make(name), make(name, average_steps=STEPS)
    for task in stream(3):
        for learner in (plain, averaged):
            learner.fit_task(task)
            learner.score(task.X_test, task.y_test)
    assert torch.equal(averaged.model.average.state["theta"], plain.model.flat.theta)
    assert not torch.equal(averaged.model.flat.theta, plain.model.flat.theta)


def test_a_net_that_starts_anew_is_averaged_anew():
    learner = make("gdumb", size=60, average_steps=STEPS)
    for task in stream(2):
        learner.fit_task(task)
    newest = learner.parts.penalties[0].theta[-3:]  # 60 rows in steps of 20
    torch.testing.assert_close(learner.model.flat.theta, mean_of(newest))


def test_after_an_error_the_weights_and_their_mean_are_as_before():
    learner, again = (
        recipe("sgd", net="mlp-16", batch=20, lr=0.1, average_steps=STEPS) for _ in range(2)
    )
    first, second = stream(2)
    for one in (learner, again):
        one.fit_task(first)
    with pytest.raises(DivergedError):
        learner.fit_task(dataclasses.replace(second, X=second.X * 1e30))
    assert torch.equal(learner.model.flat.theta, again.model.flat.theta)
    for one in (learner, again):
        one.fit_task(second)
    assert torch.equal(learner.model.flat.theta, again.model.flat.theta)


def test_a_saved_learner_goes_on(tmp_path):
    learner, again = make(average_steps=STEPS), make(average_steps=STEPS)
    first, second = stream(2)
    learner.fit_task(first)
    learner.save(tmp_path / "saved")
    again.load(tmp_path / "saved")
    for one in (learner, again):
        one.fit_task(second)
    assert torch.equal(learner.model.flat.theta, again.model.flat.theta)
