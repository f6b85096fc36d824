"""Real data sets are used where OLSS_DATA has them; all else is made in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from olss.streams import Dataset


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's cache folder out of the tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLSS_CACHE", str(folder))
        yield folder


def real(file: str) -> pytest.MarkDecorator:
    """Mark a test that needs a file of OLSS_DATA."""
    found = Path(os.environ.get("OLSS_DATA", "/nowhere"), file).exists()
    return pytest.mark.skipif(not found, reason=f"OLSS_DATA has no {file}")


@pytest.fixture
def marked() -> Dataset:
    """Return 60 training and 20 test rows; the first number of a row says which row it is."""
    X = np.arange(80.0)[:, None] + np.arange(6) / 10
    y = np.arange(80) % 4
    return Dataset("marked", X[:60], y[:60], X[60:], y[60:])


def rows(*arrays: np.ndarray) -> list[int]:
    """Return the first numbers of all rows, sorted."""
    return sorted(int(value) for array in arrays for value in array[:, 0])
