import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.errors import InputError
from olss.learn.replay import ReplayStrategy, TrainingSet, mix_counts
from olss.learn.training import Examples


def examples(rows, task, weight=None):
    index = torch.arange(rows) + 1000 * task
    return Examples(index[:, None].float(), index, torch.full((rows,), task), index, weight)


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
    rows = trained_on("mix", examples(100, 1), examples(100, 0, torch.ones(100)), 40, share=0.25)
    assert torch.bincount(rows.task).tolist() == [30, 10]
    assert len(rows.index.unique()) == 40


def test_a_mix_of_a_task_smaller_than_its_share_is_filled_from_memory():
    rows = trained_on("mix", examples(5, 1), examples(100, 0), 40)
    assert torch.bincount(rows.task).tolist() == [35, 5]


def test_a_mix_of_the_tasks_size():
    rows = trained_on("mix", examples(30, 1), examples(100, 0), "task")
    assert torch.bincount(rows.task).tolist() == [15, 15]


def test_the_other_regimes():
    current, held = examples(4, 1), examples(6, 0)

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
    training = TrainingSet(examples(10, 1), 4, examples(6, 0), replay_rows)
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
