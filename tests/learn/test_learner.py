import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from olss.errors import DamagedCheckpointError, DataError, FormatError, InputError
from olss.learn import DivergedError, recipe, run
from olss.learn.buffers import batch_bounds
from olss.learn.losses import Loss
from olss.memory.policies import Choice

from .tasks import Tiny, blobs, class_stream, examples, numbers, step_loss, stream


def make(name="sgd", **settings):
    return recipe(name, **{"net": "mlp-16", "batch": 20, "lr": 0.1} | settings)


class Recorded(Loss):
    """Cross-entropy that records the batches of all steps."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __call__(self, model, outputs, batch, replayed):
        self.seen.append((batch, replayed))
        return super().__call__(model, outputs, batch, replayed)


def weights(learner):
    return learner.model.params.theta.clone()


def test_a_users_own_loop():
    learner = make("olss", epochs=10)
    tasks = stream(3)
    for task in tasks:
        learner.fit_task(task)
    for task in tasks:
        assert (learner.predict(task.X_test) == task.y_test).mean() > 0.7


def test_sgd_is_a_plain_pytorch_loop():
    learner = make(epochs=2)
    task = blobs()
    learner.start(range(3))
    examples(learner, task)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    net.load_state_dict(
        {
            k: v.clone()
            for k, v in zip(net.state_dict(), learner.model.net.state_dict().values(), strict=True)
        }
    )
    learner.fit_task(task)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    rng = learner.model.seeds.rng("order", 0)
    for _ in range(2):
        order = rng.permutation(120)
        for start in range(0, 120, 20):
            rows = order[start : start + 20]
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(
                net(torch.tensor(task.X[rows])), torch.tensor(task.y[rows])
            )
            loss.backward()
            optimiser.step()
    plain = torch.cat([p.detach().flatten() for p in net.parameters()])
    torch.testing.assert_close(learner.model.params.theta, plain, rtol=1e-4, atol=1e-6)


def test_steps_cover_every_row_once_an_epoch():
    assert batch_bounds(100, 30) == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert batch_bounds(61, 30) == [(0, 30), (30, 61)]
    assert batch_bounds(1, 30) == [(0, 1)]
    assert batch_bounds(3, 1) == [(0, 1), (1, 2), (2, 3)]
    assert make(epochs=3, batch=50).fit_task(blobs()).steps == 9


def test_images_are_divided_by_their_scale_and_left_as_they_are():
    X = np.random.default_rng(0).integers(0, 256, (50, 8), dtype=np.uint8)
    X.flags.writeable = False
    y = np.arange(50) % 2
    bytes_, floats = make(), make()
    bytes_.fit_task(Tiny(X, y, scale=255.0))
    floats.fit_task(Tiny((X / 255).astype(np.float32), y))
    torch.testing.assert_close(weights(bytes_), weights(floats), rtol=1e-4, atol=1e-6)
    scaled = make()
    data = (X * 2.0).astype(np.float32)
    before = data.copy()
    scaled.fit_task(Tiny(data, y, scale=510.0))
    np.testing.assert_array_equal(data, before)
    torch.testing.assert_close(weights(scaled), weights(floats), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("labels", [["cat", "dog", "emu"], [30, 10, 20]])
def test_labels_of_any_kind(labels):
    task = blobs()
    named = dataclasses.replace(task, y=np.array(labels)[task.y], classes=None)
    learner = make(epochs=10)
    learner.fit_task(named)
    answers = learner.predict(task.X_test)
    assert (answers == np.array(labels)[task.y_test]).mean() > 0.7


@pytest.mark.parametrize("loss", ["l1", "l2", "huber"])
@pytest.mark.parametrize("name", ["sgd", "olss", "ewc", "gem", "er", "der++"])
def test_regression(loss, name):
    learner = make(
        name, loss=loss, epochs=20, lr=0.05, **({"size": 60} if name in ("er", "der++") else {})
    )
    tasks = [numbers(0), numbers(1)]
    for task in tasks:
        learner.fit_task(task)
    answers = learner.predict(tasks[1].X_test)
    assert answers.shape == tasks[1].y_test.shape
    residual = ((answers - tasks[1].y_test) ** 2).mean()
    assert residual < 0.2 * tasks[1].y_test.var()


def test_regression_of_several_targets():
    task = numbers()
    wide = dataclasses.replace(task, y=np.stack([task.y, -task.y], 1))
    learner = make(loss="l2", epochs=20)
    learner.fit_task(wide)
    assert learner.predict(task.X_test).shape == (50, 2)


class Own(nn.Module):
    """Normalisation, dropout, and more outputs than classes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 5)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("name", ["sgd", "ewc", "gem", "si", "der++", "icarl", "olss"])
