import numpy as np
import pytest

from olss.errors import DataError, InputError
from olss.streams import (
    Dataset,
    Stream,
    Task,
    from_arrays,
    imbalanced,
    incremental,
    interleaved,
    label_noise,
    outliers,
    permuted,
    returning,
    unequal,
)

PERMUTED = permuted("digits", tasks=4, train_rows=400)
INCREMENTAL = incremental("digits", tasks=5)
REAL_TARGETS = from_arrays(
    [(np.random.default_rng(n).normal(size=(50, 3)), np.arange(50) / 7) for n in range(3)]
)
ALL = [
    (label_noise, {"share": 0.3}),
    (outliers, {"share": 0.1}),
    (imbalanced, {"ratio": 8}),
    (unequal, {"ratio": 4}),
    (returning, {"task": 1, "at": 3}),
    (interleaved, {"share": 0.5}),
]


@pytest.mark.parametrize(("step", "options"), ALL)
def test_test_rows_and_the_stream_itself_stay_as_they_are(step, options) -> None:  # type: ignore[no-untyped-def]
    before = [task.X.copy() for task in PERMUTED]
    changed = step(PERMUTED, **options)
    tests = {task.X_test.tobytes() for task in PERMUTED}
    assert {task.X_test.tobytes() for task in changed} == tests
    for task, X in zip(PERMUTED, before, strict=True):
        np.testing.assert_array_equal(task.X, X)


@pytest.mark.parametrize(("step", "options"), ALL)
def test_held_out_rows_are_clean(step, options, marked: Dataset) -> None:  # type: ignore[no-untyped-def]
    stream = permuted(marked, tasks=4)
    clean = {row.tobytes() for task in stream.validation(0.3) for row in task.X_test}
    tuning = step(stream, **options).validation(0.3)
    assert {row.tobytes() for task in tuning for row in task.X_test} == clean
    trained = {row.tobytes() for task in tuning for row in task.X}
    assert not trained & clean


@pytest.mark.parametrize("stream", [PERMUTED, INCREMENTAL], ids=["permuted", "incremental"])
def test_label_noise_changes_the_share_to_other_classes_of_the_task(stream: Stream) -> None:
    for clean, noisy in zip(stream, label_noise(stream, 0.25), strict=True):
        wrong = clean.y != noisy.y
        assert wrong.sum() == round(0.25 * len(clean.y))
        np.testing.assert_array_equal(wrong, noisy.disturbed)
        assert set(noisy.y) <= set(clean.classes or ())
        np.testing.assert_array_equal(clean.X, noisy.X)


def test_label_noise_chooses_the_other_classes_evenly() -> None:
    X = np.zeros((9000, 1))
    stream = from_arrays([(X, np.arange(9000) % 4, X[:4], np.arange(4))])
    task = label_noise(stream, share=1.0)[0]
    counts = np.bincount((task.y - stream[0].y) % 4, minlength=4)
    assert counts[0] == 0
    # Each of three wrong classes 3,000 times; standard error 45, tolerance 5 of them.
    assert np.abs(counts[1:] - 3000).max() < 5 * np.sqrt(9000 * (1 / 3) * (2 / 3))


def test_outliers_replace_inputs_and_keep_labels() -> None:
    for clean, task in zip(PERMUTED, outliers(PERMUTED, 0.1), strict=True):
        changed = (clean.X != task.X).any(axis=(1, 2))
        assert changed.sum() == 40
        np.testing.assert_array_equal(changed, task.disturbed)
        np.testing.assert_array_equal(clean.y, task.y)
        assert (task.X.dtype, task.X.max()) == (np.uint8, 16)
    wild = outliers(REAL_TARGETS, 0.1)[0]
    assert wild.X[wild.disturbed].std() > 4 * REAL_TARGETS[0].X.std()


def test_imbalance_falls_geometrically() -> None:
    X = np.zeros((1000, 1))
    y = np.repeat(np.arange(5), 200)
    stream = imbalanced(from_arrays([(X, y, X[::40], y[::40])] * 2), ratio=16)
    for task in stream:
        assert sorted(np.bincount(task.y)) == [12, 25, 50, 100, 200]
    assert np.bincount(stream[0].y).tolist() == np.bincount(stream[1].y).tolist()
    assert imbalanced(stream, ratio=1e6)[0].y.size > 0
    assert len(np.unique(imbalanced(stream, ratio=1e6)[0].y)) == 5


def test_unequal_sizes() -> None:
    sizes = [len(task.X) for task in unequal(PERMUTED, ratio=8)]
    assert sorted(sizes) == [50, 100, 200, 400]
    kept = unequal(PERMUTED, rows=[1, 400, 7, 30])
    assert [len(task.X) for task in kept] == [1, 400, 7, 30]
    for task, whole in zip(kept, PERMUTED, strict=True):
        assert {row.tobytes() for row in task.X} <= {row.tobytes() for row in whole.X}
    with pytest.raises(InputError, match="rows must be at most 400"):
        unequal(PERMUTED, rows=[401, 1, 1, 1])[0]


