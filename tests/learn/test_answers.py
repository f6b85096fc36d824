import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from olss.errors import InputError
from olss.learn import recipe

from .tasks import class_stream, learned

ON_FEATURES = ["nearest-mean", "ridge", "discriminant", "product", "logistic"]
FITTED = [*ON_FEATURES, "weight-aligned", "bias-corrected"]


@pytest.mark.parametrize("head", FITTED)
def test_a_fitted_head_answers_well_for_all_classes(head):
    learner, stream = learned(head)
    for task in stream:
        assert (learner.predict(task.X_test) == task.y_test).mean() > 0.6


@pytest.mark.parametrize("head", FITTED)
def test_fitted_heads_do_not_change_the_net_and_go_on_from_a_checkpoint(head, tmp_path):
    learner, stream = learned(head)
    plain, _ = learned()
    assert torch.equal(learner.model.flat.theta, plain.model.flat.theta)
    learner.save(tmp_path / "state")
    settings = {"net": "mlp-16", "batch": 20, "lr": 0.05, "epochs": 5, "size": 60}
    other = recipe("er", head=head, **settings).load(tmp_path / "state")
    X = stream[0].X_test
    np.testing.assert_array_equal(learner.predict(X), other.predict(X))


def images(tasks=2):
    """Tasks of two classes of images that are not their own mirror images."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2 * tasks, 3, 8, 8))
    for task in range(tasks):
        y = np.repeat([2 * task, 2 * task + 1], 40)
        yield SimpleNamespace(X=(centres[y] + rng.standard_normal((80, 3, 8, 8))).astype("f4"), y=y)


@pytest.mark.parametrize("head", ["seen", *FITTED])
def test_mirrored_an_image_and_its_mirror_image_get_one_answer(head):
    settings = {"net": "resnet18-4", "batch": 20, "lr": 0.05, "size": 40, "head": head}
    learner = recipe("er", mirrored=True, **settings).start(range(4))
    for task in images():
        learner.fit_task(task)
    model, X = learner.model, torch.from_numpy(np.concatenate([task.X for task in images()]))
    one, other = (learner._answers(rows, None) for rows in (X, X.flip(-1)))
    torch.testing.assert_close(one, other)
    if head == "seen":
        torch.testing.assert_close(one, (model.outputs(X) + model.outputs(X.flip(-1))) / 2)
    assert not torch.allclose(model.outputs(X), model.outputs(X.flip(-1)))
    learner.model.training = dataclasses.replace(learner.model.training, mirrored=False)
    assert not torch.allclose(learner._answers(X, None), one)


@pytest.mark.parametrize("head", ON_FEATURES)
def test_heads_on_features_can_look_at_the_last_stages(head):
    settings = {"net": "resnet18-4", "batch": 20, "lr": 0.05, "size": 40, "head": head}
    learner = recipe("er", head_layers="stages", **settings).start(range(4))
    for task in images():
        learner.fit_task(task)
    X = torch.from_numpy(np.concatenate([task.X for task in images()]))
    y = np.concatenate([task.y for task in images()])
    assert learner.model.hidden(X, "stages")[0].shape == (160, 32 + 4 * (16 + 8))
    assert (learner.predict(X) == y).mean() > 0.6
    with pytest.raises(InputError, match="head_layers: there is no 'all'"):
        recipe("er", head=head, head_layers="all")


def test_mirrored_is_for_images_and_says_so_each_time():
    learner = recipe("er", mirrored=True, net="mlp-16").start(range(2))
    for _ in range(2):
        with pytest.raises(InputError, match=r"mirrored=True is for images.*shape \(8,\)"):
            learner.fit_task(next(iter(class_stream(1))))


def test_fitted_heads_are_for_classes_and_need_a_memory():
    with pytest.raises(InputError, match="head='ridge' is for classes"):
        recipe("er", head="ridge", loss="l2")
    with pytest.raises(InputError, match="head='ridge' needs remembered rows, and 'sgd' has none"):
        recipe("sgd", head="ridge")
