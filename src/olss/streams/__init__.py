"""Data sets and streams of tasks."""

from olss.streams.builders import incremental, permuted, rotated
from olss.streams.config import from_config
from olss.streams.corruptions import (
    imbalanced,
    interleaved,
    label_noise,
    outliers,
    returning,
    unequal,
)
from olss.streams.datasets import Dataset, load_dataset
from olss.streams.downloads import fetch, list_datasets
from olss.streams.own_data import from_arrays, from_files
from olss.streams.stream import Stream, Task

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
