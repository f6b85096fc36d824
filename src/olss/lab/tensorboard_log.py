"""The scores of runs for TensorBoard, while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olss.errors import InputError
from olss.lab.executor import Event

__all__ = ["TensorBoardLog"]


class TensorBoardLog:
    """Scalars in each run's own folder: ``tensorboard --logdir runs``.

    Each task of each run is logged once; after a resumption, those before it first.

    Parameters
    ----------
    root : Path
        Folder of results.
    """

    def __init__(self, root: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("--tensorboard needs tensorboard: pip install tensorboard") from error
        self._writer, self.root = SummaryWriter, root
        self._writers: dict[Path, Any] = {}
        self._logged: dict[Path, int] = {}

    def __call__(self, event: Event) -> None:
        """Log what an event tells of tasks not logged yet: the average and each task's score."""
        record, folder = event.record, event.spec.folder
        if record is None or event.kind not in ("task", "done"):
            return
        if folder not in self._writers:
            self._writers[folder] = self._writer(str(self.root / folder))
        writer = self._writers[folder]
        for after in range(self._logged.get(folder, 0), len(record.tasks)):
            average = float(record.average_accuracy[after])
            writer.add_scalar(f"average {record.metric}", average, after + 1)
            for number, score in enumerate(record.accuracy[after, : after + 1], start=1):
                writer.add_scalar(f"task {number}", float(score), after + 1)
        writer.flush()
        self._logged[folder] = len(record.tasks)
        if event.kind == "done":
            self._writers.pop(folder).close()