def test_a_task_returns() -> None:
    stream = returning(PERMUTED, task=1, at=3)
    assert len(stream) == 5
    assert stream.names[3] == "permutation 2 again"
    np.testing.assert_array_equal(stream[1].X, stream[3].X)
    np.testing.assert_array_equal(stream[4].X, PERMUTED[3].X)
    assert returning(PERMUTED).names[-1] == "permutation 1 again"
    for options in ({"task": 4}, {"task": 2, "at": 2}, {"at": 9}, {"task": -1}, {"task": 0.5}):
        with pytest.raises(InputError, match="task"):
            returning(PERMUTED, **options)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_interleaving_moves_each_row_once(share: float, marked: Dataset) -> None:
    stream = permuted(marked, tasks=4)
    mixed = interleaved(stream, share)
    before = sorted(row.tobytes() for task in stream for row in task.X)
    assert sorted(row.tobytes() for task in mixed for row in task.X) == before
    labels = {
        row.tobytes(): label for task in stream for row, label in zip(task.X, task.y, strict=True)
    }
    assert all(
        labels[row.tobytes()] == label
        for task in mixed
        for row, label in zip(task.X, task.y, strict=True)
    )


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_interleaving_keeps_the_share_that_stays(share: float) -> None:
    stream = permuted("digits", tasks=4)
    homes = [{row.tobytes() for row in task.X} for task in stream]
    stayed = [np.mean([row.tobytes() in homes[number] for row in task.X])
              for number, task in enumerate(interleaved(stream, share))]  # fmt: skip
    expected = 1 - share * 3 / 4
    # 5,752 rows; some digits of 8 x 8 are alike after a permutation, so 5 standard errors and 0.01.
    assert abs(np.mean(stayed) - expected) < 5 * np.sqrt(expected * (1 - expected) / 5752) + 0.01


def test_rows_arrive_in_no_order_of_tasks() -> None:
    task = interleaved(INCREMENTAL)[0]
    group = np.searchsorted([0, 2, 4, 6, 8], task.y, side="right")
    assert np.abs(np.diff(group)).mean() > 0.5
    assert len(task.classes or ()) == 10


def noisy_rows(task: Task) -> np.ndarray:
    """Return which rows have another label than the whole stream says."""
    whole = next(other for other in PERMUTED if other.name == task.name)
    truth = {row.tobytes(): label for row, label in zip(whole.X, whole.y, strict=True)}
    right = [truth[row.tobytes()] == label for row, label in zip(task.X, task.y, strict=True)]
    return ~np.array(right)


def test_marks_go_through_later_steps() -> None:
    noisy = unequal(label_noise(PERMUTED, 0.5), ratio=4)
    clean = unequal(PERMUTED, ratio=4)
    for task, other in zip(noisy, clean, strict=True):
        assert task.disturbed is not None
        np.testing.assert_array_equal(task.disturbed, noisy_rows(task))
        assert other.disturbed is None
    mixed = interleaved(label_noise(PERMUTED, 0.5))
    total = sum(int(task.disturbed.sum()) for task in mixed)  # type: ignore[union-attr]
    assert total == 800
    twice = outliers(label_noise(PERMUTED, 0.5), 0.5)[0].disturbed
    assert twice is not None
    assert 200 < twice.sum() < 400


def test_what_needs_labels_says_so() -> None:
    for step in (label_noise, imbalanced):
        with pytest.raises(InputError, match="needs class labels"):
            step(REAL_TARGETS)
    single = incremental("digits", tasks=10)
    with pytest.raises(DataError, match="needs a second class in classes"):
        label_noise(single)[0]


@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        (label_noise, {"share": 0}, "share must be a number above 0 and at most 1, found 0"),
        (outliers, {"share": 2}, "found 2"),
        (imbalanced, {"ratio": 0.5}, "ratio must be a number"),
        (unequal, {"rows": [1, 2]}, "rows must hold 4 numbers"),
        (unequal, {"rows": [0, 1, 1, 1]}, "each must be"),
        (interleaved, {"share": -1}, "found -1"),
        (interleaved, {"seed": -1}, "seed must be"),
    ],
)
def test_bad_options_are_named(step, options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        step(PERMUTED, **options)


def test_outliers_have_all_grey_levels_whatever_the_scale() -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8)).astype(np.uint8)
    stream = from_arrays(images, np.arange(200) % 2, by=np.zeros(200, int), test=0.2, scale=1.0)
    task = outliers(stream, 0.5)[0]
    assert task.X[task.disturbed].max() > 200
