import itertools
import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from olss.errors import InputError
from olss.learn import recipe, recipe_names
from olss.learn.heads import Head
from olss.learn.losses import Loss
from olss.learn.regularizers import Regularizer
from olss.memory.policies import Choice

from .tasks import class_stream, examples, step_loss, stream

TRAINED = [name for name in recipe_names() if name != "analytic"]  # a net, by steps
PAIRS = ["olss+ewc", "olss+si", "olss+gem", "olss+der++", "olss+a-gem", "olss+online-ewc"]
PAIRS += ["ewc+gem", "si+ewc", "er+ewc", "gem+der++", "icarl+si", "icarl+gem", "olss+ewc+gem"]


@pytest.mark.parametrize("name", TRAINED + PAIRS)
@pytest.mark.parametrize("make", [stream, class_stream])
def test_every_recipe_learns_and_answers(name, make):
    settings = {"size": 60} if "size" in json.dumps(recipe(name).config) else {}
    learner = recipe(name, net="mlp-16", batch=20, lr=0.05, epochs=6, **settings)
    tasks = make(3)
    learner.start(classes=range(6) if make is class_stream else range(3))
    for task in tasks:
        effort = learner.fit_task(task)
        assert effort.steps > 0
        answers = learner.predict(task.X_test)
        assert set(answers) <= set(range(6))
        held = learner.buffer.held
        if settings:
            assert len(held) <= 60
    assert learner.model.tasks == 3
    # Better than chance on the newest task, one in three or six.
    assert (answers == tasks[-1].y_test).mean() > 0.4


@pytest.mark.parametrize("name", TRAINED + PAIRS)
def test_the_configuration_is_json_and_complete(name):
    config = recipe(name).config
    assert json.loads(json.dumps(config)) == config
    assert config["learner"]["recipe"] == name
    assert config["net"] == "mlp"
    assert config["training"]["lr"] == 0.1


def test_a_learner_goes_by_the_name_it_was_given():
    named = recipe("olss", name="mine", policy="weighted")
    assert (named.name, named.config["learner"]["label"]) == ("mine", "mine")
    assert named.config["learner"]["recipe"] == "olss"
    assert "label" not in recipe("olss").config["learner"]
    assert recipe(name="olss+ewc").config["learner"]["recipe"] == "olss+ewc"


def test_olss_alone_is_the_papers_algorithm():
    config = recipe("olss").config["learner"]
    assert (config["policy"], config["size"], config["regime"]) == ("paper", "task", "sketch")


def test_the_order_of_a_combination_does_not_matter():
    a, b = recipe("olss+ewc", ewc_strength=2.0), recipe("ewc+olss", ewc_strength=2.0)
    for learner in (a, b):
        for task in stream(2):
            learner.fit_task(task)
    assert torch.equal(a.model.params.theta, b.model.params.theta)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("olss+der++", ["olss", "der++"]),
        (" der++ + ewc", ["der++", "ewc"]),
        ("der+++ewc+olss", ["der++", "ewc", "olss"]),
        ("gem+der", ["gem", "der"]),
    ],
)
def test_a_list_of_methods_or_their_names_joined(text, names):
    assert recipe(text).config == recipe(names).config
    assert recipe(names).name == "+".join(names)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sgd+ewc", "leave it out"),
        ("joint+ewc", "nothing to protect"),
        ("gdumb+si", "nothing to protect"),
        ("ewc+online-ewc", "two forms of one penalty"),
        ("gem+a-gem", "two forms of one projection"),
        ("der+der++", "two forms of one distillation"),
        ("er+der++", "both replay"),
        ("icarl+der++", "two ways to distill"),
        ("olss+icarl", "each bring a buffer"),
        ("olss+er", "regime='replay'"),
        ("ewc+ewc", "named twice"),
    ],
)
def test_a_combination_that_makes_no_sense_says_why(name, reason):
    with pytest.raises(InputError, match=f"not a combination.*{reason}"):
        recipe(name)


