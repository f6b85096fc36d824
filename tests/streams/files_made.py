"""Small files in the formats of the real data sets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_bytes(values: np.ndarray) -> bytes:
    """Return the array as an idx file."""
    head = bytes([0, 0, CODES[values.dtype.str[1:]], values.ndim])
    return head + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def cifar_records(rows: int, label_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return record bytes, images and labels."""
    rng = np.random.default_rng(rows)
    X = rng.integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8)
    y = np.arange(rows) % 10
    coarse = np.full((rows, label_bytes - 1), 19, np.uint8)
    records = np.hstack([coarse, y[:, None].astype(np.uint8), X.reshape(rows, -1)])
    return records.ravel(), X, y


def write_mnist(folder: Path, *, packed: bool = True, dotted: bool = False) -> list[np.ndarray]:
    """Write four idx files of 30 training and 20 test rows; return the arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(30)
    arrays = []
    for name in IDX_NAMES:
        rows = 30 if name.startswith("train") else 20
        images = rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        values = images if "images" in name else (np.arange(rows) % 10).astype(np.uint8)
        spelled = name.replace("-idx", ".idx") if dotted else name
        raw = idx_bytes(values)
        (folder / f"{spelled}{'.gz' if packed else ''}").write_bytes(
            gzip.compress(raw) if packed else raw
        )
        arrays.append(values)
    return arrays
