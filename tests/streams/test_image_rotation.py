import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from olss.errors import DataError
from olss.streams.image_rotation import rotate

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
