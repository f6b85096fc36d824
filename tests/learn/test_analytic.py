"""The analytic learner: equal to seeing everything at once, in the laboratory like any other."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from olss.errors import DataError, InputError
from olss.learn import recipe, run
from olss.streams import Task, incremental

DIGITS = {"centres": 20, "threads": 1}


def digits(**more):
    return incremental("digits", tasks=5, **more)


def joined(stream):
    """Return all training rows of a stream as a task."""
    tasks = list(stream)
    columns = {
        name: np.concatenate([getattr(t, name) for t in tasks])
        for name in ("X", "y", "X_test", "y_test")
    }
    return dataclasses.replace(tasks[0], **columns, classes=None)


def test_nothing_is_forgotten_and_the_order_does_not_matter():
    # The map is fixed by given images, so that orders can be compared.
    images = joined(digits()).X / 16
    settings = DIGITS | {"features": "patches", "images": images, "ridge": 0.01}
    forward, backward = (recipe("analytic", **settings).start(range(10)) for _ in range(2))
    tasks = list(digits())
    for task in tasks:
        forward.fit_task(task)
    for task in reversed(tasks):
        backward.fit_task(task)
    at_once = recipe("analytic", **settings).start(range(10))
    at_once.fit_task(joined(digits()))
    X = joined(digits()).X_test
    for learner in (backward, at_once):
        assert_allclose(learner.moments.mean, forward.moments.mean, rtol=1e-4, atol=1e-5)
        assert (learner.predict(X) == forward.predict(X)).mean() > 0.99


def test_raw_features_are_scikit_learns_discriminant():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = rng.standard_normal((600, 5)) @ rng.standard_normal((5, 5)) + rng.standard_normal((3, 5))[y]
    learner = recipe("analytic", features="raw", ridge=1e-6)
    for k in range(3):
        learner.fit_task(Task("one class", X[y == k], y[y == k], X, y, None))
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    assert (learner.predict(X) == theirs.predict(X)).all()
    assert learner.score(X, y) == theirs.score(X, y)


def test_numbers_are_learned_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5))
    Y = X @ rng.standard_normal((5, 2)) + 3 + 0.1 * rng.standard_normal((500, 2))
    tasks = [Task("t", X[p], Y[p], X[:50], Y[:50], None) for p in np.split(np.arange(500), 5)]
    learner = recipe("analytic", features="raw", loss="l2")
    record = run(tasks, learner)
    assert record.metric == "r2"
    assert_allclose(learner.predict(X), Ridge(1e-3).fit(X, Y).predict(X), atol=0.02)
    one = recipe("analytic", features="random", width=50, loss="l2")
    one.fit_task(Task("t", X, Y[:, 0], X, Y[:, 0], None))
    assert one.predict(X).shape == (500,)
    assert one.score(X, Y[:, 0]) > 0.95


@pytest.mark.parametrize(
    "settings", [{}, {"classifier": "ridge"}, {"features": "random", "width": 200}]
)
def test_class_incremental_digits(settings):
    settings = settings if "features" in settings else DIGITS | settings
    record = run(digits(), recipe("analytic", **settings))
    assert record.accuracy[-1].mean() > 0.93
    assert (record.stored_examples == 0).all()
    assert (record.memory_rows == 0).all()
    assert (np.diff(record.stored_bytes) == 0).all()


def test_bytes_are_those_of_the_file(tmp_path):
    learner = recipe("analytic", **DIGITS)
    record = run(digits(), learner, checkpoint=tmp_path)
    size = (tmp_path / "after-0005" / "learner" / "net.safetensors").stat().st_size
    assert abs(size - record.stored_bytes[-1]) < 2_000  # the header


def test_classes_nobody_named_and_words_as_labels():
    tasks = [
        dataclasses.replace(t, y=np.array([f"d{k}" for k in t.y]), classes=None)
        for t in reversed(list(digits()))
    ]
    learner = recipe("analytic", **DIGITS)
    for task in tasks:
        learner.fit_task(task)
    assert sorted(learner.classes) == [f"d{k}" for k in range(10)]
    assert np.mean([learner.score(t.X, t.y) for t in tasks]) > 0.93


def test_a_class_never_seen_is_never_answered():
    for classifier in ("ridge", "discriminant"):
        learner = recipe("analytic", classifier=classifier, **DIGITS).start(range(10))
        task = digits()[0]
        learner.fit_task(task)
        assert set(learner.predict(joined(digits()).X)) == set(task.classes)


def test_a_run_that_was_cut_off_ends_with_the_same_bytes(tmp_path):
    class StopError(Exception):
        pass

    def stop(i, record):
        if i == 2:
            raise StopError

    settings = DIGITS | {"mirrored": True}
    whole = run(digits(), recipe("analytic", **settings), checkpoint=tmp_path / "whole")
    with pytest.raises(StopError):
        run(digits(), recipe("analytic", **settings), checkpoint=tmp_path / "cut", on_task=stop)
    resumed = run(digits(), recipe("analytic", **settings), checkpoint=tmp_path / "cut")
    assert (resumed.accuracy[-1] == whole.accuracy[-1]).all()
    for name in ("net.safetensors", "state.json"):
        a, b = (
            (tmp_path / k / "after-0005" / "learner" / name).read_bytes() for k in ("whole", "cut")
        )
        assert a == b


def test_forgotten_rows_were_never_there():
    tasks = list(digits())
    a, b = (recipe("analytic", ridge=0.01, **DIGITS).start(range(10)) for _ in range(2))
    for task in tasks[:3]:
        a.fit_task(task)
    b.fit_task(tasks[0])
    b.fit_task(tasks[2])
    a.forget(tasks[1].X, tasks[1].y)
    assert a.moments.count == b.moments.count
    assert_allclose(a.moments.scatter, b.moments.scatter, atol=1e-3)
    X = joined(digits()).X_test
    assert (a.predict(X) == b.predict(X)).mean() > 0.98


def test_learners_with_one_map_merge():
    images = joined(digits()).X / 16
    settings = DIGITS | {"features": "patches", "images": images}
    tasks = list(digits())
    a, b, both = (recipe("analytic", ridge=0.01, **settings) for _ in range(3))
    a.fit_task(tasks[0])
    b.fit_task(tasks[1])
    both.fit_task(tasks[0])
    both.fit_task(tasks[1])
    a.merge(b)
    assert (a.classes == both.classes).all()
    assert_allclose(a.moments.cross, both.moments.cross, atol=1e-2)
    other = recipe("analytic", **DIGITS)
    other.fit_task(tasks[1])
    with pytest.raises(InputError, match="other"):
        a.merge(other)


def test_a_half_life_fades_old_tasks():
    tasks = list(digits())
    learner = recipe("analytic", half_life=100, **DIGITS)
    for task in tasks:
        learner.fit_task(task)
    assert learner.moments.weight < 200
    with pytest.raises(InputError, match="half_life"):
        learner.forget(tasks[0].X, tasks[0].y)
    # Told what the rows of the last task weigh by now, it subtracts them.
    ages = np.arange(len(tasks[-1].y))[::-1]
    learner.forget(tasks[-1].X, tasks[-1].y, 0.5 ** (ages / 100))
    assert set(learner.predict(tasks[-1].X)) <= set(np.concatenate([t.y for t in tasks[:-1]]))


def test_mirror_images_are_learned_and_answered():
    task = joined(digits())
    learner = recipe("analytic", mirrored=True, **DIGITS)
    learner.fit_task(task)
    assert learner.moments.count == len(task.y)
    flipped = task.X[..., ::-1].copy()
    assert (learner.predict(task.X) == learner.predict(flipped)).all()
    # What is learned is the mean of both features: forgetting the mirror images leaves nothing.
    learner.forget(flipped, task.y)
    assert learner.moments.count == 0


def test_rows_scored_again_have_their_features_remembered(monkeypatch):
    task = joined(digits())
    learner = recipe("analytic", **DIGITS)
    learner.fit_task(task)
    asked = []
    computed = learner._map.__class__.__call__
    monkeypatch.setattr(
        learner._map.__class__,
        "__call__",
        lambda map_, X: asked.append(len(X)) or computed(map_, X),
    )
    first = learner.score(task.X_test, task.y_test)
    rows = sum(asked)
    assert learner.score(task.X_test.copy(), task.y_test) == first
    assert sum(asked) == rows == len(task.y_test)
    changed = task.X_test.copy()
    changed[:] = 0
    changed[:, 3, 3] = 16
    assert learner.score(changed, task.y_test) != first


def test_a_failed_task_changes_nothing():
    tasks = list(digits())
    learner = recipe("analytic", **DIGITS)
    learner.fit_task(tasks[0])
    before = learner.predict(tasks[0].X)
    with pytest.raises(DataError, match="X"):
        learner.fit_task(dataclasses.replace(tasks[1], X=tasks[1].X[:, :5]))
    with pytest.raises(DataError, match="y"):
        learner.fit_task(dataclasses.replace(tasks[1], y=tasks[1].y[:-1]))
    assert learner.tasks == 1
    assert (learner.predict(tasks[0].X) == before).all()


def test_it_stands_beside_learners_with_nets():
    learner = recipe("analytic", net="resnet18", lr=0.1, augment="flip", momentum=0.9, **DIGITS)
    assert json.loads(json.dumps(learner.config)) == learner.config
    assert learner.config["learner"]["centres"] == 20


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"centers": 3}, "centers"),
        ({"ridge": -1}, "ridge"),
        ({"classifier": "svm"}, "classifier"),
        ({"loss": "l1"}, "loss"),
        ({"features": "random", "centres": 5}, "centres"),
        ({"half_life": 0}, "half_life"),
        ({"size": 100}, "size"),
    ],
)
def test_wrong_settings_are_named(settings, name):
    with pytest.raises(InputError, match=name):
        recipe("analytic", **settings)


def test_nothing_learned_is_said(tmp_path):
    learner = recipe("analytic").start()
    with pytest.raises(InputError, match="fit_task"):
        learner.predict(np.zeros((2, 8, 8)))
    with pytest.raises(InputError, match="fit_task"):
        learner.save(tmp_path)


def gratings(n, shape, seed=0):
    """Return noisy stripes in four directions, of any phase, contrast and brightness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    height, width = shape[-2:]
    i, j = np.mgrid[:height, :width] * (8 * np.pi / min(height, width))
    angle = y[:, None, None] * np.pi / 4
    wave = np.sin(np.cos(angle) * i + np.sin(angle) * j + rng.uniform(0, 6, (n, 1, 1)))
    wave = wave * rng.uniform(0.3, 1, (n, 1, 1)) + rng.uniform(-1, 1, (n, 1, 1))
    wave = wave if len(shape) == 2 else np.repeat(wave[:, None], shape[0], axis=1)
    return (wave + 0.3 * rng.standard_normal((n, *shape))).astype(np.float32), y


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28), (3, 40, 64), (3, 96, 96), (4, 20, 20)])
@pytest.mark.parametrize("layers", [1, 2])
def test_images_of_any_size_and_channels_do_with_the_defaults(shape, layers):
    X, y = gratings(240, shape)
    learner = recipe("analytic", centres=16, layers=layers, threads=1)
    for k in range(4):
        learner.fit_task(
            Task("a direction", X[:160][y[:160] == k], y[:160][y[:160] == k], X, y, None)
        )
    assert learner.score(X[160:], y[160:]) > 0.9


