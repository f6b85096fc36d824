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

from olss.core.frequent_directions import FrequentDirections
from olss.core.gram import Gram
from olss.core.leverage import leverage_scores
from olss.errors import (
    DataError,
    FormatError,
    InputError,
    MissingExtraError,
    OlssError,
    OlssWarning,
)
from olss.memory.sketch import Sketch

__version__ = "0.1.0"
__all__ = [
    "DataError",
    "FormatError",
    "FrequentDirections",
    "Gram",
    "InputError",
    "MissingExtraError",
    "OlssError",
    "OlssWarning",
    "Sketch",
    "leverage_scores",
]
