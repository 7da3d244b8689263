"""How far behind a partition is, in offsets and in age, from what others read. No I/O here.

source   low ............... end          what the source holds: [low, end), end is the LSO
stage        begin ......... staged       what its newest incarnation has in the lake
target       ... replayed                 progress
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.flow_state import PartitionLag
from schemas.replay.slot_work import ChainLink, Progress
from schemas.staging.frontier import Frontier

SEGMENT_COLUMNS = (
    "topic",
    "topic_id",
    "partition",
    "start",
    "end",
    "min_timestamp_ms",
    "stable",
    "version",
)
"""The columns of `segments` that measuring needs."""

_SOURCE = ["topic", "topic_id", "partition"]


@dataclass(frozen=True, slots=True)
class StagedEnd:
    """The staged offsets `[begin, end)` of an incarnation; *stable* is the last LSO seen."""

    source: SourcePartition
    begin: int
    end: int
    stable: int


def newest_staged(segments: pa.Table) -> dict[TopicPartition, StagedEnd]:
    """Return what is staged of each partition's newest incarnation, from the table `segments`."""
    ends = segments.group_by(_SOURCE).aggregate(
        [("version", "max"), ("start", "min"), ("end", "max"), ("stable", "max")]
    )
    found: dict[TopicPartition, StagedEnd] = {}
    for row in ends.sort_by("version_max").to_pylist():
        source = SourcePartition(row["topic"], row["topic_id"], row["partition"])
        found[source.topic_partition] = StagedEnd(
            source, row["start_min"], row["end_max"], row["stable_max"]
        )
    return found


def replication_lag(source: Watermarks | None, staged: StagedEnd | None, replayed: int) -> int:
    """Return how many offsets of a partition are still to be replicated.

    Offsets that left the source before they were staged are not lag; those that left it after are:
    they still lie in the stage. The source is read before progress is, so progress can be past
    its end; that is a lag of zero. *source* None: it is down, and what it has in store unknown.
    """
    in_stage = max(0, staged.end - max(staged.begin, replayed)) if staged else 0
    if source is None:
        return in_stage
    next_to_stage = max(source.low, staged.end if staged else 0, replayed)
    return in_stage + max(0, source.stable - next_to_stage)


def consumer_lag(source_end: int, committed: int) -> int:
    """Return how many offsets before *source_end* a group has not read.

    The commit can be newer than the end that is known: a lag of zero.
    """
    return max(0, source_end - committed)


def oldest_waiting_ms(
    segments: pa.Table, replayed: Mapping[SourcePartition, int]
) -> dict[SourcePartition, int]:
    """Return the oldest timestamp (ms since 1970) of what is staged past *replayed*.

    A segment that is replayed in part counts with its oldest record: the answer is never too
    young. Partitions of which nothing with a timestamp waits are left out.
    """
    if not replayed or segments.num_rows == 0:
        return {}
    progress = pa.table(
        {
            "topic": pa.array([p.topic for p in replayed], pa.string()),
            "topic_id": pa.array([p.topic_id for p in replayed], pa.string()),
            "partition": pa.array([p.partition for p in replayed], pa.int32()),
            "replayed": pa.array(replayed.values(), pa.int64()),
        }
    )
    waiting = segments.join(progress, keys=_SOURCE, join_type="inner").filter(
        (pc.field("end") > pc.field("replayed")) & (pc.field("min_timestamp_ms") >= 0)
    )
    oldest = waiting.group_by(_SOURCE).aggregate([("min_timestamp_ms", "min")])
    return {
        SourcePartition(row["topic"], row["topic_id"], row["partition"]): row[
            "min_timestamp_ms_min"
        ]
        for row in oldest.to_pylist()
    }


def age_ms(now_ms: int, oldest_ms: int | None, lag: int) -> int | None:
    """Return how long the oldest record on its way has waited: 0 where none is, None: unknown.

    A timestamp is the producer's word: one from the future waits for 0 ms.
    """
    if lag == 0:
        return 0
    return None if oldest_ms is None else max(0, now_ms - oldest_ms)


def partition_lag(
    frontier: Frontier,
    links: Sequence[tuple[ChainLink, int | None]],
    incarnations: Sequence[str],
    at: Progress | None,
    target_topic: str,
    *,
    is_paused: bool,
) -> PartitionLag:
    """Return how far the partition of *frontier* is, replayed up to *at* (None: not begun).

    *links* with their smallest timestamps, and the incarnations *incarnations*, in the order of
    staging; links before *at* may be missing. One that is replayed in part counts with its oldest
    record.
    """
    incarnation = frontier.source.topic_id
    is_here = at is not None and at.incarnation == incarnation
    replayed = at.next_offset if at is not None and is_here else 0
    begin = next((link.start for link, _ in links if link.incarnation == incarnation), replayed)
    waiting = [
        oldest_ms
        for link, oldest_ms in links
        if oldest_ms is not None and oldest_ms >= 0 and _is_waiting(link, incarnations, at)
    ]
    return PartitionLag(
        frontier.source,
        target_topic,
        begin,
        max(frontier.next_offset, replayed),
        max(frontier.last_stable, replayed),
        replayed,
        min(waiting, default=None),
        is_paused,
    )


def _is_waiting(link: ChainLink, incarnations: Sequence[str], at: Progress | None) -> bool:
    """Return whether some of *link* lies past *at*."""
    if at is None or at.incarnation not in incarnations:
        return True
    if link.incarnation == at.incarnation:
        return link.end > at.next_offset
    return incarnations.index(link.incarnation) > incarnations.index(at.incarnation)
