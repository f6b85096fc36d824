import dataclasses
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn.functional import normalize

from olss.core.moments import Moments, one_hot
from olss.errors import InputError
from olss.learn import recipe
from olss.learn.heads import RIDGE, Discriminant, Product, nearest_mean, transport

from .tasks import class_stream, learned

FITTED = ["nearest-mean", "discriminant", "product", "transported", "ensemble"]


@pytest.mark.parametrize("head", FITTED)
def test_a_fitted_head_answers_well_for_all_classes(head):
    learner, stream = learned(head)
    for task in stream:
        assert (learner.predict(task.X_test) == task.y_test).mean() > 0.6


@pytest.mark.parametrize("head", FITTED)
def test_fitted_heads_do_not_change_the_net_and_go_on_from_a_checkpoint(head, tmp_path):
    learner, stream = learned(head)
    plain, _ = learned()
    assert torch.equal(learner.model.params.theta, plain.model.params.theta)
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


@pytest.mark.parametrize("head", FITTED)
def test_heads_on_features_can_look_at_the_last_stages(head):
    settings = {"net": "resnet18-4", "batch": 20, "lr": 0.05, "size": 40, "head": head}
    learner = recipe("er", head_layers="stages", **settings).start(range(4))
    for task in images():
        learner.fit_task(task)
    X = torch.from_numpy(np.concatenate([task.X for task in images()]))
    y = np.concatenate([task.y for task in images()])
    assert learner.model.hidden(X, "stages")[0].shape == (160, 32 + 4 * (16 + 8))
    assert (learner.predict(X) == y).mean() > 0.6
    with pytest.raises(InputError, match="head_layers"):
        recipe("er", head=head, head_layers="all")


def test_mirrored_is_for_images_and_says_so_each_time():
    learner = recipe("er", mirrored=True, net="mlp-16").start(range(2))
    for _ in range(2):
        with pytest.raises(InputError, match=r"mirrored=True.*\(8,\)"):
            learner.fit_task(next(iter(class_stream(1))))


def test_fitted_heads_are_for_classes_and_need_a_memory():
    with pytest.raises(InputError, match="head='product' requires classes"):
        recipe("er", head="product", loss="l2")
    with pytest.raises(InputError, match="head='product' needs a buffer"):
        recipe("sgd", head="product")


class Rows:
    """Remembered features, as a net would give them, with a class that has none."""

    out = 4

    def __init__(self, per_class=(50, 50, 50)):
        rng = np.random.default_rng(0)
        self.y = torch.from_numpy(np.repeat(np.arange(3), per_class))
        centres = rng.standard_normal((3, 6))
        self.X = torch.from_numpy(centres[self.y] + rng.standard_normal((len(self.y), 6)))
        self.weight = None

    def hidden(self, X, layers):
        return X, torch.zeros(len(X), 4)

    def views(self, X):
        return [X]


def sklearn_view(rows):
    return normalize(rows.X).numpy(), rows.y.numpy()


def test_the_discriminant_is_sklearns_with_a_shrunk_covariance():
    rows = Rows()
    head = Discriminant(shrinkage=0.4)
    head.fit(rows, rows)
    unit, y = sklearn_view(rows)
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.4).fit(unit, y)
    found = head(rows, rows.X, None)[:, :3]
    # Scores are equal up to a number for each row.
    expected = model.decision_function(unit)
    np.testing.assert_allclose(
        found - found.mean(1, keepdim=True), expected - expected.mean(1, keepdims=True), atol=1e-3
    )


def leave_fold_out(rows, shrinkage=0.1):
    """Scores of sklearn's discriminant for rows it was not fitted on, in five folds."""
    unit, y = sklearn_view(rows)
    fold, scores = np.concatenate([np.arange(n) for n in np.bincount(y)]) % 5, np.empty((len(y), 3))
    for k in range(5):
        out = fold == k
        model = LinearDiscriminantAnalysis("lsqr", shrinkage, priors=[1 / 3] * 3)
        scores[out] = model.fit(unit[~out], y[~out]).decision_function(unit[out])
    return scores, y


def test_the_product_adds_a_discriminant_as_sharp_as_rows_left_out_allow():
    rows = Rows()
    head = Product()
    head.fit(rows, rows)
    scores, y = leave_fold_out(rows)

    def unlikely(sharpness):
        return -log_softmax(sharpness * scores, axis=1)[np.arange(len(y)), y].mean()

    best = minimize_scalar(unlikely, bounds=(0, 10), method="bounded", options={"xatol": 1e-6})
    assert head.sharpness == pytest.approx(best.x, rel=1e-4)  # both stop near the minimum
    plain = Discriminant()
    plain.fit(rows, rows)
    X, z = rows.X[:7], torch.randn(7, 4, dtype=torch.float64)
    rows.hidden = lambda X, layers: (X, z)
    expected = z + head.sharpness * plain(rows, X, None)
    torch.testing.assert_close(head(rows, X, None), expected)


def test_the_product_leaves_it_to_the_net_where_rows_left_out_tell_nothing():
    rows = Rows((1, 1, 1))
    head = Product()
    head.fit(rows, rows)
    assert head.sharpness == 0
    rows = Rows((40, 40, 40))
    rows.y = torch.from_numpy(np.random.default_rng(1).permutation(rows.y))
    head.fit(rows, rows)
    assert head.sharpness < 0.05
    uneven = Rows((40, 1, 5))
    head.fit(uneven, uneven)
    assert 0 < head.sharpness < 10


