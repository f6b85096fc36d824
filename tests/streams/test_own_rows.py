import numpy as np
import pytest

from olss.errors import DataError
from olss.streams.own_rows import Labels, Rows, own_stream, target_kind

OPTIONS = {"test": 0.2, "kind": "auto", "pad": False, "scale": None, "seed": 0}


def test_labels_of_all_tasks_are_numbered_together() -> None:
    labels = Labels.of([np.array(["b", "c"]), np.array(["aa", "b"])])
    assert labels.names == ("aa", "b", "c")
    assert labels.encode(np.array(["c", "aa", "b"])).tolist() == [2, 0, 1]


def test_whole_numbers_stay() -> None:
    labels = Labels.of([np.array([7, 3], np.uint8), np.array([3, 9])])
    assert (labels.classes, labels.names) == ((3, 7, 9), None)
    assert labels.encode(np.array([9, 3])).tolist() == [9, 3]


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

    def load(number: int) -> Rows:
        loaded.append(number)
        return Rows(X + number, y)

    config = {"name": "test", **OPTIONS, "scale": 1.0}
    stream = own_stream(load, ["a", "b"], config, [(2,), (2,)], [y, y])
    assert loaded == []
    assert stream[1].X[0, 0] == 1
    assert loaded == [1]


def test_no_task_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="there are no rows"):
        own_stream(lambda number: None, [], OPTIONS, [], [])  # type: ignore[arg-type, return-value]