def test_every_pair_either_works_or_says_why():
    for a, b in itertools.combinations(recipe_names(), 2):
        try:
            assert recipe(f"{a}+{b}").name == f"{a}+{b}"
        except InputError as error:
            assert "not a combination" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("olls", {}, "Did you mean 'olss'"),
        ("olss+gme", {}, "Did you mean 'gem'"),
        ("", {}, "There is no recipe ''"),
        (None, {"name": "mine"}, "set recipe"),
        ("olss", {"polcy": "paper"}, "has no setting 'polcy'. Did you mean 'policy'"),
        ("olss", {"gem_rows": 3}, "no setting 'gem_rows'; these recipes have it: gem, a-gem"),
        ("sgd", {"size": 3}, "no setting 'size'"),
        ("sgd", {"regime": "mix"}, "no setting 'regime'; these recipes have it: er"),
        ("sgd", {"learning_rate": 3}, "no setting 'learning_rate'. Did you mean 'lr'"),
        ("ewc", {"ewc_lambda": 3}, "no setting 'ewc_lambda'. Did you mean 'ewc_strength'"),
        ("er", {"mem_size": 3}, "no setting 'mem_size'. Did you mean 'size'"),
        ("sgd", {"mem_size": 3}, "no setting 'mem_size'. Choose one of"),
        ("Naive", {}, "no recipe 'Naive'. Did you mean 'sgd'"),
        ("EWC", {}, "no recipe 'EWC'. Did you mean 'ewc'"),
        ("sgd", {"name": 3}, "name must be a string of printable characters, found 3"),
        ("sgd", {"name": ""}, "name must be a string"),
        ("sgd", {"name": "two\nlines"}, r"name must be a string .* found 'two\\nlines'"),
        ("sgd", {"lr": 0}, "lr must be a number above 0, found 0"),
        ("sgd", {"epochs": 0}, "epochs must be"),
        ("sgd", {"batch": 1.5}, "batch must be"),
        ("sgd", {"loss": "mse"}, "loss: there is no 'mse'"),
        ("sgd", {"head": "multi"}, "head: there is no 'multi'"),
        ("sgd", {"head": "nearest-mean"}, "needs a buffer"),
        ("olss", {"loss": "er-ace"}, "loss='er-ace' .* regime='sketch'"),
        ("icarl", {"loss": "er-ace"}, "loss='er-ace' .* regime='union'"),
        ("sgd", {"optimizer": "adm"}, "Did you mean 'adam'"),
        ("sgd", {"schedule": "cos"}, "schedule: there is no 'cos'. Did you mean 'cosine'"),
        (None, {}, "recipe must be"),
        ([["er"]], {}, r"There is no recipe \['er'\]"),
        ("sgd", {"optimizer": 5}, "optimizer 5"),
        ("sgd", {"optimizer": "lbfgs"}, "optimizer 'lbfgs' .*closure"),
        ("sgd", {"optimizer_settings": [1]}, r"optimizer_settings must be a table .* \[1\]"),
        ("sgd", {"optimizer_settings": {"nesterov": True}}, "Nesterov momentum requires"),
        ("sgd", {"optimizer_settings": {"momentum": 1.0}}, "momentum must be .* found 1.0"),
        ("sgd", {"momentum": -1}, "momentum must be"),
        ("sgd", {"weight_decay": -1}, "weight_decay must be a number"),
        ("sgd", {"input_mean": 0.5}, "input_mean must be a list of numbers, found 0.5"),
        ("sgd", {"input_std": "11"}, "input_std must be a list of numbers, found '11'"),
        ("sgd", {"mirrored": "false"}, "mirrored must be True or False, found 'false'"),
        ("sgd", {"weighted_loss": "false"}, "weighted_loss must be True or False, found 'false'"),
        ("sgd", {"net": "mpl"}, "net must be"),
        ("sgd", {"net": 3}, "net must be"),
    ],
)
def test_misspelt_names_and_bad_settings_name_the_remedy(name, settings, message):
    with pytest.raises(InputError, match=message):
        recipe(name, **settings)


def test_a_module_is_described():
    config = recipe("sgd", net=nn.Linear(4, 3)).config
    assert config["net"] == {"module": "Linear", "parameters": 15, "layers": "120e3c709e2b"}


