"""Data sets and streams of tasks."""

from olss.streams.arrays import from_arrays
from olss.streams.datasets import Dataset, load_dataset
from olss.streams.incremental import incremental
from olss.streams.permuted import permuted
from olss.streams.rotated import rotated
from olss.streams.stream import Stream
from olss.streams.task import Task

__all__ = [
    "Dataset",
    "Stream",
    "Task",
    "from_arrays",
    "incremental",
    "load_dataset",
    "permuted",
    "rotated",
]
