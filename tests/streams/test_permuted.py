import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import Dataset, load_dataset, permuted
from tests.streams.conftest import real

DIGITS = load_dataset("digits")


def positions(tasks: int = 4, **options: object) -> list[np.ndarray]:
    """Return where each input went, read off rows that hold their own positions."""
    rows = np.tile(np.arange(64).reshape(8, 8), (10, 1, 1))
    labels = np.arange(10) % 2
    data = Dataset("positions", rows, labels, rows[:4], labels[:4])
    found = []
    for task in permuted(data, tasks=tasks, **options):  # type: ignore[arg-type]
        together = np.concatenate([task.X, task.X_test]).reshape(-1, 64)
        # One permutation for every training and every test row.
        assert (together == together[0]).all()
        found.append(together[0])
    return found


def test_each_task_has_a_permutation_of_its_own() -> None:
    found = positions()
    for one in found:
        np.testing.assert_array_equal(np.sort(one), np.arange(64))
        assert (one != np.arange(64)).any()
    assert len({tuple(one) for one in found}) == 4


def test_first_task_is_left_as_it_is_on_request() -> None:
    found = positions(permute_first=False)
    np.testing.assert_array_equal(found[0], np.arange(64))
    np.testing.assert_array_equal(found[1:], positions()[1:])
    assert permuted("digits", permute_first=False).names[:2] == ("as it is", "permutation 2")


def test_permutation_depends_on_seed_and_task_only() -> None:
    np.testing.assert_array_equal(positions(), positions(train_rows=3, test_rows=2))
    np.testing.assert_array_equal(positions(4), positions(9)[:4])
    assert (np.array(positions()) != np.array(positions(seed=1))).any(axis=1).all()


def test_permutation_is_not_drawn_again_when_a_task_is_asked_for_again() -> None:
    stream = permuted("digits", tasks=5)
    late = stream[3].X
    for task, again in zip(stream, stream, strict=True):
        np.testing.assert_array_equal(task.X, again.X)
    np.testing.assert_array_equal(stream[3].X, late)


def test_rows_keep_their_values_labels_and_shape() -> None:
    task = permuted("digits", tasks=2)[1]
    assert task.X.shape == DIGITS.X.shape
    assert task.X.dtype == np.uint8
    np.testing.assert_array_equal(task.y, DIGITS.y)
    ours, theirs = (np.sort(X.reshape(len(X), -1)) for X in (task.X, DIGITS.X))
    np.testing.assert_array_equal(ours, theirs)


def test_shared_data_stay_as_they_are() -> None:
    before = DIGITS.X.copy()
    task = permuted("digits", tasks=1, permute_first=False)[0]
    task.X[:] = 0
    np.testing.assert_array_equal(DIGITS.X, before)


def test_bad_number_of_tasks_is_named() -> None:
    with pytest.raises(InputError, match=r"whole number from 1 to 1000000, found 2\.5"):
        permuted("digits", tasks=2.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="found 9223372036854775808"):
        permuted("digits", tasks=2**63)


@real("mnist/train-images-idx3-ubyte.gz")
def test_the_papers_permuted_mnist() -> None:
    mnist = load_dataset("mnist")
    task = permuted("mnist")[0]
    assert (task.X.shape, task.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    # A pixel is told by its values in 2,000 training rows; where it went, it went in the test rows.
    train, train_permuted = (X[:2000].reshape(2000, -1) for X in (mnist.X, task.X))
    test, test_permuted = (X.reshape(10_000, -1) for X in (mnist.X_test, task.X_test))
    origin = {column.tobytes(): place for place, column in enumerate(train.T)}
    lit = np.flatnonzero((train_permuted > 0).sum(axis=0) > 100)
    order = [origin[np.ascontiguousarray(train_permuted[:, place]).tobytes()] for place in lit]
    assert (np.array(order) != lit).mean() > 0.9
    np.testing.assert_array_equal(test_permuted[:, lit], test[:, order])