def test_any_module_works_and_gives_the_same_twice(name):
    size = {"size": 60} if name in ("der++", "icarl") else {}
    found = []
    for _ in range(2):
        learner = make(name, net=Own, batch=17, **size)
        for task in stream(2):
            learner.fit_task(task)
        assert set(learner.predict(task.X_test)) <= {0, 1, 2}
        found.append(weights(learner))
        torch.rand(3)  # the global generator must not matter
    assert torch.equal(*found)


def test_predicting_twice_gives_the_same_and_changes_nothing():
    learner = make(net=Own)
    task = blobs()
    learner.fit_task(task)
    state = {name: value.clone() for name, value in learner.model.net.state_dict().items()}
    first, second = learner.predict(task.X_test), learner.predict(task.X_test)
    np.testing.assert_array_equal(first, second)
    assert all(torch.equal(state[k], v) for k, v in learner.model.net.state_dict().items())


def test_replay_is_not_silently_off():
    # With the current task's labels constant, only replayed rows can teach the old classes.
    first, second = class_stream(2)
    off, on = make("sgd", epochs=5), make("er", size=80, epochs=5)
    for learner in (off, on):
        learner.start(range(4))
        learner.fit_task(first)
        learner.fit_task(second)
    old = [(learner.predict(first.X_test) == first.y_test).mean() for learner in (off, on)]
    assert old[0] < 0.2 < 0.6 < old[1]


def test_a_replayed_batch_has_as_many_rows_again():
    learner = make("er", size=80, loss=Recorded)
    for task in stream(2):
        learner.fit_task(task)
    sizes = [(len(batch), replayed) for batch, replayed in learner.parts.loss.seen]
    assert sizes == [(20, 0)] * 6 + [(40, 20)] * 6


def test_replay_is_the_mean_over_current_and_remembered_rows():
    learner = make("er", size=80)
    first, second = stream(2)
    learner.fit_task(first)
    current, _ = examples(learner, second)
    batch = current.take(torch.arange(20)).join(learner.buffer.held.take(torch.arange(20)))
    expected = nn.functional.cross_entropy(learner.model.net(batch.X), batch.y)
    torch.testing.assert_close(step_loss(learner, batch, 20), expected)


def test_weights_count_in_the_loss_only_when_asked():
    plain, weighted = (
        make("olss", size=50, policy="weighted", weighted_loss=w) for w in (False, True)
    )
    for learner in (plain, weighted):
        for task in stream(3):
            learner.fit_task(task)
    held = weighted.buffer.held
    assert held.weight.std() > 0
    rows = nn.functional.cross_entropy(weighted.model.net(held.X), held.y, reduction="none")
    torch.testing.assert_close(
        step_loss(weighted, held), (rows * held.weight).sum() / held.weight.sum()
    )
    held = plain.buffer.held
    rows = nn.functional.cross_entropy(plain.model.net(held.X), held.y, reduction="none")
    torch.testing.assert_close(step_loss(plain, held), rows.mean())


def test_scores_may_be_of_what_the_net_sees():
    learner = make("olss", size=60, policy="weighted", features="penultimate")
    plain = make("olss", size=60, policy="weighted")
    for task in stream(3):
        learner.fit_task(task)
        plain.fit_task(task)
    assert len(learner.buffer.held) == 60
    assert set(learner.buffer.held.index.tolist()) != set(plain.buffer.held.index.tolist())


def test_a_finish_goes_over_the_memory_at_a_part_of_the_rate():
    plain, finished = (make("er", size=60, finish_epochs=e, finish_rate=0.1) for e in (0, 2))
    task = blobs()
    efforts = [learner.fit_task(task) for learner in (plain, finished)]
    assert [(e.steps, e.row_passes) for e in efforts] == [(6, 120), (6 + 6, 120 + 120)]
    # By hand: two epochs of the 60 rows held, at a tenth of the rate.
    held, rng = plain.buffer.held, plain.model.seeds.rng("order", 0)
    rng.permutation(120)  # the task's own epoch
    optimiser = torch.optim.SGD(plain.model.net.parameters(), lr=0.01)
    for _ in range(2):
        for rows in torch.from_numpy(rng.permutation(60)).split(20):
            optimiser.zero_grad(set_to_none=False)
            outputs = plain.model.net(held.X[rows])
            nn.functional.cross_entropy(outputs, held.y[rows]).backward()
            optimiser.step()
    torch.testing.assert_close(weights(finished), weights(plain), rtol=1e-4, atol=1e-6)


