"""Rotating 60,000 images of 28 x 28 at once, against PIL one by one; permuting them.

Run: OMP_NUM_THREADS=2 python benchmarks/rotation.py
All times are of one run on one machine, so the ratios mean something and the seconds little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from PIL import Image

from olss.streams import Dataset, permuted
from olss.streams.builders import rotate

ROWS, ANGLE, REPEATS = 60_000, 33.3, 5
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}


def with_pil(images: np.ndarray, resample: str) -> np.ndarray:
    how = RESAMPLING[resample]
    turned = np.empty_like(images)
    for number, image in enumerate(images):
        turned[number] = np.asarray(Image.fromarray(image).rotate(ANGLE, resample=how))
    return turned


def best(action: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    # Mostly dark, as digits are.
    images = rng.integers(0, 256, (ROWS, 28, 28), dtype=np.uint8)
    images *= rng.random(images.shape) < 0.2
    copy = best(images.copy)
    print(
        f"{'':28s}{'seconds':>9s}{'copies':>9s}{'PIL / ours':>12s}{'differ by':>11s}{'pixels':>9s}"
    )
    for resample in RESAMPLING:
        ours = best(lambda how=resample: rotate(images, ANGLE, how))  # type: ignore[misc]
        theirs = best(lambda how=resample: with_pil(images, how))  # type: ignore[misc]
        gap = np.abs(rotate(images, ANGLE, resample).astype(int) - with_pil(images, resample))
        print(f"{'PIL, ' + resample:28s}{theirs:9.3f}{theirs / copy:9.1f}")
        print(
            f"{'rotate, ' + resample:28s}{ours:9.3f}{ours / copy:9.1f}{theirs / ours:12.1f}"
            f"{gap.max():11d}{(gap > 0).mean():9.2%}"
        )
    labels = np.zeros(ROWS, np.int64)
    data = Dataset("images", images, labels, images[:1], labels[:1])
    stream = permuted(data, tasks=2)
    seconds = best(lambda: stream[1])
    print(f"{'a permuted task':28s}{seconds:9.3f}{seconds / copy:9.1f}")


if __name__ == "__main__":
    main()
