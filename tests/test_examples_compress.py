"""The example on tables runs, and what it trains has learned."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import compress_tables


def test_a_tenth_of_the_tumours_is_enough_to_tell_them_apart():
    results = compress_tables.compare("tumours", share=0.1, seeds=1)
    assert set(results) == {*compress_tables.ROWS, "all of the data"}
    for row, values in results.items():
        assert values.shape == (1, 3)
        assert np.delete(values, 1).min() > 0.8, row  # guessing gives 0.5
    # Boosting does nothing with fewer rows than two of its leaves hold.
    assert results["all of the data"].min() > 0.95
    text = compress_tables.report("tumours", 0.1, results)
    assert "| reservoir (random) | 0." in text