@pytest.mark.parametrize("optimizer", ["sgd", "Adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_optimisers_and_schedules_by_name(optimizer, schedule):
    learner = recipe(
        "sgd", net="mlp-8", lr=0.01, batch=20, optimizer=optimizer, schedule=schedule, momentum=0.5
    ) if optimizer in ("sgd", "rmsprop") else recipe(
        "sgd", net="mlp-8", lr=0.01, batch=20, optimizer=optimizer, schedule=schedule
    )  # fmt: skip
    task = stream(1)[0]
    learner.fit_task(task)
    first = learner.model.params.theta.clone()
    learner.fit_task(task)
    assert not torch.equal(first, learner.model.params.theta)


def test_a_setting_the_optimiser_does_not_take_is_named():
    with pytest.raises(InputError, match=r"optimizer 'adam'.*momentum"):
        recipe("sgd", net="mlp-8", optimizer="adam", momentum=0.9)


def test_two_ways_to_distil_are_refused_by_any_name():
    with pytest.raises(InputError, match="two ways to distill"):
        recipe("der++", loss="icarl")


class Halved(Loss):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def __call__(self, model, outputs, batch, replayed):
        return self.factor * super().__call__(model, outputs, batch, replayed)


class Pull(Regularizer):
    """Draws the outputs to zero."""

    def __init__(self, pull: float = 1.0):
        self.weight = pull

    def loss(self, model, outputs, batch, replayed):
        return outputs.square().mean()


class Last(Head):
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
    return learner.model.params.theta


def test_a_loss_of_ones_own_by_name_or_as_it_is():
    by_name = fitted(loss=f"{HERE}:Halved", factor=0.5)
    assert torch.equal(theta(by_name), theta(fitted(loss=Halved, factor=0.5)))
    # Half the loss is half the rate.
    torch.testing.assert_close(theta(by_name), theta(fitted(lr=0.05)))
    assert by_name.config["training"]["loss"] == f"{HERE}:Halved"
    assert by_name.config["training"]["factor"] == 0.5


def test_a_penalty_of_ones_own_is_averaged_with_the_loss():
    learner = fitted(regularizer=f"{HERE}:Pull", pull=3.0)
    task = stream(1)[0]
    X, y = torch.tensor(task.X), torch.tensor(task.y)
    with torch.no_grad():
        outputs = learner.model.net(X)
        expected = (nn.functional.cross_entropy(outputs, y) + 3 * outputs.square().mean()) / 4
        rows, _ = examples(learner, task)
        torch.testing.assert_close(step_loss(learner, rows), expected)
    assert learner.config["learner"]["pull"] == 3.0


def test_a_head_a_policy_and_a_net_of_ones_own():
    assert set(fitted(head=f"{HERE}:Last").predict(stream(1)[0].X_test)) == {2}
    held = fitted("olss", policy=f"{HERE}:newest", size=50).buffer.held
    assert held.index.tolist() == list(range(190, 240))
    assert sum(p.numel() for p in fitted(net=f"{HERE}:tiny_net").model.net.parameters()) == 51


def test_ones_own_goes_on_after_it_was_saved(tmp_path):
    settings = {"loss": f"{HERE}:Halved", "factor": 0.5, "regularizer": f"{HERE}:Pull"}
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
        ({"loss": f"{HERE}:Halved", "facter": 1}, "no setting 'facter'. Did you mean"),
        ({"regularizer": "ewc"}, "regularizer: there is no 'ewc'"),
        ({"loss": torch.nn.CrossEntropyLoss}, "loss must be a subclass of olss.learn.losses.Loss"),
        (
            {"loss": torch.nn.CrossEntropyLoss()},
            "loss must be .* found CrossEntropyLoss",
        ),
        ({"loss": torch.nn.functional.cross_entropy}, "setting 'input'.* loss must be a subclass"),
        ({"loss": Loss()}, "loss must be a subclass .* found <olss.learn.losses.Loss object"),
        ({"loss": lambda: print}, "loss must be a subclass"),
        ({"head": dict}, "head must be a subclass of olss.learn.heads.Head"),
        ({"regularizer": dict}, "regularizer must be a subclass of olss.learn.regularizers"),
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
