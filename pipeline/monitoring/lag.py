"""Compute a partition's lag, in offsets and in age, from its staged ranges and its progress.

source   low ............... end          the source's offsets [low, end); end is the LSO
stage        begin ......... staged       the newest incarnation's offsets in the lake
target       ... replayed                 progress
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.flow_state import PartitionLag
from schemas.replay.slot_work import ChainLink, Progress
from schemas.staging.frontier import Frontier

_SOURCE = ["topic", "topic_id", "partition"]
SEGMENT_COLUMNS = (*_SOURCE, "start", "end", "min_timestamp_ms", "stable", "version")
"""The columns of `segments` from which the lag is computed."""


@dataclass(frozen=True, slots=True)
class StagedEnd:
    """The staged offsets `[begin, end)` of an incarnation; *stable* is the last known LSO."""

    source: SourcePartition
    begin: int
    end: int
    stable: int


def newest_staged(segments: pa.Table) -> dict[TopicPartition, StagedEnd]:
    """Return the staged range of each partition's newest incarnation, from table `segments`."""
    ends = segments.group_by(_SOURCE).aggregate(
        [("version", "max"), ("start", "min"), ("end", "max"), ("stable", "max")]
    )
    rows = ends.sort_by("version_max").to_pylist()
    staged = [StagedEnd(_source(r), r["start_min"], r["end_max"], r["stable_max"]) for r in rows]
    return {each.source.topic_partition: each for each in staged}


def replication_lag(source: Watermarks | None, staged: StagedEnd | None, replayed: int) -> int:
    """Return the number of a partition's offsets that are not on the target yet.

    Offsets that the source deleted before they were staged are not lag. Staged offsets are lag
    even if the source has deleted them. The source is read before progress, so progress can be
    past its end: the lag is then 0. *source* None: the source is down; only staged offsets count.
    """
    in_stage = max(0, staged.end - max(staged.begin, replayed)) if staged else 0
    if source is None:
        return in_stage
    next_to_stage = max(source.low, staged.end if staged else 0, replayed)
    return in_stage + max(0, source.stable - next_to_stage)


def consumer_lag(source_end: int, committed: int) -> int:
    """Return how many offsets before *source_end* a group has not read."""
    return max(0, source_end - committed)


def oldest_waiting_ms(
    segments: pa.Table, replayed: Mapping[SourcePartition, int]
) -> dict[SourcePartition, int]:
    """Return the oldest timestamp (ms since 1970) of each partition's records past *replayed*.

    A partly replayed segment counts with its oldest record. Partitions without one are left out.
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
    return {_source(row): row["min_timestamp_ms_min"] for row in oldest.to_pylist()}


def _source(row: Mapping[str, Any]) -> SourcePartition:
    return SourcePartition(row["topic"], row["topic_id"], row["partition"])


def age_ms(now_ms: int, oldest_ms: int | None, lag: int) -> int | None:
    """Return how long the oldest record has waited, in ms; 0 without lag, None: unknown."""
    # Producers set timestamps, so one may be in the future: it counts as 0 ms.
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
    """Return the lag of the partition of *frontier*, replayed up to *at* (None: not begun).

    *links*, with their smallest timestamps in ms, and *incarnations* are in the order of staging.
    Links before *at* may be missing. A partly replayed link counts with its oldest record.
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
    """Return whether any offset of *link* lies past *at*."""
    if at is None or at.incarnation not in incarnations:
        return True
    if link.incarnation == at.incarnation:
        return link.end > at.next_offset
    return incarnations.index(link.incarnation) > incarnations.index(at.incarnation)
