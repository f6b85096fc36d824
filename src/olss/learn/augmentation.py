"""Images changed at random in every training step: cropped, flipped."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from olss.errors import InputError
from olss.util.checks import known_name, whole

__all__ = ["AUGMENTATIONS", "Augmentation", "check_images"]

AUGMENTATIONS = ("none", "crop", "flip", "crop-flip")


class Augmentation:
    """Crops and flips the images of a training step; what is remembered and asked stays as it is.

    Parameters
    ----------
    augment : str
        "crop": each image is padded with zeros and cut back to its size at a random place.
        "flip": half of the images are mirrored, left for right. "crop-flip": both. "none".
    crop_padding : int
        Pixels of padding on each side.
    """

    def __init__(self, augment: str = "none", crop_padding: int = 4) -> None:
        self.augment = known_name("augment", augment, AUGMENTATIONS)
        self.padding = whole("crop_padding", crop_padding) if "crop" in augment else 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless rows of this shape are images, or nothing is to be done."""
        if self.augment != "none":
            check_images(f"augment={self.augment!r}", shape)

    def __call__(self, X: Tensor, rng: np.random.Generator) -> Tensor:
        """Return n images changed, each in its own way, (n, height, width) or with channels.

        Numbers are drawn on the processor, so that a seed means the same on every device.
        """
        if self.augment == "none":
            return X
        images = X if X.dim() == 4 else X[:, None]
        count, _, height, width = images.shape
        top, left = rng.integers(2 * self.padding + 1, size=(2, count, 1))
        rows, columns = top + np.arange(height), left + np.arange(width)
        if "flip" in self.augment:
            flipped = rng.random(count) < 0.5
            columns[flipped] = columns[flipped, ::-1]
        if self.padding:
            images = pad(images, (self.padding,) * 4)
        number, row, column = (
            torch.from_numpy(np.ascontiguousarray(index)).to(X.device)
            for index in (np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :])
        )
        # The result is laid out channels last, which convolutions want anyway.
        changed = images.permute(0, 2, 3, 1)[number, row, column].permute(0, 3, 1, 2)
        return changed if X.dim() == 4 else changed[:, 0]


def check_images(setting: str, shape: tuple[int, ...]) -> None:
    """Raise unless rows of this shape are images, which `setting` is for."""
    if len(shape) not in (2, 3):
        raise InputError(
            f"{setting} is for images of shape (height, width) or (channels, height, width), "
            f"found rows of shape {shape}."
        )
