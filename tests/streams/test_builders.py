from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from olss.errors import DataError, InputError
from olss.streams import Dataset, Stream, incremental, load_dataset, permuted, rotated
from olss.streams.builders import rotate
from tests.streams.conftest import real


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


def test_all_rows_are_the_data_set(marked: Dataset) -> None:
    task = permuted(marked, tasks=1, permute_first=False)[0]
    np.testing.assert_array_equal(task.X, marked.X)
    np.testing.assert_array_equal(task.y_test, marked.y_test)


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
    with pytest.raises(InputError, match="must be an integer"):
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
        ({"angles": "odd"}, "angles"),
        ({"angles": [1, 2], "tasks": 3}, "angles .*3 tasks"),
        ({"angles": [float("nan")], "tasks": 1}, "angles .*nan"),
        ({"angles": 5}, "angles .*5"),
        ({"tasks": 0}, "tasks must be"),
        ({"resample": "cubic"}, "resample"),
        ({"train_rows": -5}, "train_rows must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_options_of_rotated_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rotated("digits", **options)  # type: ignore[arg-type]


def test_rows_that_are_no_images_are_refused(marked: Dataset) -> None:
    with pytest.raises(InputError, match="dataset must hold images"):
        rotated(marked)


@real("mnist/train-images-idx3-ubyte.gz")
def test_the_papers_rotated_mnist() -> None:
    stream = rotated("mnist")
    assert len(stream) == 20
    task = stream[19]
    assert (task.X.shape, task.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert task.X.dtype == np.uint8
    np.testing.assert_array_equal(task.X[:50], load_dataset("mnist").X[:50, ::-1, ::-1])


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
        ({"order": "sorted"}, "order.*sorted"),
        ({"order": [0, 1, 1, 2]}, "order must not repeat"),
        ({"order": [[0], []]}, "order"),
        ({"order": [0, 77]}, "order has class 77"),
        ({"order": [[0], [1]], "tasks": 3}, "tasks must be 2"),
    ],
)
def test_bad_options_of_incremental_are_named(options: dict[str, object], message: str) -> None:
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


NOISE = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}


def pil(images: np.ndarray, degrees: float, resample: str = "bilinear") -> np.ndarray:
    how = RESAMPLING[resample]
    return np.stack([np.asarray(Image.fromarray(i).rotate(degrees, resample=how)) for i in images])


@settings(deadline=None, max_examples=60)
@given(degrees=st.floats(-400, 400), height=st.integers(1, 30), width=st.integers(1, 30))
def test_bilinear_is_within_one_grey_level_of_pil(degrees: float, height: int, width: int) -> None:
    images = NOISE.reshape(-1)[: 5 * height * width].reshape(5, height, width)
    ours = rotate(images, degrees).astype(int)
    # A pixel whose source lies on the border to within rounding may be inside for one of us.
    near = np.abs(ours - pil(images, degrees)) <= 1
    assert near.all(axis=0).mean() >= 1 - 4 / max(4, height * width)
    inner = near[:, 1:-1, 1:-1]
    assert inner.all()


@pytest.mark.parametrize("degrees", [9.0, 33.3, 45.0, 94.7, 171.0, -20.0])
def test_few_pixels_differ_from_pil_at_all(degrees: float) -> None:
    difference = np.abs(rotate(NOISE, degrees).astype(int) - pil(NOISE, degrees))
    assert difference.max() <= 1
    # Fractions are rounded to 1/2048, so noise crosses a whole grey level in 1 pixel of 100.
    assert (difference > 0).mean() < 0.03


@pytest.mark.parametrize("degrees", [9.1, 33.3, 94.7, 171.2])
def test_nearest_is_pils_default_but_for_ties(degrees: float) -> None:
    assert (rotate(NOISE, degrees, "nearest") != pil(NOISE, degrees, "nearest")).mean() < 0.005


@pytest.mark.parametrize("resample", ["bilinear", "nearest"])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, -1])
def test_quarter_turns_are_exact(turns: int, resample: str) -> None:
    expected = np.rot90(NOISE, turns, axes=(1, 2))
    np.testing.assert_array_equal(rotate(NOISE, 90 * turns, resample), expected)


def test_a_known_pixel_goes_counter_clockwise() -> None:
    image = np.zeros((5, 5), np.uint8)
    image[2, 4] = 200  # right of the centre
    turned = rotate(image, 45)
    assert np.unravel_index(turned.argmax(), turned.shape) == (1, 3)  # above to the right


def test_flat_images_stay_flat_inside() -> None:
    turned = rotate(np.full((1, 28, 28), 255, np.uint8), 30)[0]
    assert set(np.unique(turned)) == {0, 255}
    assert (turned[7:21, 7:21] == 255).all()


def test_floats_and_channels_follow_the_same_matrix() -> None:
    colours = NOISE[:18].reshape(6, 3, 28, 28)
    turned = rotate(colours, 33)
    np.testing.assert_array_equal(turned.reshape(18, 28, 28), rotate(NOISE[:18], 33))
    floats = rotate(colours / 255, 33)
    assert floats.dtype == np.float64
    np.testing.assert_array_equal(np.floor(floats * 255 + 1e-9), turned)
    assert rotate(colours.astype(np.float32), 33).dtype == np.float32


def test_an_image_does_not_depend_on_its_neighbours() -> None:
    many = np.tile(NOISE, (20, 1, 1))
    np.testing.assert_array_equal(rotate(many, 12)[201], rotate(many[201], 12))


@pytest.mark.parametrize(
    ("images", "message"),
    [(np.zeros(3), "height and a width"), (np.zeros((2, 3, 3), int), "uint8 or floating point")],
)
def test_what_cannot_be_rotated_is_named(images: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rotate(images, 10)


@pytest.mark.parametrize("make", [permuted, rotated, incremental])
def test_numbers_of_numpy_are_plain_numbers_in_the_config(make: Callable[..., Stream]) -> None:
    stream = make("digits", tasks=np.array(2), train_rows=np.int64(50), seed=np.uint8(3))
    assert stream.config == make("digits", tasks=2, train_rows=50, seed=3).config
