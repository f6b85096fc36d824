"""Where in the stream the rows kept come from, against what was seen there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.memory.state import State

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


def along_stream(state: State, stretches: int = 50) -> Stretches:
    """Return shares of stretches of equal length, of which there are as many as rows at most.

    Examples
    --------
    >>> from olss import Sketch
    >>> sketch = Sketch(2, "recent").update(np.zeros((8, 1)))
    >>> along_stream(sketch._settled, 4).kept
    array([0., 0., 0., 1.])
    """
    edges = np.round(np.linspace(0, state.seen, min(stretches, state.seen) + 1))
    place = np.searchsorted(edges, state.rows["index"], side="right") - 1
    count = len(edges) - 1
    kept = np.bincount(place, minlength=count) / len(state.rows)
    stands = np.bincount(place, state.rows["weight"], minlength=count) / state.rows["weight"].sum()
    return Stretches(edges, np.diff(edges) / state.seen, kept, stands)
