import dataclasses
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from olss.errors import DamagedCheckpointError, DataError, InputError, OlssWarning
from olss.learn import DivergedError, Record, recipe, run
from olss.learn.heads import Head
from olss.streams import label_noise, permuted

from .tasks import blobs, class_stream, examples, numbers, stream

RECIPES = ["sgd", "ewc", "online-ewc", "si", "gem", "a-gem", "icarl", "er", "der++", "gdumb"]
RECIPES += ["joint", "olss", "olss+ewc", "olss+si", "olss+gem", "olss+der++"]


def make(name="olss", **settings):
    sized = "size" in recipe(name).config["learner"] and "size" not in settings
    defaults = {"net": "mlp-16", "batch": 20, "lr": 0.05} | ({"size": 60} if sized else {})
    return recipe(name, **defaults | settings)


def text(record):
    return json.dumps(record.content(), sort_keys=True)


def test_a_record_holds_every_task_after_every_task():
    tasks, learner = stream(3), make("sgd", epochs=3)
    seen = []

    def check(i, record):
        seen.append(i)
        for j, task in enumerate(tasks[: i + 1]):
            accuracy = (learner.predict(task.X_test) == task.y_test).mean()
            assert record.accuracy[i, j] == pytest.approx(accuracy)

    record = run(tasks, learner, seed=1, on_task=check)
    assert seen == [0, 1, 2]
    assert np.isnan(record.accuracy[np.triu_indices(3, 1)]).all()
    assert record.tasks == ["t0", "t1", "t2"]
    assert record.steps.tolist() == [18, 18, 18]
    assert record.stored_examples.tolist() == [0, 0, 0]
    assert record.seed == 1
    assert record.metric == "accuracy"
    assert record.protocol == "all classes seen so far compete"
    assert record.config["learner"] == {"recipe": "sgd"}
    assert set(record.versions) == {"olss", "python", "numpy", "scipy", "torch"}
    assert record.peak_memory > 10_000_000
    assert all((values > 0).all() for values in record.task_seconds.values())


def test_what_is_stored_is_counted():
    record = run(stream(3), make("olss", policy="reservoir"), seed=0)
    assert record.memory_rows.sum(1).tolist() == [60, 60, 60]
    assert (record.memory_rows[2] > 0).all()
    assert record.memory_rows[0].tolist() == [60, 0, 0]
    # Eight float32 columns, label, task, index and a float32 weight.
    assert record.stored_bytes.tolist() == [60 * (8 * 4 + 3 * 8 + 4)] * 3
    ewc = run(stream(2), make("ewc"), seed=0)
    assert ewc.stored_bytes.tolist() == [2 * 4 * (8 * 16 + 16 + 16 * 3 + 3)] * 2


def test_scores_before_learning_are_of_the_net_then_and_of_the_first_weights():
    tasks = class_stream(3)
    first = make("sgd").start(range(6), seed=4)
    examples(first, tasks[0])
    learner = make("sgd", epochs=3)
    record = run(tasks, learner, seed=4)
    for i, task in enumerate(tasks):
        outputs = first.model.outputs(first.model.tensor(task.X_test))[:, : 2 * i + 2]
        expected = (outputs.argmax(1).numpy() == task.y_test).mean()
        assert record.initial[i] == pytest.approx(expected)
    assert record.ahead[0] == record.initial[0]
    assert not np.array_equal(record.ahead, record.initial)


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_seed_gives_the_same_record_and_another_another(name):
    torch.manual_seed(5)
    first = run(stream(3), make(name), seed=3)
    torch.manual_seed(6)
    np.random.seed(1)  # noqa: NPY002
    learner = make(name)
    learner.fit_task(blobs(task=7))  # what it learned before does not matter
    state = torch.random.get_rng_state()
    second = run(stream(3), learner, seed=3)
    assert torch.equal(state, torch.random.get_rng_state())
    assert text(first) == text(second)
    third = run(stream(3), make(name), seed=4)
    assert not np.array_equal(first.initial, third.initial)


