"""Repetitions of statistical tests: few by default, many with ``-m slow``."""

from __future__ import annotations

import pytest


def repeated(few: int, many: int) -> pytest.MarkDecorator:
    """Give a test `repetitions`."""
    slow = pytest.param(many, marks=pytest.mark.slow)
    return pytest.mark.parametrize("repetitions", [few, slow])
