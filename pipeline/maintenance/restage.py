"""Check staged files against their segments, and plan how to stage damaged segments again.

A segment has the number and the digest of its records. They show whether a file that was
truncated, rewritten by another program or restored from a backup still holds the segment's exact
records, and whether records from another source are the same records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa

from pipeline.maintenance.compaction import PartitionRows
from pipeline.record_digest import Digest
from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import Segment

NO_SEGMENT = -1

GROUP_MEMORY_BYTES = 256 * 2**20
"""Upper bound of the rows of one new file, which are in memory at the same time."""


class SegmentLookup:
    """Look up the segment to which a record belongs, among *segments*."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._of: dict[SourcePartition, list[Segment]] = {}
        for segment in segments:
            if segment.count:
                self._of.setdefault(segment.source, []).append(segment)
        for held in self._of.values():
            held.sort(key=lambda segment: segment.start)
        self._edges = {
            p: (np.array([s.start for s in held]), np.array([s.end for s in held]))
            for p, held in self._of.items()
        }

    def split(
        self, source: SourcePartition, rows: pa.RecordBatch
    ) -> Iterator[tuple[Segment, pa.RecordBatch]]:
        """Yield *rows* split at the bounds of segments, without rows that are in no segment."""
        if source not in self._of:
            return
        offsets = rows.column("offset").to_numpy()
        starts, ends = self._edges[source]
        segment_indexes = np.searchsorted(starts, offsets, side="right") - 1
        segment_indexes[(segment_indexes >= 0) & (offsets >= ends[segment_indexes])] = NO_SEGMENT
        changes = np.flatnonzero(segment_indexes[1:] != segment_indexes[:-1]) + 1
        for start, end in pairwise([0, *changes.tolist(), len(offsets)]):
            if segment_indexes[start] != NO_SEGMENT:
                yield self._of[source][segment_indexes[start]], rows.slice(start, end - start)

    def take(self, rows: Iterable[PartitionRows]) -> tuple[set[Segment], set[Segment]]:
        """Return the segments that *rows* hold completely and in order, and the damaged ones."""
        found: dict[Segment, tuple[int, int, Digest]] = {}
        torn: set[Segment] = set()
        for source, batch in rows:
            for segment, part in self.split(source, batch):
                count, last, digest = found.get(segment, (0, -1, Digest()))
                offsets = part.column("offset").to_numpy()
                if (np.diff(offsets, prepend=last) <= 0).any():
                    torn.add(segment)
                digest.add(part)
                found[segment] = (count + part.num_rows, int(offsets[-1]), digest)
        torn |= {
            segment
            for segment, (count, _, digest) in found.items()
            if (count, digest.hexdigest()) != (segment.count, segment.digest)
        }
        return set(found) - torn, torn


def is_intact(segment: Segment, rows: pa.Table) -> bool:
    """Return whether *rows* are the records of *segment*, in order."""
    if rows.num_rows != segment.count:
        return False
    digest = Digest()
    for batch in rows.to_batches():
        digest.add(batch)
    return digest.hexdigest() == segment.digest


def group_segments(segments: Iterable[Segment], others: Sequence[int]) -> list[list[Segment]]:
    """Return *segments* of a slot in groups; each group can be written as one file.

    *others* are the sorted sequences of the slot's files that stay: no group spans one of them.
    Segments of one sequence are in one group, of about GROUP_MEMORY_BYTES at most.
    """
    made: list[list[Segment]] = []
    size, gap_index = 0, -1
    for sequence, members in groupby(sorted(segments, key=_order), key=lambda s: s.sequence):
        held = list(members)
        size_bytes = sum(segment.size_bytes for segment in held)
        if (
            not made
            or bisect_left(others, sequence) != gap_index
            or size + size_bytes > GROUP_MEMORY_BYTES
        ):
            made.append([])
            size, gap_index = 0, bisect_left(others, sequence)
        made[-1] += held
        size += size_bytes
    return made


def join_contiguous(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Return *segments* in groups; the segments of a group are contiguous in one partition."""
    runs: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda s: (s.source, s.start)):
        last = runs[-1][-1] if runs else None
        if last is not None and (last.source, last.end) == (segment.source, segment.start):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def sort_for_file(segments: Iterable[Segment]) -> list[Segment]:
    """Return *segments* in a file's order: by topic and partition, then in the order of staging."""
    return sorted(segments, key=lambda s: (s.topic, s.partition, *_order(s)))


def _order(segment: Segment) -> tuple[int, int]:
    return segment.sequence, segment.start
