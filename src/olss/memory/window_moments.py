"""Moments of a window: one for each of sixteen stretches of it, the oldest dropped whole.

Rows that leave a window cannot be subtracted from a sum, because nobody has them any more. So the
sum is kept in buckets, each of rows that came within a sixteenth of the window's length. A bucket
is dropped when all its rows have left the window: the buckets hold the window, and what has left it
of the oldest bucket, which is less than a sixteenth more (an exponential histogram with buckets of
one size; Datar, Gionis, Indyk & Motwani 2002 have buckets that grow, for longer windows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from olss.memory.moments import SeenMoments
from olss.memory.rows import Floats, Indices

BUCKETS = 16

Change = Callable[[SeenMoments, Indices], SeenMoments]


@dataclass(frozen=True, eq=False)
class Bucket:
    """The moments of rows of neighbouring times, the oldest and the newest of which are known."""

    oldest: float
    newest: float
    moments: SeenMoments

    def join(self, other: Bucket) -> Bucket:
        """Return a bucket with the rows of both."""
        oldest, newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        return Bucket(oldest, newest, self.moments.merge(other.moments))


@dataclass(frozen=True, eq=False)
class WindowMoments:
    """Moments of the rows in a window, in buckets; every method returns a new value.

    Attributes
    ----------
    window : float
        Its length, in rows or in units of time.
    buckets : tuple of Bucket
        Oldest first. Two that end in the same sixteenth are one, unless that would be too long.
    """

    window: float
    buckets: tuple[Bucket, ...] = ()

    @cached_property
    def total(self) -> SeenMoments:
        """The moments of all rows in the buckets."""
        return self._earlier.merge(self.buckets[-1].moments) if self.buckets else SeenMoments()

    @cached_property
    def _earlier(self) -> SeenMoments:
        """The moments of all buckets but the last, which stay the same while that one fills."""
        return reduce(SeenMoments.merge, (b.moments for b in self.buckets[:-1]), SeenMoments())

    @property
    def nbytes(self) -> int:
        """Bytes it takes to hold."""
        return sum(bucket.moments.nbytes for bucket in self.buckets)

    def update(self, times: Floats, add: Change) -> WindowMoments:
        """Return the moments with rows of these times; `add` adds some of them to moments."""
        buckets = list(self.buckets)
        cells = np.ceil(times / self._length)
        for cell in np.unique(cells).tolist():
            at = np.flatnonzero(cells == cell)
            oldest, newest = float(times[at].min()), float(times[at].max())
            new = Bucket(oldest, newest, SeenMoments())
            place = next((i for i, b in enumerate(buckets) if self._are_one(b, new)), None)
            if place is None:
                buckets.append(replace(new, moments=add(new.moments, at)))
            else:
                both = buckets[place].join(new)
                buckets[place] = replace(both, moments=add(both.moments, at))
        return self._with(buckets)

    def subtract(self, times: Floats, remove: Change) -> WindowMoments:
        """Return the moments without rows that are in them."""
        starts = np.array([bucket.oldest for bucket in self.buckets])
        place = np.searchsorted(starts, times, side="right") - 1
        buckets = list(self.buckets)
        for number in np.unique(place).tolist():
            before = buckets[number]
            left = remove(before.moments, np.flatnonzero(place == number))
            buckets[number] = replace(before, moments=left)
        return self._with(bucket for bucket in buckets if bucket.moments.rows)

    def drop(self, now: float) -> WindowMoments:
        """Return the moments without buckets all of whose rows have left the window by now."""
        return self._with(b for b in self.buckets if now - b.newest < self.window)

    def shift(self, by: float) -> WindowMoments:
        """Return the moments with all times moved, as if other rows had come before."""
        moved = (replace(b, oldest=b.oldest + by, newest=b.newest + by) for b in self.buckets)
        return WindowMoments(self.window, tuple(moved))

    def merge(self, other: WindowMoments) -> WindowMoments:
        """Return the moments of the rows of both."""
        buckets: list[Bucket] = []
        for bucket in sorted((*self.buckets, *other.buckets), key=lambda b: (b.newest, b.oldest)):
            if buckets and self._are_one(buckets[-1], bucket):
                buckets[-1] = buckets[-1].join(bucket)
            else:
                buckets.append(bucket)
        return self._with(buckets)

    def map(self, change: Callable[[SeenMoments], SeenMoments | None]) -> WindowMoments | None:
        """Return the moments with each bucket's changed, or None if one of them cannot be."""
        changed = [(bucket, change(bucket.moments)) for bucket in self.buckets]
        known = [replace(bucket, moments=m) for bucket, m in changed if m is not None]
        return self._with(known) if len(known) == len(changed) else None

    @property
    def _length(self) -> float:
        return self.window / BUCKETS

    def _are_one(self, a: Bucket, b: Bucket) -> bool:
        if np.ceil(a.newest / self._length) != np.ceil(b.newest / self._length):
            return False
        return max(a.newest, b.newest) - min(a.oldest, b.oldest) < self._length

    def _with(self, buckets: Iterable[Bucket]) -> WindowMoments:
        """Return other buckets; what was added up of them is kept as long as it holds."""
        ordered = tuple(sorted(buckets, key=lambda bucket: (bucket.newest, bucket.oldest)))
        after = WindowMoments(self.window, ordered)
        if "_earlier" in vars(self) and ordered[:-1] == self.buckets[:-1]:
            vars(after)["_earlier"] = self._earlier
        return after
