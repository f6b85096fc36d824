from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from olss.errors import InputError
from olss.lab.executor import Event
from olss.lab.trackers import MLflowTracker, TensorBoardTracker
from tests.lab.small import small_experiment, small_spec
from tests.lab.test_progress import record


def test_tensorboard_has_every_task_once_also_after_a_resumption(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec, log = small_spec(), TensorBoardTracker(tmp_path)
    log(Event("start", spec))
    log(Event("task", spec, record(2, 0.25)))  # the first heard of: one task was there before
    log(Event("task", spec, record(3, 0.5)))
    log(Event("done", spec, record(3, 0.5)))
    found = EventAccumulator(str(tmp_path / spec.folder)).Reload()
    average = [(event.step, event.value) for event in found.Scalars("average accuracy")]
    assert average == [(1, 0.25), (2, 0.25), (3, 0.5)]
    assert [event.step for event in found.Scalars("task 3")] == [3]


class FakeClient:
    """The five calls made of MLflow's client, written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.calls.append(("run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_param(self, *args: Any) -> None:
        self.calls.append(("param", *args))

    def log_metric(self, run: str, key: str, value: float, step: int) -> None:
        self.calls.append(("metric", run, key, value, step))

    def set_terminated(self, run: str) -> None:
        self.calls.append(("end", run))


def test_mlflow_gets_a_run_with_settings_and_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    fake = SimpleNamespace(
        MlflowClient=lambda: client,
        set_experiment=lambda name: SimpleNamespace(experiment_id=f"id of {name}"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    spec, log = small_spec(), MLflowTracker(small_experiment())
    log(Event("task", spec, record(1, 0.5)))
    log(Event("done", spec, record(2, 0.25)))
    assert client.calls[0] == ("run", "id of small", "sketch, seed 0")
    assert ("param", "r1", "policy", "reservoir") in client.calls
    metrics = [call[2:] for call in client.calls if call[0] == "metric"]
    assert ("average accuracy", 0.5, 1) in metrics
    assert ("task 2", 0.25, 2) in metrics
    assert client.calls[-1] == ("end", "r1")


@pytest.mark.parametrize("module", ["mlflow", "torch.utils.tensorboard"])
def test_what_is_missing_is_named(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="pip install"):
        MLflowTracker(small_experiment()) if module == "mlflow" else TensorBoardTracker(tmp_path)
