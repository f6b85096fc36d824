"""A data set with its inputs in another order in each task."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

from olss.streams.dataset_tasks import (
    DatasetTasks,
    dataset_config,
    dataset_of,
    task_count,
    with_rows,
)
from olss.streams.datasets import Dataset
from olss.streams.stream import Stream
from olss.streams.stream_draws import task_generator
from olss.util import checks

__all__ = ["permuted"]


def permuted(
    dataset: str | Dataset = "mnist",
    *,
    tasks: int = 20,
    permute_first: bool = True,
    train_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
) -> Stream:
    """Return tasks of one data set with the inputs in another, fixed order each.

    Training and test rows of a task have the same permutation. Permuted MNIST of Lopez-Paz
    and Ranzato (2017) is ``permuted("mnist", train_rows=1000)``.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or rows of your own. All numbers of a row are permuted
        among each other: pixels, and channels if there are some.
    tasks : int
        How many.
    permute_first : bool
        Whether task 1 is permuted as well. True by default, as in GEM; False leaves it as
        it is, as in EWC (Kirkpatrick et al. 2017).
    train_rows, test_rows : int, optional
        Rows of each task, drawn anew for each; all rows by default.
    seed : int
        Seed of permutations and rows.

    Examples
    --------
    >>> first, second = permuted("digits", tasks=2)
    >>> bool((first.X[0] == second.X[0]).all())
    False
    >>> sorted(first.X[0].ravel()) == sorted(second.X[0].ravel())
    True
    """
    data = dataset_of(dataset)
    config = {
        "name": "permuted",
        "dataset": dataset_config(data, dataset),
        "tasks": task_count(tasks),
        "permute_first": bool(permute_first),
    }
    names = [f"permutation {number}" for number in range(1, tasks + 1)]
    if not permute_first:
        names[0] = "as it is"
    transform = partial(_permute, checks.seed(seed), config["permute_first"])
    return DatasetTasks(
        data, with_rows(config, train_rows, test_rows, seed), names, transform
    ).stream()


def _permute(seed: int, permute_first: bool, number: int, X: NDArray[Any]) -> NDArray[Any]:
    if number == 0 and not permute_first:
        return X
    order = task_generator(seed, "permutation", number).permutation(X[0].size)
    return X.reshape(len(X), -1).take(order, axis=1).reshape(X.shape)
