"""Select the staged ranges of a point-in-time replay, and clip its links to them.

staged      [0, 10) [10, 25) [25, 40)       selected: from 4 to 30
links       [4, 10) [10, 25) [25, 30)       the first and the last are cut

A cut link has the exact number of its records, so a replay that misses one raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline.replay.segment_chain import RowCounter, cut_link
from schemas.errors.lake import StageIncompleteError
from schemas.kafka.partition import SourcePartition
from schemas.replay.point_in_time import ReplayRange, Selection
from schemas.replay.slot_work import ChainLink
from schemas.staging.segment import Segment

KeptFrom = Callable[[SourcePartition], int | None]
SegmentReader = Callable[[Segment], Iterator[pa.RecordBatch]]


def select_ranges(
    segments: Iterable[Segment], wanted: Selection, kept_from: KeptFrom, records: SegmentReader
) -> list[ReplayRange]:
    """Return the ranges of one topic that *wanted* selects, by partition, oldest incarnation first.

    *segments* are the topic's, in the order of staging. *kept_from* returns the first offset that
    retention kept (None: all are kept). *records* reads a segment.
    """
    incarnations: dict[int, dict[str, list[Segment]]] = {}
    staged_at_ms: dict[int, int] = {}
    for segment in segments:
        # Not older than the segment before it, even if the clock was set back: otherwise the
        # selection could have a hole.
        last_ms = max(staged_at_ms.get(segment.partition, 0), segment.staged_at_ms)
        staged_at_ms[segment.partition] = last_ms
        if wanted.partition in (None, segment.partition) and (
            wanted.as_of_ms is None or last_ms <= wanted.as_of_ms
        ):
            incarnations.setdefault(segment.partition, {}).setdefault(segment.topic_id, []).append(
                segment
            )
    is_by_offset = (wanted.from_offset, wanted.to_offset) != (None, None)
    ranges = []
    for _, own in sorted(incarnations.items()):
        newest = list(own)[-1]
        for incarnation, held in own.items():
            if incarnation == newest or not is_by_offset:
                ranges.append(_range(held, wanted, kept_from, records))
    return [each for each in ranges if each.start < each.end]


def clip_links(
    segments: Iterable[Segment], ranges: Iterable[ReplayRange], count: RowCounter
) -> tuple[ChainLink, ...]:
    """Return *segments* of one partition as links clipped to *ranges*, in the order of staging.

    Raises StageIncompleteError if not all records of a clipped segment are staged.
    """
    by_incarnation = {each.incarnation: each for each in ranges}
    links = []
    for segment in segments:
        wanted = by_incarnation.get(segment.topic_id)
        if wanted is None:
            continue
        if max(segment.start, wanted.start) < min(segment.end, wanted.end):
            link = ChainLink(segment.topic_id, segment.start, segment.end, segment.count)
            partition = segment.source.topic_partition
            links.append(cut_link(link, partition, wanted.start, wanted.end, count))
    return tuple(links)


def offset_for_time(segments: Sequence[Segment], at_ms: int, records: SegmentReader) -> int | None:
    """Return the offset of the first record at or after *at_ms*, as in `offsets_for_times`.

    Raises StageIncompleteError if a segment that may hold it does not have all its records.
    """
    for segment in segments:
        if segment.max_timestamp_ms is None or segment.max_timestamp_ms < at_ms:
            continue
        seen, found = 0, None
        for batch in records(segment):
            offsets = batch.column("offset").to_numpy()
            offsets = offsets[: np.searchsorted(offsets, segment.end)]
            seen += len(offsets)
            times = batch.column("timestamp_ms").fill_null(-1).to_numpy()[: len(offsets)]
            hits = np.flatnonzero(times >= at_ms)
            if found is None and len(hits):
                found = int(offsets[hits[0]])
            if seen == segment.count:
                break
        if seen != segment.count:
            raise StageIncompleteError(
                segment.source.topic_partition,
                wanted=segment.start,
                found=None,
                counted=segment.count,
            )
        if found is not None:
            return found
    return None


def _range(
    held: Sequence[Segment], wanted: Selection, kept_from: KeptFrom, records: SegmentReader
) -> ReplayRange:
    """Return the selected range of one incarnation of a partition; it may be empty."""
    start = max(held[0].start, kept_from(held[0].source) or 0)
    end = held[-1].end
    there = [segment for segment in held if segment.end > start]
    if wanted.from_offset is not None:
        start = max(start, wanted.from_offset)
    if wanted.to_offset is not None:
        end = min(end, wanted.to_offset)
    whole_end = end
    if wanted.to_time_ms is not None:
        found = offset_for_time(there, wanted.to_time_ms, records)
        end = whole_end if found is None else found
    if wanted.from_time_ms is not None:
        found = offset_for_time(there, wanted.from_time_ms, records)
        start = whole_end if found is None else found
    return ReplayRange(held[0].partition, held[0].topic_id, start, end)
