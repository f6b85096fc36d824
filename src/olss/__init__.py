"""A constant-size training set of everything seen so far.

>>> import numpy as np, olss
>>> rng = np.random.default_rng(0)
>>> sketch = olss.Sketch(size=200, seed=0)
>>> for day in range(5):
...     X = rng.standard_normal((1_000, 8))
...     _ = sketch.update(X, y=X[:, 0] > 0, task=day)
>>> sketch.X.shape, sketch.y.shape, sketch.seen
((200, 8), (200,), 5000)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from olss.errors import (
    DataError,
    FormatError,
    InputError,
    MissingExtraError,
    OlssError,
    OlssWarning,
)
from olss.util import lazy_getattr

if TYPE_CHECKING:
    from olss.core.frequent_directions import FrequentDirections
    from olss.core.gram import Gram
    from olss.core.leverage import leverage_scores
    from olss.diagnostics.monitor import Monitor
    from olss.files.compress import compress
    from olss.sketch import Sketch, correct_priors

# A library logs, and leaves it to the program whether anybody sees it.
logging.getLogger("olss").addHandler(logging.NullHandler())

__version__ = "0.3.0"
__all__ = [
    "DataError",
    "FormatError",
    "FrequentDirections",
    "Gram",
    "InputError",
    "MissingExtraError",
    "Monitor",
    "OlssError",
    "OlssWarning",
    "Sketch",
    "compress",
    "correct_priors",
    "leverage_scores",
]

# Loaded when first asked for, so that the command can be stopped, and answers, at once.
__getattr__ = lazy_getattr(
    __name__,
    {
        "FrequentDirections": "olss.core.frequent_directions",
        "Gram": "olss.core.gram",
        "Monitor": "olss.diagnostics.monitor",
        "Sketch": "olss.sketch",
        "compress": "olss.files.compress",
        "correct_priors": "olss.sketch",
        "leverage_scores": "olss.core.leverage",
    },
)
