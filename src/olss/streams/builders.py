"""Streams made of one data set: permuted, rotated, or class-incremental."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError
from olss.streams.datasets import Dataset, load_dataset
from olss.streams.stream import Stream, Task, sample_rows, sample_stratified, task_generator
from olss.util import checks

__all__ = ["incremental", "permuted", "rotate", "rotated"]

Array = NDArray[Any]
Order = str | Sequence[int] | Sequence[Sequence[int]]

MAX_TASKS = 1_000_000  # each task has a name
# A fraction of a pixel is held in this many bits. Two of them and eight bits of grey fit
# into 32, so the sum is exact in integers: the same bytes on every machine and thread count.
BITS = 11
# Images transposed at a time: 128 x 784 numbers of four bytes stay in the processor's cache.
BLOCK_NUMBERS = 100_000


def permuted(
    dataset: str | Dataset = "mnist",
    *,
    tasks: int = 20,
    permute_first: bool = True,
    train_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
) -> Stream:
    """Return tasks of one data set, the inputs of each in another fixed order.

    Training and test rows of a task have the same permutation. Permuted MNIST of Lopez-Paz
    and Ranzato (2017) is ``permuted("mnist", train_rows=1000)``.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or your own rows. All numbers of a row are permuted, across
        channels if there are several.
    tasks : int
        Number of tasks.
    permute_first : bool
        Permute task 1 as well, as in GEM; False leaves it as it is, as in EWC (Kirkpatrick et al.
        2017).
    train_rows, test_rows : int, optional
        Rows of each task, sampled anew for each; all rows by default. Test rows are stratified by
        class.
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
    data, permute_first = _load(dataset), bool(permute_first)
    tasks = _check_tasks(tasks)
    names = [f"permutation {number}" for number in range(1, tasks + 1)]
    if not permute_first:
        names[0] = "as it is"
    options = {"name": "permuted", "dataset": _describe(dataset), "tasks": tasks}
    config = _add_rows_and_seed(
        options | {"permute_first": permute_first}, train_rows, test_rows, seed
    )
    transform = partial(_permute, config["seed"], permute_first)
    return _DatasetTasks(data, config, names, transform).stream()


def _permute(seed: int, permute_first: bool, number: int, X: Array) -> Array:
    if number == 0 and not permute_first:
        return X
    order = task_generator(seed, "permutation", number).permutation(X[0].size)
    return X.reshape(len(X), -1).take(order, axis=1).reshape(X.shape)


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
    """Return tasks of one data set, each rotated by a fixed angle from 0 to 180 degrees.

    Rotated MNIST of Lopez-Paz and Ranzato (2017) is
    ``rotated("mnist", angles="bins", resample="nearest", train_rows=1000)``.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or your own images.
    tasks : int
        Number of tasks.
    angles : {"even", "bins", "random"} or sequence of float
        "even": equally spaced from 0 to 180, both included. "bins": one uniform angle from each of
        `tasks` equal bins. "random": uniform from all 180 degrees, so that neighbours may be far
        apart (Buzzega et al. 2020). Or the angles in degrees, counter-clockwise.
    resample : {"bilinear", "nearest"}
        How to read between pixels; see `rotate`.
    train_rows, test_rows : int, optional
        As in `permuted`.
    seed : int
        Seed of angles and rows.

    Examples
    --------
    >>> stream = rotated("digits", tasks=4, angles=[0, 30, 60, 90], train_rows=200)
    >>> stream[3]
    Task('90 degrees', 200 training and 359 test rows of shape (8, 8), 10 classes)
    """
    data = _load(dataset)
    if data.X.ndim < 3:
        raise InputError(f"dataset must hold images, found rows of shape {data.X.shape[1:]}.")
    checks.choice("resample", resample, ("bilinear", "nearest"))
    degrees = _choose_angles(angles, _check_tasks(tasks), checks.seed(seed))
    options = {"name": "rotated", "dataset": _describe(dataset), "tasks": len(degrees)}
    options |= {"angles": angles if isinstance(angles, str) else degrees, "resample": resample}
    config = _add_rows_and_seed(options, train_rows, test_rows, seed)
    names = [f"{angle:.4g} degrees" for angle in degrees]
    return _DatasetTasks(data, config, names, partial(_rotate, degrees, resample)).stream()