def test_a_first_task_of_fifty_rows_is_enough_for_a_dictionary():
    tasks = list(digits())
    few = dataclasses.replace(tasks[0], X=tasks[0].X[:50], y=tasks[0].y[:50])
    rest = dataclasses.replace(tasks[0], X=tasks[0].X[50:], y=tasks[0].y[50:])
    learner = recipe("analytic", **DIGITS)
    for task in (few, rest, *tasks[1:]):
        learner.fit_task(task)
    whole = run(digits(), recipe("analytic", **DIGITS)).accuracy[-1].mean()
    assert np.mean([learner.score(t.X_test, t.y_test) for t in tasks]) > whole - 0.03


def test_a_first_task_unlike_the_rest_does_little_harm():
    tasks = list(digits())
    noise = np.random.default_rng(0).uniform(0, 16, (300, 8, 8)).astype(tasks[0].X.dtype)
    strange = dataclasses.replace(tasks[0], X=noise, y=np.full(300, 10), classes=None)
    learner = recipe("analytic", **DIGITS)
    for task in (strange, *tasks):
        learner.fit_task(task)
    assert np.mean([learner.score(t.X_test, t.y_test) for t in tasks]) > 0.9


def test_thousands_of_classes():
    rng = np.random.default_rng(0)
    centres = 5 * rng.standard_normal((2_000, 30))
    learner = recipe("analytic", features="raw", ridge=1e-3)
    for part in np.array_split(np.arange(2_000), 4):
        y = np.repeat(part, 3)
        X = centres[y] + rng.standard_normal((len(y), 30))
        learner.fit_task(Task("500 classes", X, y, X, y, None))
    held = centres + rng.standard_normal(centres.shape)
    assert learner.score(held, np.arange(2_000)) > 0.97