def test_the_seed_is_that_of_weights_and_order_and_each_has_its_own():
    a, b = (make("sgd", net="mlp-16", epochs=e) for e in (1, 2))
    for learner in (a, b):
        learner.start(range(3), seed=0)
        examples(learner, blobs())
    assert torch.equal(a.model.first["theta"], b.model.first["theta"])
    other = make("sgd").start(range(3), seed=1)
    examples(other, blobs())
    assert not torch.equal(a.model.first["theta"], other.model.first["theta"])
    # More epochs draw more orders, and move neither the weights nor the next task's order.
    first = a.model.seeds.rng("order", 1).permutation(9)
    np.testing.assert_array_equal(b.model.seeds.rng("order", 1).permutation(9), first)


@pytest.mark.parametrize("name", ["sgd", "olss", "gem"])
def test_with_threads_set_the_record_does_not_depend_on_those_of_the_process(name):
    size = {"size": 300} if name == "olss" else {}
    tasks = stream(2, rows=400, width=300, classes=10)
    texts = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            learner = make(name, net="mlp-400-400", batch=100, threads=1, **size)
            texts.append(text(run(tasks, learner)) + str(learner.model.params.theta.tolist()))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("given", "expected"), [(None, 2), (1, 1)])
def test_as_many_threads_compute_as_torch_has_been_given_unless_told(given, expected):
    before, seen = torch.get_num_threads(), []
    try:
        torch.set_num_threads(2)
        tasks = stream(1)
        learner = make("sgd", **({} if given is None else {"threads": given}))
        record = run(tasks, learner, on_task=lambda *_: seen.append(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert seen == [expected]
    assert record.config["training"]["threads"] == expected


class StopError(Exception):
    pass


def stop_after(task):
    def on_task(i, record):
        if i == task:
            raise StopError

    return on_task


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_that_was_stopped_goes_on_and_ends_byte_identical(name, tmp_path):
    whole = run(stream(4), make(name), seed=2, protocol="p")
    whole.save(tmp_path / "whole")
    for stop in (0, 2):
        with pytest.raises(StopError):
            run(
                stream(4),
                make(name),
                seed=2,
                protocol="p",
                checkpoint=tmp_path / "state",
                on_task=stop_after(stop),
            )
    (tmp_path / "state" / "after-0009.123.part").mkdir()  # left by a kill while writing
    trained = []
    record = run(
        stream(4),
        make(name),
        seed=2,
        protocol="p",
        checkpoint=tmp_path / "state",
        on_task=lambda i, _: trained.append(i),
    )
    assert trained == [3]
    record.save(tmp_path / "again")
    one, two = ((tmp_path / d / "record.json").read_bytes() for d in ("whole", "again"))
    assert one == two
    assert (record.task_seconds["train"] > 0).all()
    done = run(stream(4), make(name), seed=2, protocol="p", checkpoint=tmp_path / "state")
    assert text(done) == text(whole)


@pytest.mark.parametrize(
    "settings",
    [
        {"features": "penultimate"},
        {"policy": "balanced"},
        {"regime": "mix"},
        {"regime": "replay", "policy": "balanced"},
    ],
)
def test_memories_of_every_kind_go_on_from_a_checkpoint(settings, tmp_path):
    settings = {"policy": "weighted"} | settings
    with pytest.raises(StopError):
        run(stream(3), make(**settings), checkpoint=tmp_path, on_task=stop_after(1))
    record = run(stream(3), make(**settings), checkpoint=tmp_path)
    assert text(record) == text(run(stream(3), make(**settings)))


class NewestHead(Head):
    """Only the classes of the newest task score."""

    def fit(self, model, held):
        self.newest = model.mask.table[-1].clone()

    def __call__(self, model, X, task):
        return model.outputs(X).masked_fill(~self.newest, -torch.inf)


@pytest.mark.parametrize("head", [NewestHead, "product"])
def test_scores_ahead_are_the_same_after_a_stop(head, tmp_path):
    # Classes that come back: a head fitted late is fitted to other "new" classes.
    first, second, third = class_stream(3)
    tasks = [first, second, first, third]
    settings = {"head": head, "epochs": 3, "size": 40}
    whole = run(tasks, make("er", **settings))
    with pytest.raises(StopError):
        run(tasks, make("er", **settings), checkpoint=tmp_path, on_task=stop_after(1))
    assert text(run(tasks, make("er", **settings), checkpoint=tmp_path)) == text(whole)


KILLED = """
import os, signal, sys
from olss.learn import recipe, run
from olss.streams import label_noise, permuted
def on_task(i, record):
    if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
learner = recipe("olss+ewc", net="mlp-16", batch=50, size=200, threads=1)
run(permuted("digits", tasks=3, train_rows=300), learner, checkpoint=sys.argv[1], on_task=on_task)
"""


def test_a_killed_process_goes_on_to_the_same_record(tmp_path):
    process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    records, trained = [], []
    for checkpoint in (tmp_path, None):
        records.append(
            run(
                permuted("digits", tasks=3, train_rows=300),
                recipe("olss+ewc", net="mlp-16", batch=50, size=200, threads=1),
                checkpoint=checkpoint,
                on_task=lambda i, _: trained.append(i),
            )
        )
    assert trained == [2, 0, 1, 2]
    assert text(records[0]) == text(records[1])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    run(stream(2), make("sgd"), checkpoint=tmp_path)
    for learner, seed in ((make("sgd", lr=0.2), 0), (make("sgd"), 1)):
        differs = r"another run: (config\.training\.lr is 0\.05 .* 0\.2|seed is 0 there and 1) now"
        with pytest.raises(InputError, match=differs):
            run(stream(2), learner, seed, checkpoint=tmp_path)


def test_lists_of_tasks_are_told_apart_by_their_data(tmp_path):
    tasks = stream(2)
    config = run(tasks, make("sgd"), checkpoint=tmp_path).config["stream"]
    assert config["name"] == "list"
    assert config["tasks"] == 2
    tensors = [
        dataclasses.replace(task, X=torch.tensor(task.X), y=list(task.y)) for task in stream(2)
    ]
    assert run(tensors, make("sgd"), checkpoint=tmp_path).config["stream"] == config
    words = [
        dataclasses.replace(t, y=t.y.astype(str).astype(object), classes=None) for t in stream(1)
    ]
    words[0].y_test = words[0].y_test.astype(str)
    assert run(words, make("sgd")).config["stream"]["tasks"] == 1
    for other in (stream(3), stream(2, seed=1), tasks[::-1]):
        with pytest.raises(InputError, match="belongs to another run"):
            run(other, make("sgd"), checkpoint=tmp_path)


def finished(folder, **settings):
    """Make a checkpointed run with every kind of file in its states; return its text."""
    learner = make("olss+der++", policy="reservoir", **settings)
    return text(run(stream(3), learner, checkpoint=folder))


def test_a_damaged_state_is_left_for_the_one_before_it(tmp_path):
    whole = finished(tmp_path)
    files = sorted(p for p in (tmp_path / "after-0003").rglob("*") if p.is_file())
    assert {path.suffix for path in files} == {".json", ".safetensors", ".parquet"}
    for path in files:
        good = path.read_bytes()
        spoiled = bytearray(good)
        spoiled[len(good) // 2] ^= 4
        for bad in (bytes(spoiled), good[: len(good) // 2], None):
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)
            with pytest.warns(OlssWarning, match="after-0003.* Resuming from the task before"):
                assert finished(tmp_path) == whole  # and the state after task 3 is new
            assert path.read_bytes() == good or path.name in ("timing.json", "checksums.json")


def test_who_listens_is_told_of_a_damaged_state_instead(tmp_path):
    tasks, notes = stream(2), []
    run(tasks, make("sgd"), checkpoint=tmp_path)
    (tmp_path / "after-0002" / "record.json").unlink()
    run(tasks, make("sgd"), checkpoint=tmp_path, warn=notes.append)
    assert len(notes) == 1
    assert "record.json is missing. Resuming from the task before" in notes[0]


def test_where_no_state_is_whole_the_run_says_so(tmp_path):
    finished(tmp_path)
    for folder in tmp_path.glob("after-*"):
        (folder / "learner" / "state.json").unlink()
    with (
        pytest.warns(OlssWarning, match="Resuming from the task before"),
        pytest.raises(DamagedCheckpointError, match=r"learner/state\.json is missing"),
    ):
        finished(tmp_path)


def test_a_diverged_run_keeps_the_state_before(tmp_path):
    tasks = stream(3)
    tasks[1].X = tasks[1].X * 1e30
    with pytest.raises(DivergedError, match="task 2"):
        run(tasks, make("sgd"), checkpoint=tmp_path)
    assert Record.load(tmp_path / "after-0001").accuracy.shape == (1, 1)


def test_regression_is_scored_by_r_squared():
    tasks, learner = [numbers(0), numbers(1)], make("olss", loss="l2", epochs=20)
    record = run(tasks, learner, seed=0)
    assert record.metric == "r2"
    y, answers = tasks[1].y_test, learner.predict(tasks[1].X_test)
    expected = 1 - ((y - answers) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert record.accuracy[1, 1] == pytest.approx(expected, rel=1e-4)
    assert record.average_accuracy[-1] > 0.7


@pytest.mark.parametrize("rows", [1, 5])
def test_r_squared_of_equal_targets_is_not_known(rows, tmp_path):
    tasks = [numbers(task) for task in range(2)]
    tasks[0].X_test = tasks[0].X_test[:rows]
    tasks[0].y_test = np.full(rows, 0.1)
    record = run(tasks, make("sgd", loss="l2"), checkpoint=tmp_path)
    assert np.isnan(record.accuracy[:, 0]).all()
    assert np.isfinite(record.accuracy[1, 1])
    record.save(tmp_path / "done")
    assert text(Record.load(tmp_path / "done")) == text(record)


def test_any_iterable_of_tasks_is_a_stream():
    def endless():
        yield from stream(2)

    assert run(endless(), make("sgd")).accuracy.shape == (2, 2)
    with pytest.raises(InputError, match="no task"):
        run([], make("sgd"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda tasks, learner: (learner, tasks), "learner must be .*found a list"),
        (lambda tasks, learner: (tasks, "er"), r"recipe\('er'\); found 'er'"),
        (lambda tasks, learner: (tasks, [learner]), "learner must be one learner"),
        (lambda tasks, learner: ("permuted", learner), "stream must be .* found 'permuted'"),
        (lambda tasks, learner: (3, learner), "stream must be .* found 3"),
        (lambda tasks, learner: ([(t.X, t.y) for t in tasks], learner), "task must have X, y, X_t"),
        (lambda tasks, learner: (tasks, learner, 0, "nowhere"), "device must be .* 'nowhere'"),
    ],
)
def test_wrong_arguments_are_named_and_leave_the_learner_alone(arguments, message):
    tasks, learner = stream(2), make("sgd")
    run(tasks, learner)
    given = arguments(tasks, learner)
    with pytest.raises(InputError, match=message):
        run(*given[:3], device=given[3]) if len(given) == 4 else run(*given)
    assert learner.tasks == 2


@pytest.mark.parametrize("kind", [iter, list])
def test_labels_are_those_of_training_and_test_rows(kind):
    task = blobs()
    few = task.y_test < 2
    fewer_in_test = dataclasses.replace(
        task, X_test=task.X_test[few], y_test=task.y_test[few], classes=None
    )
    more_in_test = dataclasses.replace(
        task, X=task.X[task.y < 2], y=task.y[task.y < 2], classes=None
    )
    for odd in (fewer_in_test, more_in_test):
        learner = make("sgd")
        assert run(kind([odd, odd]), learner).accuracy.shape == (2, 2)
        assert learner.model.labels.classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(InputError, match="seed must be"):
        run(stream(1), make("sgd"), seed)


def test_the_record_counts_remembered_rows_that_were_disturbed(tmp_path):
    noisy = label_noise(permuted("digits", tasks=3, train_rows=100, test_rows=20), share=0.3)
    flags = np.concatenate([task.disturbed for task in noisy])
    learner = recipe("olss", net="mlp-16", size=60, policy="reservoir", batch=20)
    with pytest.raises(StopError):
        run(noisy, learner, checkpoint=tmp_path, on_task=stop_after(1))
    record = run(noisy, learner, checkpoint=tmp_path)  # goes on after the second task
    held = learner.buffer.held
    assert held is not None
    assert record.disturbed_rows[-1] == flags[held.index.numpy()].sum() > 0
    assert run(noisy, recipe("sgd", net="mlp-16")).disturbed_rows.tolist() == [0, 0, 0]


def test_text_and_numbers_as_labels_of_one_stream_are_refused():
    tasks = stream(2)
    tasks[1].y, tasks[1].y_test = tasks[1].y.astype(str), tasks[1].y_test.astype(str)
    with pytest.raises(DataError, match="y holds strings in some tasks and numbers"):
        run(tasks, recipe("sgd", net="mlp-8"))
