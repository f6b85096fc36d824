"""Data sets and streams of tasks."""

from olss.streams.datasets import Dataset, load_dataset
from olss.streams.disturb import (
    imbalanced,
    interleaved,
    label_noise,
    outliers,
    returning,
    unequal,
)
from olss.streams.download import fetch, list_datasets
from olss.streams.from_arrays import from_arrays
from olss.streams.from_files import from_files
from olss.streams.incremental import incremental
from olss.streams.permuted import permuted
from olss.streams.rotated import rotated
from olss.streams.stream import Stream
from olss.streams.stream_config import from_config
from olss.streams.task import Task

__all__ = [
    "Dataset",
    "Stream",
    "Task",
    "fetch",
    "from_arrays",
    "from_config",
    "from_files",
    "imbalanced",
    "incremental",
    "interleaved",
    "label_noise",
    "list_datasets",
    "load_dataset",
    "outliers",
    "permuted",
    "returning",
    "rotated",
    "unequal",
]