def _rotate(degrees: list[float], resample: str, number: int, images: Array) -> Array:
    return rotate(images, degrees[number], resample)


def _choose_angles(angles: str | Sequence[float], tasks: int, seed: int) -> list[float]:
    if isinstance(angles, str):
        checks.choice("angles", angles, ("even", "bins", "random"))
        if angles == "even":
            return [float(angle) for angle in np.linspace(0, 180, tasks)]
        uniform = [task_generator(seed, "angle", number).random() for number in range(tasks)]
        if angles == "random":
            return [180 * u for u in uniform]
        return [180 / tasks * (number + u) for number, u in enumerate(uniform)]
    if not isinstance(angles, Sequence | np.ndarray) or len(angles) != tasks:
        raise InputError(
            f"angles must be 'even', 'bins', 'random' or one number of degrees for each of the "
            f"{tasks} tasks, found {angles!r}."
        )
    return [checks.number("angles", angle) for angle in angles]


def incremental(
    dataset: str | Dataset = "cifar100",
    *,
    tasks: int | None = None,
    order: Order = "seeded",
    train_rows: int | None = None,
    test_rows: int | None = None,
    seed: int = 0,
) -> Stream:
    """Return class-incremental tasks: each brings classes never seen before.

    Labels stay those of the data set. Incremental CIFAR-100 is ``incremental("cifar100")``:
    20 tasks of 5 classes; with ``order="natural"`` the groups are those of GEM.

    Parameters
    ----------
    dataset : str or Dataset
        A name (see `load_dataset`) or your own rows.
    tasks : int, optional
        Number of tasks; must divide the number of classes. By default 20 for 100 classes, and
        two classes per task otherwise.
    order : {"seeded", "natural"}, sequence of int, or sequence of sequences
        Order of the classes: shuffled with the seed, sorted, or as given. A sequence of groups
        sets the classes of each task, any number each.
    train_rows, test_rows : int, optional
        As in `permuted`, from the classes of the task.
    seed : int
        Seed of class order and rows.

    Examples
    --------
    >>> stream = incremental("digits", tasks=5, seed=0)
    >>> [task.classes for task in stream]
    [(3, 4), (1, 5), (6, 7), (2, 9), (0, 8)]
    >>> incremental("digits", order=[[0, 1, 2], [3, 4]]).names
    ('classes 0 1 2', 'classes 3 4')
    """
    data = _load(dataset)
    groups = _group_classes(data.classes, tasks, order, checks.seed(seed))
    options = {"name": "incremental", "dataset": _describe(dataset), "tasks": len(groups)}
    options["order"] = order if isinstance(order, str) else groups
    names = ["classes " + " ".join(map(str, group)) for group in groups]
    config = _add_rows_and_seed(options, train_rows, test_rows, seed)
    return _DatasetTasks(data, config, names, groups=groups).stream()


def _group_classes(
    classes: tuple[int, ...], tasks: int | None, order: Order, seed: int
) -> list[tuple[int, ...]]:
    if isinstance(order, str):
        checks.choice("order", order, ("seeded", "natural"))
        shuffled = task_generator(seed, "class order").permutation(classes).tolist()
        given: list[Any] = shuffled if order == "seeded" else list(classes)
    else:
        given = _check_order(order)
    if isinstance(given[0], Sequence | np.ndarray):
        groups = [_check_order(group) for group in given]
        if tasks is not None and tasks != len(groups):
            raise InputError(f"tasks must be {len(groups)}, the groups in order; found {tasks}.")
    else:
        size = len(given) // _divide_classes(len(given), tasks)
        groups = [given[start : start + size] for start in range(0, len(given), size)]
    result = [tuple(sorted(checks.integer("order", c, minimum=0) for c in g)) for g in groups]
    labels = [label for group in result for label in group]
    if unknown := sorted(set(labels) - set(classes)):
        raise InputError(f"order has class {unknown[0]}, which the data set does not have.")
    if len(set(labels)) < len(labels):
        raise InputError("order must not repeat a class.")
    return result


