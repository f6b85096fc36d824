"""Logging to the experiment trackers people already use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from olss.errors import InputError
from olss.lab.executor import Event
from olss.lab.experiment import Experiment
from olss.streams.record import Record

__all__ = ["MLflowTracker", "TensorBoardTracker"]


def scores(record: Record, after: int) -> Iterator[tuple[str, float]]:
    """Return what is logged after a task: the average, and the score on each task so far."""
    yield f"average {record.metric}", float(record.average_accuracy[after])
    for number in range(after + 1):
        yield f"task {number + 1}", float(record.accuracy[after, number])


class _Tracker:
    """Logs each task of each run once; after a resumption, those before it first."""

    def __init__(self) -> None:
        self._logged: dict[Path, int] = {}

    def __call__(self, event: Event) -> None:
        if event.record is None or event.kind not in ("task", "done"):
            return
        known = self._logged.get(event.spec.folder, 0)
        for after in range(known, len(event.record.tasks)):
            self.log(event, after, dict(scores(event.record, after)))
        self._logged[event.spec.folder] = len(event.record.tasks)
        if event.kind == "done":
            self.end(event)

    def log(self, event: Event, after: int, values: dict[str, float]) -> None:
        """Log the scores after a task."""
        raise NotImplementedError

    def end(self, event: Event) -> None:
        """Close what was opened for a run."""
        raise NotImplementedError


class TensorBoardTracker(_Tracker):
    """Scalars in each run's own folder: ``tensorboard --logdir runs``.

    Parameters
    ----------
    root : Path
        Folder of results.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("--tensorboard needs tensorboard: pip install tensorboard") from error
        self._writer, self.root = SummaryWriter, root
        self._writers: dict[Path, Any] = {}

    def log(self, event: Event, after: int, values: dict[str, float]) -> None:
        """Write the scores after a task."""
        folder = event.spec.folder
        if folder not in self._writers:
            self._writers[folder] = self._writer(str(self.root / folder))
        for name, value in values.items():
            self._writers[folder].add_scalar(name, value, after + 1)
        self._writers[folder].flush()

    def end(self, event: Event) -> None:
        """Close the file of a run."""
        self._writers.pop(event.spec.folder).close()


class MLflowTracker(_Tracker):
    """A run of MLflow for each run, where ``MLFLOW_TRACKING_URI`` says.

    Parameters
    ----------
    experiment : Experiment
        Its name is that of the experiment in MLflow.
    """

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        try:
            import mlflow
        except ImportError as error:
            raise InputError("--mlflow needs mlflow: pip install mlflow") from error
        self._client = mlflow.MlflowClient()
        self._experiment = mlflow.set_experiment(experiment.name).experiment_id
        self._runs: dict[Path, str] = {}

    def log(self, event: Event, after: int, values: dict[str, float]) -> None:
        """Send the scores after a task."""
        spec = event.spec
        if spec.folder not in self._runs:
            name = f"{spec.label}, seed {spec.seed}"
            made = self._client.create_run(self._experiment, run_name=name)
            self._runs[spec.folder] = made.info.run_id
            for key, value in {"recipe": spec.recipe, "seed": spec.seed, **spec.settings}.items():
                self._client.log_param(made.info.run_id, key, value)
        for metric, value in values.items():
            self._client.log_metric(self._runs[spec.folder], metric, value, step=after + 1)

    def end(self, event: Event) -> None:
        """Tell MLflow that the run is finished."""
        self._client.set_terminated(self._runs.pop(event.spec.folder))
