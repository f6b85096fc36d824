import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.errors import InputError
from olss.learn.buffers import (
    Buffer,
    FullBuffer,
    HerdingBuffer,
    PolicyBuffer,
    ReplayStrategy,
    RingBuffer,
    TrainingSet,
    herd,
    mix_counts,
)
from olss.learn.training import Batch, Seeds, as_tensor

CPU = torch.device("cpu")

BUFFERS = [
    PolicyBuffer(size=30, policy="reservoir"),
    HerdingBuffer(30),
    RingBuffer(10),
    FullBuffer(),
]


def examples(rows, task=0, start=0, classes=(0, 1), seed=0):
    rng = np.random.default_rng([seed, task])
    return Batch(
        X=as_tensor(rng.standard_normal((rows, 6)).astype(np.float32)),
        y=as_tensor(rng.choice(classes, rows)),
        task=torch.full((rows,), task),
        index=torch.arange(start, start + rows),
    )


def identity(X, kind="penultimate"):
    return torch.as_tensor(X)


def filled(memory, sizes=(50, 50, 50), classes=None):
    memory.start(Seeds(0), CPU)
    start = 0
    for task, rows in enumerate(sizes):
        new = examples(rows, task, start, classes[task] if classes else (0, 1))
        memory.update(new, task, identity)
        start += rows
    return memory


def test_nothing_is_remembered_by_default():
    assert filled(Buffer()).held is None
    assert filled(Buffer()).count_by_task(3) == [0, 0, 0]


def test_everything_is_everything():
    held = filled(FullBuffer()).held
    assert held.index.tolist() == list(range(150))
    assert held.task.tolist() == [0] * 50 + [1] * 50 + [2] * 50


def test_a_ring_holds_so_many_of_each_task_once_and_all_of_a_small_one():
    memory = filled(RingBuffer(gem_rows=20), sizes=(50, 7, 50))
    assert memory.count_by_task(3) == [20, 7, 20]
    assert len(set(memory.held.index.tolist())) == 47
    torch.testing.assert_close(memory.held.X[20:27].sum(), examples(7, 1).X.sum())


def test_a_ring_takes_all_classes_of_rows_sorted_by_class():
    memory = RingBuffer(gem_rows=40)
    memory.start(Seeds(0), CPU)
    new = examples(400, classes=(0, 1, 2, 3))
    memory.update(new.take(new.y.argsort()), 0, identity)
    assert torch.bincount(memory.held.y).min() > 0


def test_herding_against_its_definition():
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)).double()
    phi = features / features.norm(dim=1, keepdim=True)
    mean, chosen = phi.mean(0), []
    for k in range(1, 11):
        best, least = None, np.inf
        for i in set(range(30)) - set(chosen):
            gap = (mean - (phi[i] + phi[chosen].sum(0)) / k).norm().item()
            if gap < least:
                best, least = i, gap
        chosen.append(best)
    assert herd(features, 10).tolist() == chosen
    assert sorted(herd(features, 99).tolist()) == list(range(30))


