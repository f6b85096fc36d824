import sys

import numpy as np
import pytest
import torch
from torch import nn

from olss.errors import InputError
from olss.learn import recipe
from olss.learn.heads import Answer
from olss.learn.losses import Loss
from olss.learn.regularizers import Penalty
from olss.memory.policies import Choice

from .tasks import stream


class Halved(Loss):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def __call__(self, model, outputs, batch, replayed):
        return self.factor * super().__call__(model, outputs, batch, replayed)


class Pull(Penalty):
    """Draws the outputs to zero."""

    def __init__(self, pull: float = 1.0):
        self.weight = pull

    def loss(self, model, outputs, batch, replayed):
        return outputs.square().mean()


class Last(Answer):
    """Answers with the newest class, whatever is asked."""

    def __call__(self, model, X, task):
        return torch.arange(float(model.out)).expand(len(X), -1)


def newest(pool, rng):
    return Choice(np.arange(len(pool))[-pool.size :])


def tiny_net():
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))


HERE = __name__
SETTINGS = {"batch": 20, "lr": 0.1}


def fitted(name="sgd", **settings):
    learner = recipe(name, **{"net": "mlp-16"} | SETTINGS | settings)
    for task in stream(2):
        learner.fit_task(task)
    return learner


def theta(learner):
    return learner.model.flat.theta


def test_a_loss_of_ones_own_by_name_or_as_it_is():
    by_name = fitted(loss=f"{HERE}:Halved", factor=0.5)
    assert torch.equal(theta(by_name), theta(fitted(loss=Halved, factor=0.5)))
    # Half the loss is half the rate.
    torch.testing.assert_close(theta(by_name), theta(fitted(lr=0.05)))
    assert by_name.config["training"]["loss"] == f"{HERE}:Halved"
    assert by_name.config["training"]["factor"] == 0.5


def test_a_penalty_of_ones_own_is_averaged_with_the_loss():
    learner = fitted(penalty=f"{HERE}:Pull", pull=3.0)
    task = stream(1)[0]
    X, y = torch.tensor(task.X), torch.tensor(task.y)
    with torch.no_grad():
        outputs = learner.model.net(X)
        expected = (nn.functional.cross_entropy(outputs, y) + 3 * outputs.square().mean()) / 4
        rows, _ = learner._examples(task)
        torch.testing.assert_close(learner._loss(rows), expected)
    assert learner.config["learner"]["pull"] == 3.0


def test_a_head_a_policy_and_a_net_of_ones_own():
    assert set(fitted(head=f"{HERE}:Last").predict(stream(1)[0].X_test)) == {2}
    held = fitted("olss", policy=f"{HERE}:newest", size=50).memory.held
    assert held.index.tolist() == list(range(190, 240))
    assert sum(p.numel() for p in fitted(net=f"{HERE}:tiny_net").model.net.parameters()) == 51


def test_ones_own_goes_on_after_it_was_saved(tmp_path):
    settings = {"loss": f"{HERE}:Halved", "factor": 0.5, "penalty": f"{HERE}:Pull"}
    learner = fitted("olss", policy=f"{HERE}:newest", size=50, **settings)
    learner.save(tmp_path / "state")
    all_settings = {"net": "mlp-16"} | SETTINGS | settings
    other = recipe("olss", policy=f"{HERE}:newest", size=50, **all_settings)
    other.load(tmp_path / "state")
    third = stream(3)[2]
    for one in (learner, other):
        one.fit_task(third)
    assert torch.equal(theta(learner), theta(other))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": f"{HERE}:Halfed"}, "has no 'Halfed'"),
        ({"loss": "no_such_module:Loss"}, "cannot be imported: No module named"),
        ({"net": f"{HERE}:no_net"}, "has no 'no_net'"),
        ({"loss": f"{HERE}:Halved"}, "needs the setting 'factor'; it has no default"),
        ({"loss": f"{HERE}:Halved", "facter": 1}, "takes no setting 'facter'. Did you mean"),
        ({"penalty": "ewc"}, "penalty: there is no 'ewc'"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        recipe("sgd", **settings)


def test_modules_beside_the_experiment_are_found(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("from olss.learn.losses import Loss as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert recipe("sgd", loss="beside:Mine").config["training"]["loss"] == "beside:Mine"


def test_parts_of_one_name_are_told_apart_by_their_code():
    """As when a class is changed in a notebook between two seeds."""

    def times(k):
        class Scaled(Loss):
            def __call__(self, *args):
                return k * super().__call__(*args)

        return lambda *args, **settings: Scaled(*args, **settings) if k else None

    told = [recipe("sgd", loss=times(k)).config["training"]["loss"] for k in (1, 1, 2)]
    assert told[0] == told[1] != told[2]
