import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.errors import InputError
from olss.learn.batch import Examples
from olss.learn.regimes import Regime, mix_counts


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


def test_a_mix_has_its_share_of_the_current_task_and_no_row_twice():
    rows, replay = Regime("mix", share=0.25).rows(
        examples(100, 1), examples(100, 0, torch.ones(100)), 40, rng()
    )
    assert replay is None
    assert torch.bincount(rows.task).tolist() == [30, 10]
    assert len(rows.index.unique()) == 40


def test_a_mix_of_a_task_smaller_than_its_share_is_filled_from_memory():
    rows, _ = Regime("mix").rows(examples(5, 1), examples(100, 0), 40, rng())
    assert torch.bincount(rows.task).tolist() == [35, 5]


def test_a_mix_of_the_tasks_size():
    rows, _ = Regime("mix").rows(examples(30, 1), examples(100, 0), "task", rng())
    assert torch.bincount(rows.task).tolist() == [15, 15]


def test_the_other_regimes():
    current, held = examples(4, 1), examples(6, 0)
    assert Regime("task").rows(current, held, 9, rng()) == (current, None)
    assert Regime("sketch").rows(current, held, 9, rng()) == (held, None)
    assert Regime("replay").rows(current, held, 9, rng()) == (current, held)
    assert Regime("replay").rows(current, None, 9, rng()) == (current, None)
    union, _ = Regime("union").rows(current, held, 9, rng())
    assert union.index.tolist() == current.index.tolist() + held.index.tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regime": "mixed"}, "regime must be one of"),
        ({"share": 0}, "share must be above 0 and at most 1, found 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        Regime(**settings)
