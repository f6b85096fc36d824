"""A data set rotated by another angle in each task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError
from olss.streams.dataset_tasks import (
    DatasetTasks,
    dataset_config,
    dataset_of,
    task_count,
    with_rows,
)
from olss.streams.datasets import Dataset
from olss.streams.image_rotation import rotate
from olss.streams.stream import Stream
from olss.streams.stream_draws import task_generator
from olss.util import checks

__all__ = ["rotated"]


def rotated(
    dataset: str | Dataset = "mnist",
    *,
    tasks: int = 20,
    angles: str | Sequence[float] = "even",
    resample: str = "bilinear",
    train_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
) -> Stream:
    """Return tasks of one data set rotated by a fixed angle each, between 0 and 180 degrees.

    Rotated MNIST of Lopez-Paz and Ranzato (2017) is
    ``rotated("mnist", angles="bins", resample="nearest", train_rows=1000)``.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or images of your own.
    tasks : int
        How many.
    angles : {"even", "bins", "random"} or sequence of float
        "even": equally spaced from 0 to 180, both included. "bins": 180 degrees cut into
        one bin for each task, one uniform draw in each. "random": each drawn from all 180
        degrees, so that neighbours may be far apart (Buzzega et al. 2020). Or the degrees
        themselves, counter-clockwise.
    resample : {"bilinear", "nearest"}
        How to read between pixels; see `olss.streams.image_rotation.rotate`.
    train_rows, test_rows : int, optional
        Rows of each task, drawn anew for each; all rows by default. Test rows are drawn
        with the same share of each class.
    seed : int
        Seed of angles and rows.

    Examples
    --------
    >>> stream = rotated("digits", tasks=4, angles=[0, 30, 60, 90], train_rows=200)
    >>> stream[3]
    Task('90 degrees', 200 training and 359 test rows of shape (8, 8), 10 classes)
    """
    data = dataset_of(dataset)
    if data.X.ndim < 3:
        raise InputError(f"rotated needs images, found rows of shape {data.X.shape[1:]}.")
    checks.known_name("resample", resample, ("bilinear", "nearest"))
    degrees = _degrees(angles, task_count(tasks), checks.seed(seed))
    config = {
        "name": "rotated",
        "dataset": dataset_config(data, dataset),
        "tasks": len(degrees),
        "angles": angles if isinstance(angles, str) else degrees,
        "resample": resample,
    }
    names = [f"{angle:.4g} degrees" for angle in degrees]
    transform = partial(_rotate, degrees, resample)
    return DatasetTasks(
        data, with_rows(config, train_rows, test_rows, seed), names, transform
    ).stream()


def _rotate(degrees: list[float], resample: str, number: int, images: NDArray[Any]) -> NDArray[Any]:
    return rotate(images, degrees[number], resample)


def _degrees(angles: str | Sequence[float], tasks: int, seed: int) -> list[float]:
    if isinstance(angles, str):
        if angles == "even":
            return [float(angle) for angle in np.linspace(0, 180, tasks)]
        draws = [task_generator(seed, "angle", number).random() for number in range(tasks)]
        if angles == "bins":
            return [180 / tasks * (number + part) for number, part in enumerate(draws)]
        if angles == "random":
            return [180 * part for part in draws]
        raise InputError(
            f"angles must be 'even', 'bins', 'random' or a list of degrees, found {angles!r}."
        )
    if not isinstance(angles, Sequence | np.ndarray):
        raise InputError(f"angles must be a list of degrees or a name, found {angles!r}.")
    degrees = [checks.number("angles", angle) for angle in angles]
    if len(degrees) != tasks:
        raise InputError(
            f"angles must hold one number of degrees for each of the {tasks} tasks, "
            f"found {len(degrees)}: {degrees!r}."
        )
    return degrees
