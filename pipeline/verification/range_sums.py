"""Compute the digests of ranges of records: their count, contents and offsets.

If the digests are equal, two sides hold the same records with the same upstream offsets in the same
order, and single records need no comparison. Contents and offsets have separate digests, because a
segment's digest is over contents only.
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
    """Digests of contiguous ranges `[start, end)`; `add` the batches in order.

    An offset that was added before is not counted again, and the index of its range is added to
    *repeated*. Offsets outside of all ranges are ignored.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._start = self._next = ranges[0][0]
        self._ends = np.array([end for _, end in ranges], np.int64)
        self._digests = [EMPTY_RANGE] * len(ranges)
        self._range, self._count = 0, 0
        self._content, self._offsets = Digest(), xxhash.xxh3_128()
        self.repeated: set[int] = set()

    def add(self, rows: pa.RecordBatch, offsets: Offsets) -> int:
        """Add *rows*, whose upstream *offsets* increase; return how many were in a range."""
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
        """Return the digest of every range, in order."""
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