def test_a_finish_with_er_ace_has_all_classes_compete():
    learner = make("er-ace", size=60, finish_epochs=1)
    run(class_stream(), learner)
    loss, head, held = learner.parts.loss, learner.model.mask, learner.buffer.held
    z = torch.randn(len(held), learner.model.out)
    plain = nn.functional.cross_entropy(head.apply(z, None), held.y)
    assert loss(learner.model, z, held, 0).item() == pytest.approx(plain.item(), rel=1e-6)


def test_a_memory_that_takes_the_task_in_first_replays_its_rows_too():
    learner = make("er", size=60, take_in="before", replay_rows=30, loss=Recorded)
    for task in stream(2):
        learner.fit_task(task)
    seen = learner.parts.loss.seen
    assert {(len(rows), replayed) for rows, replayed in seen} == {(50, 30)}
    replayed_tasks = torch.cat([rows.task[-30:] for rows, _ in seen[6:]])
    assert set(replayed_tasks.tolist()) == {0, 1}


def test_gdumb_starts_from_the_first_weights_for_every_task():
    learner = make("gdumb", size=60, policy="reservoir")
    tasks = stream(3)
    for task in tasks:
        learner.fit_task(task)
    rows = learner.buffer.held
    fresh = make("sgd")
    fresh.start(range(3))
    fresh.model.tasks = 2
    fresh.fit_task(Tiny(rows.X.numpy(), rows.y.numpy(), classes=range(3)))
    assert torch.equal(weights(fresh), weights(learner))


def test_the_task_head_needs_the_task_and_answers_within_it():
    learner = make(head="task")
    tasks = class_stream(2)
    learner.start(range(4))
    for task in tasks:
        learner.fit_task(task)
    assert set(learner.predict(tasks[0].X_test, task=0)) <= {0, 1}
    with pytest.raises(InputError, match="task is required"):
        learner.predict(tasks[0].X_test)
    for task in (2, -1, "a", 0.5):
        with pytest.raises(InputError, match="task must be an integer from 0 to 1, found"):
            learner.predict(tasks[0].X_test, task=task)


@pytest.mark.parametrize("name", ["sgd", "olss", "ewc", "er", "icarl"])
def test_a_loss_that_is_no_number_stops_with_a_hint_and_leaves_the_learner_as_it_was(name):
    learner = make(name, **({"size": 60} if name in ("er", "icarl", "olss") else {}))
    first, second = stream(2)
    learner.fit_task(first)
    before, table = weights(learner), learner.model.mask.table.clone()
    held = None if learner.buffer.held is None else learner.buffer.held.index.clone()
    bad = dataclasses.replace(second, X=second.X * 1e30)
    with pytest.raises(DivergedError, match=r"task 2 at step \d+.*lr=0\.1"):
        learner.fit_task(bad)
    assert torch.equal(weights(learner), before)
    assert torch.equal(learner.model.mask.table, table)
    assert learner.model.tasks == 1
    if held is not None:
        assert torch.equal(learner.buffer.held.index, held)
    again = make(name, **({"size": 60} if name in ("er", "icarl", "olss") else {}))
    again.fit_task(first)
    again.fit_task(second)
    learner.fit_task(second)
    assert torch.equal(weights(learner), weights(again))


