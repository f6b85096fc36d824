"""Moments by the time of rows: in one bucket or, with a window, one for each sixteenth of it.

Rows that leave a window cannot be subtracted from a sum, because they are gone. So the
sum is kept in buckets, each of rows that came within a sixteenth of the window's length. A bucket
is dropped when all its rows have left the window: the buckets hold the window, and what has left it
of the oldest bucket, which is less than a sixteenth more (an exponential histogram with buckets of
one size; Datar, Gionis, Indyk & Motwani 2002 have buckets that grow, for longer windows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from olss.memory.moments import SeenMoments
from olss.memory.rows import Floats, RowStore
from olss.util.threads import cached_property

BUCKETS = 16


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
class MomentBuckets:
    """Moments of all rows seen, or of those in a window; every method returns a new value.

    Attributes
    ----------
    window : float or None
        Its length, in rows or in units of time; None if rows count forever.
    buckets : tuple of Bucket
        Oldest first. Without a window, one. With a window, two that end in the same sixteenth are
        one, unless that would be too long.
    """

    window: float | None = None
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

    def split(self, rows: RowStore, times: Floats) -> list[tuple[int, Bucket, RowStore]]:
        """Return rows of these times by the bucket to add them to: its number, it, and the rows.

        Times of the rows are in the bucket already, their moments are not; see `put`.
        """
        found = list[tuple[int, Bucket, RowStore]]()
        cells = np.ceil(times / self._length)
        for cell in [0.0] if self.window is None else np.unique(cells).tolist():
            at = np.flatnonzero(cells == cell)
            some = rows if len(at) == len(rows) else rows.take(at)
            bucket = Bucket(float(times[at].min()), float(times[at].max()), SeenMoments())
            fits = (i for i, known in enumerate(self.buckets) if self._are_one(known, bucket))
            number = next(fits, len(self.buckets) + len(found))
            if number < len(self.buckets):
                bucket = self.buckets[number].join(bucket)
            found.append((number, bucket, some))
        return found

    def find(self, rows: RowStore, times: Floats) -> list[tuple[int, Bucket, RowStore]]:
        """Return rows that are in the moments by bucket: its number, it, and the rows."""
        starts = np.array([bucket.oldest for bucket in self.buckets[1:]])
        place = np.searchsorted(starts, times, side="right")
        return [
            (number, self.buckets[number], rows.take(np.flatnonzero(place == number)))
            for number in np.unique(place).tolist()
        ]

    def put(self, changed: dict[int, Bucket]) -> MomentBuckets:
        """Return the moments with some buckets changed or added; empty ones are dropped."""
        buckets = dict(enumerate(self.buckets)) | changed
        return self._with(bucket for bucket in buckets.values() if bucket.moments.rows)

    def drop(self, now: float) -> MomentBuckets:
        """Return the moments without buckets all of whose rows have left the window by now."""
        if self.window is None:
            return self
        return self._with(b for b in self.buckets if now - b.newest < self.window)

    def shift(self, by: float) -> MomentBuckets:
        """Return the moments with all times moved, as if other rows had come before."""
        moved = (replace(b, oldest=b.oldest + by, newest=b.newest + by) for b in self.buckets)
        return MomentBuckets(self.window, tuple(moved))

    def merge(self, other: MomentBuckets) -> MomentBuckets:
        """Return the moments of the rows of both."""
        buckets: list[Bucket] = []
        for bucket in sorted((*self.buckets, *other.buckets), key=lambda b: (b.newest, b.oldest)):
            if buckets and self._are_one(buckets[-1], bucket):
                buckets[-1] = buckets[-1].join(bucket)
            else:
                buckets.append(bucket)
        return self._with(buckets)

    def scale(self, share: float) -> MomentBuckets:
        """Return the moments with all weights multiplied; empty ones, where nothing is left."""
        return self._with(
            replace(b, moments=b.moments.scale(share) if share > 0 else SeenMoments())
            for b in self.buckets
        )

    def convert(self, change: Callable[[SeenMoments], SeenMoments | None]) -> MomentBuckets | None:
        """Return the moments with each bucket's changed, or None if one of them cannot be."""
        changed = [(bucket, change(bucket.moments)) for bucket in self.buckets]
        known = [replace(bucket, moments=m) for bucket, m in changed if m is not None]
        return self._with(known) if len(known) == len(changed) else None

    @property
    def _length(self) -> float:
        return np.inf if self.window is None else self.window / BUCKETS

    def _are_one(self, a: Bucket, b: Bucket) -> bool:
        if np.ceil(a.newest / self._length) != np.ceil(b.newest / self._length):
            return False
        return max(a.newest, b.newest) - min(a.oldest, b.oldest) < self._length

    def _with(self, buckets: Iterable[Bucket]) -> MomentBuckets:
        """Return other buckets; what was added up of them is kept as long as it holds."""
        ordered = tuple(sorted(buckets, key=lambda bucket: (bucket.newest, bucket.oldest)))
        after = MomentBuckets(self.window, ordered)
        if "_earlier" in vars(self) and ordered[:-1] == self.buckets[:-1]:
            vars(after)["_earlier"] = self._earlier
        return after
