import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import Dataset, incremental, permuted
from olss.streams.dataset_tasks import DatasetTasks


def ids(X: np.ndarray) -> list[int]:
    return np.floor(X.min(axis=1)).astype(int).tolist()


def test_rows_are_drawn_anew_for_each_task_without_repeats(marked: Dataset) -> None:
    stream = permuted(marked, tasks=3, train_rows=20, test_rows=8)
    drawn = [ids(task.X) for task in stream]
    assert all(len(set(rows)) == 20 and max(rows) < 60 for rows in drawn)
    assert len({tuple(sorted(rows)) for rows in drawn}) == 3
    for task in stream:
        assert np.bincount(task.y_test).tolist() == [2, 2, 2, 2]
        assert [row % 4 for row in ids(task.X)] == task.y.tolist()
        assert [row % 4 for row in ids(task.X_test)] == task.y_test.tolist()


def test_too_many_rows_are_refused(marked: Dataset) -> None:
    stream = incremental(marked, tasks=2, train_rows=31)
    with pytest.raises(InputError, match="train_rows must be at most 30, the rows of classes"):
        stream[0]


@pytest.mark.parametrize("build", [permuted, incremental])
def test_validation_never_touches_test_rows_nor_trains_on_its_own(
    build: object, marked: Dataset
) -> None:
    stream = build(marked, tasks=4, train_rows=12, seed=3)  # type: ignore[operator]
    tuning = stream.validation(share=0.3)
    trained = {row for task in tuning for row in ids(task.X)}
    tested = {row for task in tuning for row in ids(task.X_test)}
    assert not trained & tested
    assert max(trained | tested) < 60
    assert len(tested) == 18
    if build is permuted:  # one permutation for tuning and for the run
        for one, other in zip(stream, tuning, strict=True):
            decimals = [np.round(X - X.min(axis=1, keepdims=True), 1) for X in (one.X, other.X)]
            np.testing.assert_allclose(decimals[0][0], decimals[1][0])


def test_tuning_takes_what_rows_are_left(marked: Dataset) -> None:
    tuning = incremental(marked, tasks=4, train_rows=15, test_rows=5).validation(0.2)
    assert [(len(task.X), len(task.X_test)) for task in tuning] == [(12, 3)] * 4


def test_validation_of_another_seed_holds_out_other_rows(marked: Dataset) -> None:
    stream = permuted(marked, tasks=1)
    one, two = (ids(stream.validation(0.3, seed=seed)[0].X_test) for seed in (0, 1))
    assert one != two


def test_own_rows_are_named_by_their_hash(marked: Dataset) -> None:
    config = permuted(marked, tasks=2).config["dataset"]
    assert config["name"] == "marked"
    changed = Dataset("marked", marked.X + 1, marked.y, marked.X_test, marked.y_test)
    assert permuted(changed, tasks=2).config["dataset"]["sha256"] != config["sha256"]


def test_draws_without_groups_or_transform_are_the_data_set(marked: Dataset) -> None:
    config = {"train_rows": None, "test_rows": None, "seed": 0}
    task = DatasetTasks(marked, config, ["all"]).stream()[0]
    np.testing.assert_array_equal(task.X, marked.X)
    np.testing.assert_array_equal(task.y_test, marked.y_test)