def _check_order(order: Any) -> list[Any]:
    if isinstance(order, str) or not isinstance(order, Sequence | np.ndarray) or not len(order):
        raise InputError(f"order must hold classes or groups of classes, found {order!r}.")
    return list(order)


def _divide_classes(classes: int, tasks: int | None) -> int:
    if tasks is None:
        tasks = 20 if classes == 100 else max(1, classes // 2)
    if _check_tasks(tasks) > classes or classes % tasks:
        fitting = [n for n in range(1, classes + 1) if classes % n == 0]
        raise InputError(
            f"tasks must divide the {classes} classes evenly ({', '.join(map(str, fitting))}), "
            f"found {tasks}. For groups of different sizes pass order=[[..], [..]]."
        )
    return tasks


def _load(dataset: str | Dataset) -> Dataset:
    return dataset if isinstance(dataset, Dataset) else load_dataset(dataset)


def _describe(dataset: str | Dataset) -> Any:
    if isinstance(dataset, str):
        return dataset
    return {"name": dataset.name, "sha256": dataset.digest()}


def _check_tasks(tasks: Any) -> int:
    return checks.integer("tasks", tasks, maximum=MAX_TASKS)


def _add_rows_and_seed(
    options: dict[str, Any], train_rows: int | None, test_rows: int | None, seed: int
) -> dict[str, Any]:
    """Return the config of a stream: its options, then rows and seed, checked."""
    return {
        **options,
        "train_rows": None if train_rows is None else checks.integer("train_rows", train_rows),
        "test_rows": None if test_rows is None else checks.integer("test_rows", test_rows),
        "seed": checks.seed(seed),
    }


@dataclass(frozen=True, eq=False)
class _DatasetTasks:
    """How tasks are sampled from a data set."""

    data: Dataset
    config: dict[str, Any]  # what the stream is, with the keys "train_rows", "test_rows" and "seed"
    names: list[str]  # name of each task
    # changes the inputs of task i, training and test alike
    transform: Callable[[int, Array], Array] | None = None
    # classes of each task; None for all classes in all tasks
    groups: list[tuple[int, ...]] | None = None

    def stream(self) -> Stream:
        data, classes = self.data, self.data.classes
        if self.groups is not None:
            classes = tuple(sorted(label for group in self.groups for label in group))
        return Stream(
            self.task, self.names, self.config, classes, self.hold_out, data.class_names, data.scale
        )

    def hold_out(self, share: float, seed: int) -> Stream:
        """Return the stream for tuning.

        Rows are held out of the data set, not of each task: otherwise the same image, rotated by
        another nine degrees, would be trained on in the next task.
        """
        config = {**self.config, "validation": {"share": share, "seed": seed}}
        return replace(self, data=self.data.hold_out(share, seed), config=config).stream()

    def task(self, number: int) -> Task:
        data, seed = self.data, self.config["seed"]
        train, test = self._rows_of(data.y, number), self._rows_of(data.y_test, number)
        if size := self._size("train_rows", len(train), number):
            train = sample_rows(train, size, task_generator(seed, "train rows", number))
        if size := self._size("test_rows", len(test), number):
            rng = task_generator(seed, "test rows", number)
            test = sample_stratified(data.y_test[test], test, size, rng)
        X, X_test = data.X[train], data.X_test[test]
        if self.transform is not None:
            X, X_test = self.transform(number, X), self.transform(number, X_test)
        classes = data.classes if self.groups is None else self.groups[number]
        y, y_test = data.y[train], data.y_test[test]
        return Task(self.names[number], X, y, X_test, y_test, classes, data.scale)

    def _rows_of(self, y: Array, number: int) -> NDArray[np.int64]:
        if self.groups is None:
            return np.arange(len(y))
        return np.flatnonzero(np.isin(y, self.groups[number]))

    def _size(self, name: str, present: int, number: int) -> int | None:
        wanted: int | None = self.config[name]
        if wanted is None or wanted <= present:
            return wanted
        if "validation" in self.config:  # held-out rows may be missing
            return present
        raise InputError(
            f"{name} must be at most {present}, the rows of {self.names[number]}; found {wanted}."
        )


def rotate(images: NDArray[Any], degrees: float, resample: str = "bilinear") -> NDArray[Any]:
    """Rotate images counter-clockwise around their centre, as PIL's ``Image.rotate`` does.

    Where a pixel comes from is the same for all images, so a rotation is one sparse matrix
    (pixels x pixels, at most four entries a row) applied to all of them. For ``uint8`` images
    the grey levels differ from PIL's by at most 1 (bilinear), as fractions of a pixel are
    rounded to 1/2048; multiples of 90 degrees of square images are exact.

    Parameters
    ----------
    images : array (..., height, width)
        ``uint8`` or floating point.
    degrees : float
        Angle, counter-clockwise.
    resample : {"bilinear", "nearest"}
        How to read between pixels.

    Returns
    -------
    array of the same shape and type
        Pixels from outside the image are 0.

    Examples
    --------
    >>> image = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=np.uint8)
    >>> rotate(image, 90)
    array([[3, 6, 9],
           [2, 5, 8],
           [1, 4, 7]], dtype=uint8)
    """
    if images.ndim < 2:
        raise DataError(f"images must have a height and a width, found shape {images.shape}.")
    whole = images.dtype == np.uint8
    if not whole and not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"images must be uint8 or floating point, found {images.dtype}.")
    height, width = images.shape[-2:]
    pixels = images.reshape(-1, height * width)
    matrix = _rotation(degrees, height, width, resample)
    if not whole:
        matrix = matrix.astype(images.dtype) / np.asarray(1 << 2 * BITS, images.dtype)
    turned = np.empty_like(pixels)
    block = max(1, BLOCK_NUMBERS // (height * width))
    for start in range(0, len(pixels), block):
        part = np.ascontiguousarray(pixels[start : start + block].T, dtype=matrix.dtype)
        product = matrix @ part
        # PIL cuts fractions of a grey level off, it does not round.
        turned[start : start + block] = (product >> 2 * BITS if whole else product).T
    return turned.reshape(images.shape)


def _rotation(degrees: float, height: int, width: int, resample: str) -> Any:
    """Return the sparse matrix (to, from) with entries in units of 2**-(2 * BITS)."""
    from scipy import sparse  # takes longer to import than all of this package

    radians = -math.radians(degrees % 360)
    # Rounded as in PIL, so that 90 and 180 degrees are exact.
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)
    down, across = np.mgrid[:height, :width] + 0.5
    down, across = down - height / 2, across - width / 2
    x = cosine * across + sine * down + width / 2
    y = cosine * down - sine * across + height / 2
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    if resample == "bilinear":
        x, y = x - 0.5, y - 0.5
    left, top = np.floor(x), np.floor(y)
    one = 1 << BITS
    right_share = np.rint((x - left) * one) if resample == "bilinear" else np.zeros_like(x)
    lower_share = np.rint((y - top) * one) if resample == "bilinear" else np.zeros_like(y)
    columns, entries = [], []
    for row, vertical in ((top, one - lower_share), (top + 1, lower_share)):
        for column, horizontal in ((left, one - right_share), (left + 1, right_share)):
            source = np.clip(row, 0, height - 1) * width + np.clip(column, 0, width - 1)
            columns.append(source.ravel())
            entries.append((vertical * horizontal * inside).ravel())
    targets = np.tile(np.arange(height * width), 4)
    shape = (height * width, height * width)
    places = (targets, np.concatenate(columns).astype(np.int64))
    matrix = sparse.csr_array((np.concatenate(entries).astype(np.int32), places), shape=shape)
    matrix.eliminate_zeros()
    return matrix
