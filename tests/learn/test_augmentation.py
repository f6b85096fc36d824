import numpy as np
import pytest
import torch

from olss.errors import InputError
from olss.learn import recipe
from olss.learn.training import Augmentation

from .tasks import Tiny, blobs


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
    with pytest.raises(InputError, match=r"augment='flip' is for images.*shape \(8,\)"):
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
    held = [learner.memory.held.X for learner in (plain, changed)]
    assert torch.equal(*held)
    assert not torch.equal(plain.model.flat.theta, changed.model.flat.theta)
    answers = changed.predict(task.X)
    np.testing.assert_array_equal(answers, changed.predict(task.X))
    # Training on flipped rows would give another net than training on the rows as they are.
    changed.model.flat.load(plain.model.flat.state())
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
        learner.model.flat.theta, by_hand.model.flat.theta, rtol=1e-4, atol=1e-6
    )
    with pytest.raises(InputError, match=r"for each of the 3 channels.*found 2"):
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
    assert torch.equal(learner.model.flat.theta, other.model.flat.theta)
    np.testing.assert_array_equal(learner.predict(tasks[0].X), other.predict(tasks[0].X))


def test_bfloat16_computes_in_it_and_keeps_parameters_whole():
    both = [recipe("sgd", net="resnet18-4", lr=0.05, batch=20, precision=p)
            for p in ("float32", "bfloat16")]  # fmt: skip
    for learner in both:
        learner.fit_task(picture_task())
    whole, half = (learner.model.flat.theta for learner in both)
    assert half.dtype == torch.float32
    assert 0 < (whole - half).norm() < 0.2 * whole.norm()
