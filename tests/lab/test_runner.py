from __future__ import annotations

import sys
from pathlib import Path

import pytest

from olss.errors import InputError
from olss.lab.executors import Event
from olss.lab.runner import TensorBoardLog
from tests.lab.small import small_spec
from tests.lab.test_progress import record


def test_tensorboard_has_every_task_once_also_after_a_resumption(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec, log = small_spec(), TensorBoardLog(tmp_path)
    log(Event("start", spec))
    log(Event("task", spec, record(2, 0.25)))  # the first heard of: one task was there before
    log(Event("task", spec, record(3, 0.5)))
    log(Event("done", spec, record(3, 0.5)))
    found = EventAccumulator(str(tmp_path / spec.folder)).Reload()
    average = [(event.step, event.value) for event in found.Scalars("average accuracy")]
    assert average == [(1, 0.25), (2, 0.25), (3, 0.5)]
    assert [event.step for event in found.Scalars("task 3")] == [3]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="pip install"):
        TensorBoardLog(tmp_path)
