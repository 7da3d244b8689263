"""What ranges of records come to: how many, a digest of their contents and one of their offsets.

Where these are equal, two sides hold the same records under the same upstream offsets in the same
order, and nobody has to lay them side by side. Offsets have a digest of their own because contents
are told without them: that part is what a segment has kept since it was staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.arrays import Offsets
from pipeline.record_digest import Digest


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """A range's records: *count*, digest of their *content*, digest of their upstream *offsets*."""

    count: int
    content: str
    offsets: str


EMPTY_RANGE = RangeDigest(0, Digest().hexdigest(), xxhash.xxh3_128().hexdigest())
"""A range without records."""


class RangeDigests:
    """The sums of ranges `[start, end)` that lie one behind another; `add` batches in order.

    An offset that was there before is left out and its range is in *repeated*, by number; so are
    offsets outside of all ranges, but those are nobody's.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._start = self._next = ranges[0][0]
        self._ends = np.array([end for _, end in ranges], np.int64)
        self._digests = [EMPTY_RANGE] * len(ranges)
        self._range, self._count = 0, 0
        self._content, self._offsets = Digest(), xxhash.xxh3_128()
        self.repeated: set[int] = set()

    def add(self, rows: pa.RecordBatch, offsets: Offsets) -> int:
        """Take in *rows*, whose upstream *offsets* rise; return how many were in a range."""
        first, last = np.searchsorted(offsets, [self._start, self._ends[-1]]).tolist()
        again = first + int(np.searchsorted(offsets[first:last], self._next))
        self.repeated |= set(self._ranges(offsets[first:again]).tolist())
        rows, offsets = rows.slice(again, last - again), offsets[again:last]
        if not len(offsets):
            return 0
        self._next = int(offsets[-1]) + 1
        ranges = self._ranges(offsets)
        edges = [0, *(np.flatnonzero(np.diff(ranges)) + 1).tolist(), len(offsets)]
        for start, stop in pairwise(edges):
            self._add(int(ranges[start]), rows.slice(start, stop - start), offsets[start:stop])
        return len(offsets)

    def digests(self) -> list[RangeDigest]:
        """Return the sum of every range, in their order."""
        self._close()
        return self._digests

    def _ranges(self, offsets: Offsets) -> Offsets:
        return np.searchsorted(self._ends, offsets, side="right")

    def _add(self, number: int, rows: pa.RecordBatch, offsets: Offsets) -> None:
        if number != self._range:
            self._close()
            self._range, self._count = number, 0
            self._content, self._offsets = Digest(), xxhash.xxh3_128()
        self._count += len(offsets)
        self._content.add(rows)
        self._offsets.update(np.ascontiguousarray(offsets).data)

    def _close(self) -> None:
        if self._count:
            digests = self._content.hexdigest(), self._offsets.hexdigest()
            self._digests[self._range] = RangeDigest(self._count, *digests)
