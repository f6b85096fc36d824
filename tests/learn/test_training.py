import itertools

import numpy as np
import pytest
import torch

from olss.errors import InputError
from olss.learn import recipe
from olss.learn.training import PURPOSES, Augmentation, Batch, Seeds, as_tensor

from .tasks import Tiny, blobs


def make(rows, start=0, **columns):
    index = torch.arange(start, start + rows)
    return Batch(index[:, None].float(), index % 2, index * 0, index, **columns)


def test_taking_keeps_columns_together():
    rows = make(5, weight=torch.arange(5.0)).take(torch.tensor([3, 1]))
    assert rows.index.tolist() == rows.X[:, 0].tolist() == rows.weight.tolist() == [3, 1]
    assert rows.outputs is None


def test_joining_fills_what_one_side_lacks():
    weighted = make(2, weight=torch.tensor([5.0, 6.0]))
    remembered = make(2, start=2, outputs=torch.ones(2, 3))
    both = weighted.join(remembered)
    assert both.index.tolist() == [0, 1, 2, 3]
    assert both.weight.tolist() == [5, 6, 1, 1]
    assert both.outputs.isnan().all(1).tolist() == [True, True, False, False]
    assert weighted.join(None) is weighted


def test_bytes_are_those_of_all_columns():
    assert make(10).nbytes == 10 * (4 + 3 * 8)
    assert make(10, outputs=torch.ones(10, 3)).nbytes == 10 * (4 + 3 * 8 + 3 * 4)


def test_a_read_only_array_becomes_a_tensor_without_a_copy():
    array = np.arange(6, dtype=np.uint8)
    array.flags.writeable = False
    assert as_tensor(array).data_ptr() == array.ctypes.data


def test_reversed_and_foreign_byte_order_arrays_become_tensors():
    assert as_tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert as_tensor(np.arange(4, dtype=">f4")).tolist() == [0, 1, 2, 3]


def test_each_purpose_task_and_seed_has_numbers_of_its_own():
    keys = itertools.product((0, 1), PURPOSES, (0, 1, 2))
    drawn = [Seeds(seed).number(purpose, task) for seed, purpose, task in keys]
    assert len(set(drawn)) == len(drawn)


def test_asking_again_gives_the_same():
    seeds = Seeds(np.int64(3))
    first = seeds.rng("order", 2).permutation(10)
    seeds.rng("memory", 2).permutation(10)
    np.testing.assert_array_equal(seeds.rng("order", 2).permutation(10), first)


def images(count=200, channels=3, side=8, dtype=torch.uint8):
    """Each pixel has a value of its own, so that a crop tells where it was taken."""
    pixels = torch.arange(1, channels * side * side + 1).reshape(channels, side, side)
    return pixels.to(dtype).expand(count, -1, -1, -1).contiguous()


def places(padding, side=8):
    """Every crop there can be, and its mirror, by a loop over the padded image."""
    image = images(1, side=side)[0].numpy()
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    found = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[:, top : top + side, left : left + side]
            found[crop.tobytes()] = (top, left, False)
            found[crop[:, :, ::-1].tobytes()] = (top, left, True)
    return found


@pytest.mark.parametrize(("augment", "padding"), [("crop", 2), ("flip", 0), ("crop-flip", 2)])
def test_images_are_cropped_and_mirrored_evenly_over_all_places(augment, padding):
    X = images(4000)
    settings = {"crop_padding": padding} if padding else {}
    changed = Augmentation(augment, **settings)(X, np.random.default_rng(0))
    known = places(padding)
    drawn = [known[image.numpy().tobytes()] for image in changed.contiguous()]
    counts = np.unique([hash(place) for place in drawn], return_counts=True)[1]
    expected = (2 * padding + 1) ** 2 * (2 if "flip" in augment else 1)
    assert len(counts) == expected
    # Each of k places is drawn with probability 1 / k: 5 standard errors.
    mean = 4000 / expected
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)
    assert torch.equal(X, images(4000))


def test_nothing_is_done_by_default():
    X = images(3)
    assert Augmentation()(X, np.random.default_rng(0)) is X


def test_images_without_channels_and_of_floats():
    X = images(50, channels=1)[:, 0]
    whole, floats = (Augmentation("crop-flip")(x, np.random.default_rng(1)) for x in (X, X.float()))
    assert whole.shape == X.shape
    assert torch.equal(whole.float(), floats)


def test_rows_that_are_no_images_are_refused():
    with pytest.raises(InputError, match=r"augment='flip'.*\(8,\)"):
        recipe("sgd", augment="flip").fit_task(blobs())


def picture_task(seed=0, rows=60):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 256, (rows, 3, 8, 8), dtype=np.uint8)
    return Tiny(X, np.arange(rows) % 3, classes=(0, 1, 2), scale=255.0)


def test_only_training_sees_changed_images():
    plain, changed = (
        recipe("er", net="mlp-8", size=30, batch=20, augment=augment)
        for augment in ("none", "flip")
    )
    task = picture_task()
    for learner in (plain, changed):
        learner.fit_task(task)
    held = [learner.buffer.held.X for learner in (plain, changed)]
    assert torch.equal(*held)
    assert not torch.equal(plain.model.params.theta, changed.model.params.theta)
    answers = changed.predict(task.X)
    np.testing.assert_array_equal(answers, changed.predict(task.X))
    # Training on flipped rows would give another net than training on the rows as they are.
    changed.model.params.load(plain.model.params.state())
    np.testing.assert_array_equal(changed.predict(task.X), plain.predict(task.X))


def test_inputs_are_standardised_channel_by_channel():
    task = picture_task()
    mean, std = [0.2, 0.3, 0.4], [0.5, 0.6, 0.7]
    learner = recipe("sgd", net="mlp-8", input_mean=mean, input_std=std)
    by_hand = recipe("sgd", net="mlp-8")
    learner.fit_task(task)
    wide = np.float32(mean)[:, None, None], np.float32(std)[:, None, None]
    by_hand.fit_task(Tiny((np.float32(task.X) / 255 - wide[0]) / wide[1], task.y))
    torch.testing.assert_close(
        learner.model.params.theta, by_hand.model.params.theta, rtol=1e-4, atol=1e-6
    )
    with pytest.raises(InputError, match=r"input_(mean|std).*found 2"):
        recipe("sgd", input_mean=[0.1, 0.2]).fit_task(task)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_saved_learner_goes_on_with_the_same_chance(precision, tmp_path):
    def make():
        return recipe(
            "olss-replay", net="resnet18-4", size=40, batch=10, replay_rows=5, lr=0.05, epochs=2,
            augment="crop-flip", finish_epochs=1, precision=precision,
        )  # fmt: skip

    tasks = [picture_task(seed) for seed in range(3)]
    learner = make()
    learner.start(range(3), seed=7)
    for task in tasks[:2]:
        learner.fit_task(task)
    learner.save(tmp_path / "state")
    other = make().load(tmp_path / "state")
    for one in (learner, other):
        one.fit_task(tasks[2])
    assert torch.equal(learner.model.params.theta, other.model.params.theta)
    np.testing.assert_array_equal(learner.predict(tasks[0].X), other.predict(tasks[0].X))


def test_bfloat16_computes_in_it_and_keeps_parameters_whole():
    both = [recipe("sgd", net="resnet18-4", lr=0.05, batch=20, precision=p)
            for p in ("float32", "bfloat16")]  # fmt: skip
    for learner in both:
        learner.fit_task(picture_task())
    whole, half = (learner.model.params.theta for learner in both)
    assert half.dtype == torch.float32
    assert 0 < (whole - half).norm() < 0.2 * whole.norm()