@pytest.mark.parametrize(
    ("settings", "last_step"),
    [
        (
            {"name": "olss+ewc", "regime": "replay"},
            lambda learner: learner.parts.regularizers[0].end_task,
        ),
        ({"name": "ewc+si+er"}, lambda learner: learner.parts.regularizers[1].end_task),
        ({"name": "der++"}, lambda learner: learner.buffer.store_outputs),
    ],
)
def test_stopped_at_the_very_end_of_a_task_the_learner_is_as_it_was(
    settings, last_step, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    learner, again = make(**settings, size=60), make(**settings, size=60)
    first, second = stream(2)
    learner.fit_task(first)
    again.fit_task(first)
    method = last_step(learner)
    with monkeypatch.context() as patch:
        patch.setattr(method.__self__, method.__name__, interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.fit_task(second)
    for one in (learner, again):
        one.fit_task(second)
    assert torch.equal(weights(learner), weights(again))
    assert torch.equal(learner.buffer.held.index, again.buffer.held.index)
    for mine, other in zip(learner.parts.regularizers, again.parts.regularizers, strict=True):
        assert all(torch.equal(mine.state[name], other.state[name]) for name in other.state)


def spoiled(**changes):
    return dataclasses.replace(blobs(), **changes)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (spoiled(y=np.full(120, 7)), "label 7, "),
        (spoiled(y=np.zeros(5)), "y must have the same number of rows.* 120 "),
        (spoiled(X=np.empty((0, 8)), y=np.empty(0)), "y must have .* at least one"),
        (spoiled(X=np.full((120, 8), np.nan)), "X holds NaN"),
        (spoiled(X=np.zeros((120, 9), np.float32)), r"shape \(9,\).*\(8,\)"),
        (spoiled(scale=255.0), "scale 255"),
        (spoiled(y=np.linspace(0, 1, 120)), "loss='l2'"),
        (spoiled(X=np.full((120, 8), "a")), "X must be an array of numbers"),
        (spoiled(X=np.full((120, 8), None)), "X must be an array of numbers"),
        (spoiled(X=np.zeros(120)), r"X must have rows and columns, found shape \(120,\)"),
        (spoiled(y=None), "y must have the same number of rows"),
        (spoiled(y=[None, *"ab" * 59, "a"]), "y holds labels that cannot be sorted"),
    ],
)
def test_data_that_do_not_fit_are_refused_and_change_nothing(task, message):
    learner = make("olss")
    learner.fit_task(blobs())
    before = weights(learner)
    with pytest.raises(DataError, match=message):
        learner.fit_task(task)
    assert torch.equal(weights(learner), before)
    assert learner.model.tasks == 1


def test_first_labels_that_cannot_be_sorted_are_refused():
    task = spoiled(y=[None, *"ab" * 59, "a"], classes=None)
    for learn in (make().fit_task, lambda task: run([task], make())):
        with pytest.raises(DataError, match="y holds labels that cannot be sorted"):
            learn(task)
    with pytest.raises(DataError, match="y must hold numbers"):
        make(loss="l2").fit_task(spoiled(y=["a"] * 120))


def test_a_failed_first_task_does_not_decide_the_classes():
    learner = make(lr=1e30)
    with pytest.raises(DivergedError):
        learner.fit_task(dataclasses.replace(blobs(classes=2), classes=None))
    learner.fit_task(dataclasses.replace(blobs(rows=20), X=np.zeros((20, 8), "f4"), classes=None))
    assert len(learner.model.labels) == 3


def test_questions_that_do_not_fit_are_refused():
    learner = make()
    learner.fit_task(blobs())
    with pytest.raises(DataError, match="X must be an array of numbers"):
        learner.predict([["a"] * 8])
    with pytest.raises(DataError, match="X holds NaN or infinite values"):
        learner.predict(np.full((2, 8), np.nan))
    with pytest.raises(DataError, match=r"X must hold rows of shape \(8,\).* found \(2, 4\)"):
        learner.predict(np.zeros((2, 2, 4)))


def test_what_is_not_a_task_is_refused():
    task, learner = blobs(), make()
    with pytest.raises(InputError, match=r"task must have X, y, .* found a tuple without X, y"):
        learner.fit_task((task.X, task.y))
    with pytest.raises(InputError, match="learned nothing yet"):
        learner.predict(task.X)


@pytest.mark.parametrize(
    ("value", "found"), [(1.0, "found 1.0"), (torch.ones(3), r"found shape \(3,\)")]
)
def test_a_custom_loss_returns_one_number(value, found):
    class Wrong(Loss):
        def __call__(self, *args):
            return value

    with pytest.raises(InputError, match=f"loss must return a tensor with one number.*{found}"):
        make(loss=Wrong).fit_task(blobs())


@pytest.mark.parametrize(("name", "y"), [("cross-entropy", [1]), ("l2", [0.5]), ("l2", [0.5] * 50)])
def test_scores_are_of_a_target_for_each_row(name, y):
    task, learner = blobs(test=50), make(loss=name)
    numbers = np.random.default_rng(0).random((120, 2))
    learner.fit_task(task if name != "l2" else dataclasses.replace(task, y=numbers, classes=None))
    with pytest.raises(DataError, match="for each of the 50 rows of X, found shape"):
        learner.score(task.X_test, np.array(y))  # one would be held against all


def test_a_net_with_too_few_outputs_is_refused():
    with pytest.raises(InputError, match=r"net .*3 numbers.*found shape \(2,\)"):
        make(net=nn.Linear(8, 2)).fit_task(blobs())
    with pytest.raises(InputError, match=r"net .*3 numbers.*found a tuple"):
        make(net=nn.LSTM(8, 3)).fit_task(blobs())


