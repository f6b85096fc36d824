import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import Dataset, load_dataset, rotated
from olss.streams.image_rotation import rotate
from tests.streams.conftest import real

DIGITS = load_dataset("digits")


def angles_of(**options: object) -> list[float]:
    names = rotated("digits", **options).names  # type: ignore[arg-type]
    return [float(name.split()[0]) for name in names]


def test_angles_are_even_from_0_to_180() -> None:
    assert angles_of(tasks=5) == [0, 45, 90, 135, 180]
    assert angles_of(tasks=1) == [0]


def test_bins_hold_one_angle_each() -> None:
    drawn = [angles_of(tasks=20, angles="bins", seed=seed) for seed in range(20)]
    inside = np.array(drawn) / 9 - np.arange(20)
    # Names round the angle to a tenth of a degree.
    assert inside.min() > -0.01
    assert inside.max() < 1.01
    # Mean of 400 uniform draws: standard error 0.0144, tolerance 5 of them.
    assert abs(inside.mean() - 0.5) < 0.072
    assert inside.std() > 0.2


def test_random_angles_are_uniform_and_in_no_order() -> None:
    drawn = np.array([angles_of(tasks=20, angles="random", seed=seed) for seed in range(20)])
    assert 0 <= drawn.min() < 10
    assert 170 < drawn.max() < 180.05
    # Mean of 400 uniform draws: standard error 2.6 degrees, tolerance 5 of them.
    assert abs(drawn.mean() - 90) < 13
    # Half of the steps go up; of 380 a share of 0.5 has a standard error below 0.026.
    assert abs((np.diff(drawn, axis=1) > 0).mean() - 0.5) < 0.13


def test_training_and_test_rows_are_rotated_by_the_tasks_angle() -> None:
    for task, degrees in zip(
        rotated("digits", angles=[0, 20, 90], tasks=3), (0, 20, 90), strict=True
    ):
        np.testing.assert_array_equal(task.X, rotate(DIGITS.X, degrees))
        np.testing.assert_array_equal(task.X_test, rotate(DIGITS.X_test, degrees))
        np.testing.assert_array_equal(task.y, DIGITS.y)
        np.testing.assert_array_equal(task.y_test, DIGITS.y_test)


def test_angles_do_not_depend_on_rows_but_on_the_seed() -> None:
    assert angles_of(angles="bins") == angles_of(angles="bins", train_rows=10, test_rows=5)
    assert angles_of(angles="bins") != angles_of(angles="bins", seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"angles": "odd"},
            "angles must be 'even', 'bins', 'random' or a list of degrees, found 'odd'",
        ),
        ({"angles": [1, 2], "tasks": 3}, "each of the 3 tasks, found 2"),
        ({"angles": [float("nan")], "tasks": 1}, "angles must be a finite number, found nan"),
        ({"angles": 5}, "angles must be a list of degrees"),
        ({"tasks": 0}, "tasks must be a whole number from 1 to 1000000, found 0"),
        ({"resample": "cubic"}, "resample: there is no 'cubic'"),
        ({"train_rows": -5}, "train_rows must be a positive whole number, found -5"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rotated("digits", **options)  # type: ignore[arg-type]


def test_rows_that_are_no_images_are_refused(marked: Dataset) -> None:
    with pytest.raises(InputError, match="rotated needs images, found rows of shape"):
        rotated(marked)


@real("mnist/train-images-idx3-ubyte.gz")
def test_the_papers_rotated_mnist() -> None:
    stream = rotated("mnist")
    assert len(stream) == 20
    task = stream[19]
    assert (task.X.shape, task.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert task.X.dtype == np.uint8
    np.testing.assert_array_equal(task.X[:50], load_dataset("mnist").X[:50, ::-1, ::-1])
