"""What an operator's `accept-gap` puts on record, so that a partition can go on."""

from __future__ import annotations

from dataclasses import replace

from pipeline.record_digest import Digest
from schemas.errors import (
    LogTruncatedError,
    PartitionError,
    RecordsExpiredError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition
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
    sight: PartitionSnapshot | None,
    now_ms: int,
    sequence: int,
) -> list[Segment]:
    """Return the segments without records that take a partition past *error*.

    Expired: the gap up to the log start. Re-created or deleted: the end of the former life that
    was not staged. A cut log goes on as a new incarnation from its start, because its offsets
    name other records now. Empty: nothing that can be accepted.

    *frontier* is that of the life that the gap is in; *sight* is what is there now, None: nothing,
    so that only the end of a deleted topic can be accepted.
    """
    ended = frontier_segment(frontier, now_ms, sequence)
    match error:
        case TopicRecreatedError():
            return [replace(ended, end=frontier.last_stable, gap_cause=RECREATED)]
        case TopicDeletedError():
            return [replace(ended, end=frontier.last_stable, gap_cause=DELETED)]
    if sight is None:
        return []
    watermarks = sight.watermarks
    empty = replace(ended, low=watermarks.low, high=watermarks.high)
    match error:
        case RecordsExpiredError(low=low):
            # Met while reading, it is newer than the sight.
            return [replace(empty, end=max(low, watermarks.low), gap_cause=EXPIRED)]
        case LogTruncatedError():
            return [
                replace(
                    empty,
                    topic_id=next_incarnation(frontier.source.topic_id),
                    start=watermarks.low,
                    end=watermarks.low,
                    leader_epoch=None,
                    stable=watermarks.low,
                    gap_cause=TRUNCATED,
                )
            ]
        case _:
            return []


def frontier_segment(frontier: Frontier, now_ms: int, sequence: int) -> Segment:
    """Return the segment of no offsets that keeps on record how far a life was seen to reach."""
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
    """Return where a partition is once *segment* is committed."""
    source = SourcePartition(segment.topic, segment.topic_id, segment.partition)
    return Frontier(source, segment.end, segment.leader_epoch, segment.stable)


def classify_gaps(segment: Segment, cleanup_policy: str | None) -> Segment:
    """Return *segment* with what is known of the offsets that hold no record.

    *cleanup_policy* is Kafka's setting of that name, such as `compact,delete`, asked for after
    the range was read; None: it was not told, so nothing is ruled out.
    """
    if not segment.gaps:
        return segment
    is_uncompacted = cleanup_policy is not None and "compact" not in cleanup_policy
    return replace(segment, gap_cause=UNCOMPACTED if is_uncompacted else ANY)
