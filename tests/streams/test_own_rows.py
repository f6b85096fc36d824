import numpy as np
import pytest

from olss.errors import DataError
from olss.streams.own_rows import LabelCodes, TaskRows, own_stream, target_kind

OPTIONS = {"test": 0.2, "kind": "auto", "pad": False, "scale": None, "seed": 0}


def test_labels_of_all_tasks_are_numbered_together() -> None:
    labels = LabelCodes.of([np.array(["b", "c"]), np.array(["aa", "b"])])
    assert labels.names == ("aa", "b", "c")
    assert labels.encode(np.array(["c", "aa", "b"])).tolist() == [2, 0, 1]


def test_whole_numbers_stay() -> None:
    labels = LabelCodes.of([np.array([7, 3], np.uint8), np.array([3, 9])])
    assert (labels.classes, labels.names) == ((3, 7, 9), None)
    assert labels.encode(np.array([9, 3])).tolist() == [9, 3]


def test_labels_of_2_to_the_63_and_more_do_not_wrap() -> None:
    y = np.array([2**63 + 1, 3, 2**64 - 1], np.uint64)
    labels = LabelCodes.of([y, np.array([3])])
    assert labels.names == ("3", "9223372036854775809", "18446744073709551615")
    assert labels.encode(y).tolist() == [1, 0, 2]


def test_large_labels_of_several_kinds_keep_all_their_digits() -> None:
    labels = LabelCodes.of([np.array([2**53 + 1], np.uint64), np.array([2**53])])
    assert labels.classes == (2**53, 2**53 + 1)


def test_a_label_nobody_saw_is_an_error() -> None:
    labels = LabelCodes.of([np.array([7, 3])])
    with pytest.raises(DataError, match=r"Oslo has the label 5, .* data have changed"):
        labels.encode(np.array([3, 5]), "Oslo")


@pytest.mark.parametrize(
    ("targets", "kind"),
    [
        ([np.arange(3)], "classes"),
        ([np.array(["a"])], "classes"),
        ([np.arange(3), np.arange(3.0)], "values"),
        ([np.zeros((3, 2), int)], "values"),
    ],
)
def test_kind_of_target(targets: list[np.ndarray], kind: str) -> None:
    assert target_kind("auto", targets) == kind


def test_tasks_are_loaded_when_asked_for() -> None:
    X, y = np.zeros((10, 2), np.float32), np.arange(10) % 2
    loaded: list[int] = []

    def load(number: int) -> TaskRows:
        loaded.append(number)
        return TaskRows(X + number, y)

    config = {"name": "test", **OPTIONS, "scale": 1.0}
    stream = own_stream(load, ["a", "b"], config, [(2,), (2,)], [y, y])
    assert loaded == []
    assert stream[1].X[0, 0] == 1
    assert loaded == [1]


def test_no_task_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="there are no rows"):
        own_stream(lambda number: None, [], OPTIONS, [], [])  # type: ignore[arg-type, return-value]
