import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import Dataset, incremental, load_dataset
from tests.streams.conftest import real

DIGITS = load_dataset("digits")


def test_tasks_share_out_the_classes() -> None:
    tasks = list(incremental("digits", tasks=5))
    labels = [label for task in tasks for label in task.classes or ()]
    assert sorted(labels) == list(range(10))
    for task in tasks:
        assert tuple(np.unique(task.y)) == tuple(np.unique(task.y_test)) == task.classes
    assert sum(len(task.X) for task in tasks) == len(DIGITS.X)
    assert sum(len(task.X_test) for task in tasks) == len(DIGITS.X_test)


def test_rows_keep_their_labels() -> None:
    rows = {row.tobytes(): label for row, label in zip(DIGITS.X, DIGITS.y, strict=True)}
    for task in incremental("digits"):
        assert [rows[row.tobytes()] for row in task.X] == task.y.tolist()


def test_orders() -> None:
    seeded = [incremental("digits", seed=seed).names for seed in range(4)]
    assert len(set(seeded)) == 4
    assert incremental("digits", order="natural").names[1] == "classes 2 3"
    given = incremental("digits", order=[9, 0, 5, 1], tasks=2)
    assert given.names == ("classes 0 9", "classes 1 5")
    assert given.classes == (0, 1, 5, 9)
    groups = incremental("digits", order=[[7], [2, 1, 0]])
    assert groups.names == ("classes 7", "classes 0 1 2")


def test_class_order_does_not_depend_on_rows() -> None:
    assert incremental("digits").names == incremental("digits", train_rows=20, test_rows=10).names


def test_test_rows_are_drawn_evenly_from_sorted_files() -> None:
    X = np.arange(600.0)[:, None]
    y = np.repeat(np.arange(6), 100)
    task = incremental(Dataset("sorted", X, y, X, y), tasks=2, test_rows=30, order="natural")[1]
    assert np.bincount(task.y_test).tolist() == [0, 0, 0, 10, 10, 10]
    # No prefix of a class: of its 100 rows, 10 evenly random ones reach past the first 20.
    assert task.X_test.max() >= 520


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 3}, r"divide the 10 classes evenly \(1, 2, 5, 10\), found 3"),
        ({"tasks": 20}, "divide the 10 classes evenly"),
        ({"order": "sorted"}, "order must be 'seeded', 'natural' or a list, found 'sorted'"),
        ({"order": [0, 1, 1, 2]}, "each class at most once"),
        ({"order": [[0], []]}, "no empty group"),
        ({"order": [0, 77]}, "names the class 77, which the data set has not"),
        ({"order": [[0], [1]], "tasks": 3}, "tasks must be 2, the groups in order; found 3"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        incremental("digits", **options)  # type: ignore[arg-type]


@real("cifar-100-binary.tar.xz")
def test_the_papers_incremental_cifar100() -> None:
    stream = incremental("cifar100")
    assert len(stream) == 20
    seen: set[int] = set()
    for task in stream:
        assert (task.X.shape, task.X_test.shape) == ((2500, 3, 32, 32), (500, 3, 32, 32))
        assert task.X.dtype == np.uint8
        assert set(np.bincount(task.y)) == {0, 500}
        assert set(np.bincount(task.y_test)) == {0, 100}
        assert not seen & set(task.classes or ())
        seen |= set(task.classes or ())
    assert seen == set(range(100))