def test_a_memory_too_small_for_the_classes_is_refused_before_training():
    with pytest.raises(InputError, match="size must be"):
        make("icarl", size=2).fit_task(blobs())


def test_predicting_before_learning_is_refused():
    with pytest.raises(InputError, match="learned nothing yet"):
        make().predict(np.zeros((1, 8)))
    with pytest.raises(InputError, match="learned nothing yet"):
        make().save("nowhere")


@pytest.mark.parametrize("name", ["sgd", "ewc", "si", "gem", "icarl", "der++", "olss+ewc", "joint"])
def test_a_saved_learner_goes_on_in_a_new_process(name, tmp_path):
    size = {"size": 60} if name in ("der++", "icarl", "olss+ewc") else {}
    learner = make(name, net=Own, **size)
    tasks = stream(3)
    learner.fit_task(tasks[0])
    learner.fit_task(tasks[1])
    learner.save(tmp_path / "state")
    learner.save(tmp_path / "state")  # again, over the old one
    other = make(name, net=Own, **size).load(tmp_path / "state")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state"]
    for one in (learner, other):
        one.fit_task(tasks[2])
    assert torch.equal(weights(learner), weights(other))
    np.testing.assert_array_equal(learner.predict(tasks[0].X_test), other.predict(tasks[0].X_test))


def test_a_saved_learner_goes_on_with_a_policy_of_ones_own(tmp_path):
    def first_rows(pool, rng):
        return Choice(np.arange(pool.size))

    learner = make("olss", policy=first_rows, size=60)
    tasks = stream(3)
    learner.fit_task(tasks[0])
    learner.save(tmp_path / "state")
    other = make("olss", policy=first_rows, size=60).load(tmp_path / "state")
    for one in (learner, other):
        one.fit_task(tasks[1])
    assert torch.equal(weights(learner), weights(other))


def test_saving_deletes_no_file_but_those_of_a_learner_saved_before(tmp_path):
    learner = make()
    learner.fit_task(blobs())
    (tmp_path / "empty").mkdir()
    learner.save(tmp_path / "empty")
    learner.save(tmp_path / "empty")
    for name in ("thesis/chapter/one.tex", "empty/notes.txt", "plain"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        with pytest.raises(InputError, match=f"{path.name} would be lost"):
            learner.save(tmp_path / name.partition("/")[0])
        assert path.read_text() == "mine"


def test_a_state_of_another_learner_or_a_damaged_one_is_refused(tmp_path):
    learner = make()
    learner.fit_task(blobs())
    learner.save(tmp_path / "state")
    differs = r"holds a different learner: training\.lr is 0\.1 there and 0\.2 now"
    with pytest.raises(InputError, match=differs):
        make(lr=0.2).load(tmp_path / "state")
    assert (
        recipe("sgd", name="another", net="mlp-16", batch=20, lr=0.1).load(tmp_path / "state").name
        == "another"
    )
    with pytest.raises(FormatError, match=r"state\.json is missing"):
        make().load(tmp_path / "none")
    path = tmp_path / "state" / "net.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DamagedCheckpointError, match=r"net\.safetensors is not as it was written"):
        make().load(tmp_path / "state")
    path.unlink()
    with pytest.raises(DamagedCheckpointError, match=r"net\.safetensors is missing"):
        make().load(tmp_path / "state")


class Viewing(nn.Module):
    """The textbook's way to flatten, which wants its inputs as they are in memory."""

    def __init__(self):
        super().__init__()
        self.maps, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 2)

    def forward(self, x):
        return self.out(torch.relu(self.maps(x)).view(x.size(0), -1))


def test_nets_of_ones_own_get_images_as_they_are_in_memory():
    rng = np.random.default_rng(0)
    images = Tiny(rng.random((40, 3, 8, 8), np.float32), rng.integers(2, size=40))
    learner = recipe("er", net=Viewing, size=20, batch=10)
    for _ in range(2):
        learner.fit_task(images)
    assert learner.predict(images.X).shape == (40,)


def test_distillation_beside_er_ace_counts_as_asked():
    """The labels' two means count 1 each, and distillation alpha, in a mean of all."""
    learner = recipe("er-ace+der++", net="mlp-16", batch=20, size=40, alpha=0.5)
    loss, penalty = learner.parts.loss, learner.parts.regularizers[0]
    assert (loss.weight(20), penalty.weight) == (1.0, 0.5)
