"""Where in the stream the rows kept come from, against what was seen there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.memory.sketch import Sketch

__all__ = ["Stretches", "along_stream"]

Floats = NDArray[np.float64]


class Stretches(NamedTuple):
    """Shares of stretches of the stream; each kind sums to 1.

    Attributes
    ----------
    edges : (k + 1,) array
        Positions in the stream.
    seen, kept, stands : (k,) arrays
        Of the rows seen, of the rows kept, of what these stand for by their weights.
    """

    edges: Floats
    seen: Floats
    kept: Floats
    stands: Floats


def along_stream(sketch: Sketch, stretches: int = 50) -> Stretches:
    """Return shares of stretches of equal length, of which there are as many as rows at most.

    Examples
    --------
    >>> sketch = Sketch(2, "recent").update(np.zeros((8, 1)))
    >>> along_stream(sketch, 4).kept
    array([0., 0., 0., 1.])
    """
    edges = np.round(np.linspace(0, sketch.seen, min(stretches, sketch.seen) + 1))
    place = np.searchsorted(edges, sketch.index, side="right") - 1
    count = len(edges) - 1
    kept = np.bincount(place, minlength=count) / len(sketch)
    stands = np.bincount(place, sketch.weight, minlength=count) / sketch.weight.sum()
    return Stretches(edges, np.diff(edges) / sketch.seen, kept, stands)
