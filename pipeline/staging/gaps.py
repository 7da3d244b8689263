"""Gaps of segments: classify their causes, and record gaps that `accept-gap` accepts."""

from __future__ import annotations

from dataclasses import replace

from pipeline.record_digest import Digest
from schemas.errors.base import PartitionError
from schemas.errors.source import (
    LogTruncatedError,
    RecordsExpiredError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.staging.frontier import Frontier, PartitionSnapshot, next_incarnation
from schemas.staging.segment import (
    ANY,
    DELETED,
    EXPIRED,
    RECREATED,
    TRUNCATED,
    UNCOMPACTED,
    Segment,
)


def accept_gap(
    error: PartitionError,
    frontier: Frontier,
    snapshot: PartitionSnapshot | None,
    now_ms: int,
    sequence: int,
) -> list[Segment]:
    """Return the segments without records that move a partition's frontier past *error*.

    - Expired records: the gap up to the log start.
    - Re-created or deleted topic: the end of the previous incarnation that was not staged.
    - Truncated log: no gap, but a new incarnation from the log start, because the offsets belong
      to other records now.

    The list is empty if *error* cannot be accepted. *frontier* belongs to the incarnation with the
    gap. *snapshot* is the current partition; None: it does not exist, so only the end of a
    re-created or deleted topic can be accepted.
    """
    ended = frontier_segment(frontier, now_ms, sequence)
    match error:
        case TopicRecreatedError():
            return [replace(ended, end=frontier.last_stable, gap_cause=RECREATED)]
        case TopicDeletedError():
            return [replace(ended, end=frontier.last_stable, gap_cause=DELETED)]
    if snapshot is None:
        return []
    watermarks = snapshot.watermarks
    empty = replace(ended, low=watermarks.low, high=watermarks.high)
    match error:
        case RecordsExpiredError(low=low):
            # An error that was raised while reading is newer than the snapshot.
            return [replace(empty, end=max(low, watermarks.low), gap_cause=EXPIRED)]
        case LogTruncatedError():
            low, topic_id = watermarks.low, next_incarnation(frontier.source.topic_id)
            fresh = replace(empty, topic_id=topic_id, start=low, end=low, leader_epoch=None)
            return [replace(fresh, stable=low, gap_cause=TRUNCATED)]
    return []


def frontier_segment(frontier: Frontier, now_ms: int, sequence: int) -> Segment:
    """Return an empty segment that records the last known stable offset of an incarnation."""
    at = frontier.next_offset
    return Segment(
        topic=frontier.source.topic,
        topic_id=frontier.source.topic_id,
        partition=frontier.source.partition,
        start=at,
        end=at,
        count=0,
        size_bytes=0,
        first=None,
        last=None,
        min_timestamp_ms=None,
        max_timestamp_ms=None,
        leader_epoch=frontier.leader_epoch,
        low=min(at, frontier.last_stable),
        stable=frontier.last_stable,
        high=frontier.last_stable,
        gap_cause="",
        digest=Digest().hexdigest(),
        staged_at_ms=now_ms,
        sequence=sequence,
    )


def frontier_after(segment: Segment) -> Frontier:
    """Return a partition's frontier after *segment* is committed."""
    return Frontier(segment.source, segment.end, segment.leader_epoch, segment.stable)


def classify_gaps(segment: Segment, cleanup_policy: str | None) -> Segment:
    """Return *segment* with the cause of its gaps. *cleanup_policy* None: it is unknown."""
    if not segment.gaps:
        return segment
    is_uncompacted = cleanup_policy is not None and "compact" not in cleanup_policy
    return replace(segment, gap_cause=UNCOMPACTED if is_uncompacted else ANY)