@pytest.mark.parametrize("head", [Discriminant, Product])
def test_classes_count_alike_however_many_rows_are_remembered_of_each(head):
    few = Rows()
    many = Rows()
    again = torch.cat([torch.arange(150), torch.arange(50), torch.arange(50)])
    many.X, many.y = many.X[again], many.y[again]
    scores = []
    for rows in (few, many):
        answer = head()
        answer.fit(rows, rows)
        scores.append(answer(rows, few.X, None)[:, :3])
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)


def test_nearest_mean_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(10, 5, generator=generator)
    remembered = torch.randn(12, 5, generator=generator)
    labels = torch.tensor([0, 2] * 6)
    found = nearest_mean(features, remembered, labels, 3)
    for i, f in enumerate(features):
        distances = []
        for label in (0, 2):
            mean = sum(r / r.norm() for r in remembered[labels == label]) / 6
            distances.append(((f / f.norm() - mean / mean.norm()) ** 2).sum())
        torch.testing.assert_close(-found[i, [0, 2]], torch.stack(distances), rtol=1e-4, atol=1e-5)
    assert (found[:, 1] == -torch.inf).all()


def test_moments_are_transported_exactly_through_a_linear_change():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    X = rng.standard_normal((400, 6)) + y[:, None]
    moved = X @ rng.standard_normal((6, 6)) + rng.standard_normal(6)
    before, after = (Moments.empty(6, 3).update(rows, one_hot(y, 3)) for rows in (X, moved))
    found = transport(before, X[:50], moved[:50], ridge=1e-12)
    for name in ("mean", "scatter", "cross"):
        np.testing.assert_allclose(getattr(found, name), getattr(after, name), rtol=1e-6, atol=1e-6)
    # What no linear map explains widens the scatter by as much.
    noise = rng.standard_normal((400, 6))
    wider = transport(before, X, X + noise, ridge=1e12)
    kept = transport(before, X, X, ridge=0.3)
    np.testing.assert_allclose(kept.scatter, before.scatter)
    np.testing.assert_allclose(
        wider.scatter - before.scatter, 400 * np.cov(noise.T, bias=True), rtol=1e-6, atol=1e-6
    )


def transported(**changes):
    settings = {"net": "mlp-16", "batch": 20, "lr": 0.05, "epochs": 5, "size": 30} | changes
    return recipe("er", **{"head": "transported"} | settings).start(range(6))


def test_a_net_that_does_not_change_is_answered_by_all_rows_not_the_remembered():
    learner, tasks = transported(lr=1e-12), class_stream()
    for task in tasks:
        learner.fit_task(task)
    X, y = (np.concatenate([getattr(task, name) for task in tasks]) for name in ("X", "y"))
    unit = normalize(learner.model.hidden(torch.from_numpy(X))[0].double()).numpy()
    whole = LinearDiscriminantAnalysis("lsqr", shrinkage=0.1, priors=np.full(6, 1 / 6))
    whole.fit(unit, y)
    ours = learner._answers(X, None).log_softmax(1)
    assert len(learner.buffer.held) == 30
    assert (ours.argmax(1).numpy() == whole.predict(unit)).mean() > 0.98


@pytest.mark.parametrize("head", ["transported", "ensemble"])
def test_what_a_head_has_seen_goes_on_from_a_checkpoint_and_survives_a_failure(head, tmp_path):
    tasks = class_stream()
    learner = transported(head=head)
    for task in tasks[:2]:
        learner.fit_task(task)
    moments, state = learner.parts.head.moments, learner.parts.head.state
    held = sum(value.nbytes for value in state.values())
    assert held >= moments.nbytes
    assert learner.stored_bytes == learner.buffer.held.nbytes + held
    learner.save(tmp_path / "state")
    resumed = transported(head=head).load(tmp_path / "state")
    before = resumed.parts.head.state
    cut_off = patch.object(type(learner.parts.head), "fit", side_effect=KeyboardInterrupt)
    with cut_off, pytest.raises(KeyboardInterrupt):
        resumed.fit_task(tasks[2])
    assert all(torch.equal(value, before[k]) for k, value in resumed.parts.head.state.items())
    for each in (learner, resumed):
        each.fit_task(tasks[2])
    np.testing.assert_array_equal(*(each.predict(tasks[0].X) for each in (learner, resumed)))
    for name, value in learner.parts.head.state.items():
        assert torch.equal(value, resumed.parts.head.state[name]), name
    assert resumed.start(range(6)).parts.head.state == {}


def test_an_ensemble_multiplies_the_answers_of_replay_and_of_the_analytic_learner():
    shared = {"net": "resnet18-4", "batch": 20, "lr": 0.05, "size": 40, "mirrored": True}
    made = {
        "both": recipe(["analytic", "olss-replay"], centres=20, net_weight=0.5, **shared),
        "replay": recipe("olss-replay", **shared),
        "frozen": recipe("analytic", centres=20, ridge=RIDGE, mirrored=True),
    }
    tasks = list(images())
    for learner in made.values():
        learner.start(range(4))
        for task in tasks:
            learner.fit_task(task)
    X = np.concatenate([task.X for task in tasks])
    replay = made["replay"]._answers(X, None).double().log_softmax(1)
    frozen = torch.from_numpy(made["frozen"].decide(X)).double().log_softmax(1)
    both = made["both"]._answers(X, None)
    torch.testing.assert_close(both, frozen + 0.5 * replay, rtol=1e-3, atol=1e-2)
    assert made["both"].stored_bytes == sum(made[k].stored_bytes for k in ("replay", "frozen"))


def test_an_ensemble_needs_rows_to_replay():
    with pytest.raises(InputError, match="add olss-replay"):
        recipe(["analytic", "ewc"])
    with pytest.raises(InputError, match="buffer"):
        recipe("ewc", head="ensemble")