def test_exemplars_never_exceed_the_budget_and_share_it_by_class():
    memory = HerdingBuffer(size=50)
    memory.start(Seeds(0), CPU)
    for task in range(5):
        classes = (2 * task, 2 * task + 1)
        memory.update(examples(100, task, 100 * task, classes), task, identity)
        counts = torch.bincount(memory.held.y)
        assert len(memory.held) <= 50
        assert counts.tolist() == [50 // (2 * task + 2)] * (2 * task + 2)


def test_fewer_exemplars_of_an_old_class_are_a_prefix_in_herding_order():
    memory = HerdingBuffer(size=40)
    memory.start(Seeds(0), CPU)
    memory.update(examples(100, 0, 0, (0, 1)), 0, identity)
    before = memory.held.index[memory.held.y == 0].tolist()
    new = examples(100, 0, 0, (0, 1))
    rows = (new.y == 0).nonzero().flatten()
    assert before == rows[herd(new.X[rows], 20)].tolist()
    memory.update(examples(100, 1, 100, (2, 3)), 1, identity)
    assert memory.held.index[memory.held.y == 0].tolist() == before[:10]


def test_exemplars_need_a_row_for_each_class():
    with pytest.raises(InputError, match="size must be"):
        HerdingBuffer(size=3).check(4)


@pytest.mark.parametrize("policy", ["paper", "weighted", "reservoir"])
def test_a_sketch_is_a_memory(policy):
    memory = filled(PolicyBuffer(size=40, policy=policy), sizes=(100, 100, 100))
    assert sum(memory.count_by_task(3)) == len(memory.held) == 40
    whole = torch.cat([examples(100, task).X for task in range(3)])
    assert torch.equal(whole[memory.held.index], memory.held.X)
    assert torch.equal(memory.held.index // 100, memory.held.task)


def test_the_size_of_the_task_is_a_size():
    assert len(filled(PolicyBuffer(size="task"), sizes=(100, 30)).held) == 30


@pytest.mark.parametrize("memory", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_stored_outputs_stay_with_their_rows_and_new_rows_get_their_own(memory):
    memory.start(Seeds(0), CPU)
    for task in range(4):
        memory.update(examples(60, task, 60 * task), task, identity)
        memory.store_outputs(lambda X, mark=task: torch.cat([X[:, :2], 0 * X[:, :1] + mark], 1))
        held = memory.held
        assert torch.equal(held.outputs[:, :2], held.X[:, :2])
        assert torch.equal(held.outputs[:, 2].long(), held.task)
    assert len(held.task.unique()) > 1


@pytest.mark.parametrize("memory", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_a_memory_goes_on_from_disk_as_if_nothing_happened(memory, tmp_path):
    memory = filled(memory, sizes=(50, 50))
    memory.store_outputs(lambda X: X[:, :2].clone())
    memory.save(tmp_path)
    memory.update(examples(50, 2, 100), 2, identity)
    expected = memory.held
    memory.start(Seeds(0), CPU)
    memory.load(tmp_path)
    memory.update(examples(50, 2, 100), 2, identity)
    assert memory.held.columns().keys() == expected.columns().keys()
    for name, column in expected.columns().items():
        assert torch.equal(memory.held.columns()[name].nan_to_num(), column.nan_to_num())


@pytest.mark.parametrize("memory", [PolicyBuffer(size=30), RingBuffer(10), FullBuffer()])
def test_a_snapshot_undoes_taking_in(memory):
    memory = filled(memory, sizes=(50,))
    before = {name: column.clone() for name, column in memory.held.columns().items()}
    snapshot = memory.snapshot()
    memory.update(examples(50, 1, 50), 1, identity)
    assert memory.held.index.max() >= 50
    memory.restore(snapshot)
    assert memory.held.columns().keys() == before.keys()
    for name, column in before.items():
        assert torch.equal(memory.held.columns()[name], column)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RingBuffer(0), "gem_rows must be"),
        (lambda: HerdingBuffer(2.5), "size must be"),
        (lambda: PolicyBuffer(size=-1), "size must be"),
        (lambda: PolicyBuffer(policy="papper"), "policy must be one of"),
        (lambda: PolicyBuffer(features="last"), "features"),
    ],
)
def test_bad_settings_are_refused_at_once(make, message):
    with pytest.raises(InputError, match=message):
        make()


def numbered(rows, task, weight=None):
    index = torch.arange(rows) + 1000 * task
    return Batch(index[:, None].float(), index, torch.full((rows,), task), index, weight)


@given(
    size=st.integers(1, 50),
    share=st.floats(0.01, 1),
    current=st.integers(1, 60),
    past=st.integers(0, 60),
)
def test_a_mix_has_its_size_wherever_there_are_rows(size, share, current, past):
    own, remembered = mix_counts(size, share, current, past)
    assert 0 <= own <= current
    assert 0 <= remembered <= past
    assert own + remembered == min(size, current + past)
    if current >= size <= past:
        assert own == round(share * size)


def rng():
    return np.random.default_rng(0)


def trained_on(regime, current, held, size, **settings):
    return ReplayStrategy(regime, **settings).training_set(current, held, size, 10, rng()).rows


def test_a_mix_has_its_share_of_the_current_task_and_no_row_twice():
    rows = trained_on("mix", numbered(100, 1), numbered(100, 0, torch.ones(100)), 40, share=0.25)
    assert torch.bincount(rows.task).tolist() == [30, 10]
    assert len(rows.index.unique()) == 40


def test_a_mix_of_a_task_smaller_than_its_share_is_filled_from_memory():
    rows = trained_on("mix", numbered(5, 1), numbered(100, 0), 40)
    assert torch.bincount(rows.task).tolist() == [35, 5]


def test_a_mix_of_the_tasks_size():
    rows = trained_on("mix", numbered(30, 1), numbered(100, 0), "task")
    assert torch.bincount(rows.task).tolist() == [15, 15]


def test_the_other_regimes():
    current, held = numbered(4, 1), numbered(6, 0)

    def made(regime, held, **settings):
        found = ReplayStrategy(regime, **settings).training_set(current, held, 9, 2, rng())
        return found.rows, found.replay, found.replayed

    assert made("task", held) == (current, None, None)
    assert made("sketch", held) == (held, None, None)
    assert made("replay", held) == (current, held, None)
    assert made("replay", held, replay_rows=5) == (current, held, 5)
    assert made("replay", None) == (current, None, None)
    union, _, _ = made("union", held)
    assert union.index.tolist() == current.index.tolist() + held.index.tolist()


def test_the_memory_takes_a_task_in_before_or_after_it_is_trained_on():
    assert ReplayStrategy("sketch").updates_buffer_first
    assert not ReplayStrategy("replay").updates_buffer_first
    assert ReplayStrategy("replay", take_in="before").updates_buffer_first


@pytest.mark.parametrize(("replay_rows", "expected"), [(None, [4, 4, 2]), (3, [3, 3, 3])])
def test_a_step_has_as_many_replayed_rows_as_asked_for(replay_rows, expected):
    training = TrainingSet(numbered(10, 1), 4, numbered(6, 0), replay_rows)
    steps = list(training.batches(2, rng()))
    assert [replayed for _, replayed in steps] == expected * 2
    for batch, replayed in steps:
        assert (batch.task[len(batch) - replayed :] == 0).all()
        assert (batch.task[: len(batch) - replayed] == 1).all()
    own = torch.cat([batch.index[batch.task == 1] for batch, _ in steps[:3]])
    assert sorted(own.tolist()) == list(range(1000, 1010))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regime": "mixed"}, "regime: there is no 'mixed'. Did you mean 'mix'"),
        ({"regime": "union", "take_in": "before"}, "take_in='before'"),
        ({"regime": "mix", "replay_rows": 3}, "replay_rows .*'mix'"),
        ({"regime": "replay", "replay_rows": 0}, "replay_rows must be"),
        ({"share": 0}, "share must be a number above 0 and at most 1, found 0"),
        ({"share": "half"}, "share must be a number .* found 'half'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        ReplayStrategy(**settings)
