"""Plan the offset ranges to stage next, from watermarks and frontiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.errors.base import PartitionError
from schemas.errors.source import LogTruncatedError, RecordsExpiredError, TopicRecreatedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier, PartitionSnapshot, base_id
from schemas.staging.read_range import OffsetRange


@dataclass(frozen=True)
class StagePlan:
    """Ranges to stage next, and the errors of partitions that need an operator."""

    ranges: tuple[OffsetRange, ...] = ()
    partition_errors: Mapping[TopicPartition, PartitionError] = field(default_factory=dict)


def plan_ranges(
    seen: Mapping[TopicPartition, PartitionSnapshot],
    frontiers: Mapping[TopicPartition, Frontier],
    max_records: int,
    *,
    from_latest: bool = False,
) -> StagePlan:
    """Return the ranges to stage: `[frontier, last stable offset)` of every partition in *seen*.

    A partition without a frontier begins at its log start. With *from_latest*
    (`auto.offset.reset=latest`) it begins at its last stable offset if nothing of its topic is
    staged. All ranges together span at most *max_records* offsets, divided evenly. If the source
    does not hold the next offset of a partition, the partition has an error and no range.
    """
    wanted: list[OffsetRange] = []
    partition_errors: dict[TopicPartition, PartitionError] = {}
    known = {partition.topic for partition in frontiers}
    for partition, snapshot in sorted(seen.items()):
        skip = from_latest and partition.topic not in known
        try:
            wanted.append(_pending_range(partition, snapshot, frontiers.get(partition), skip=skip))
        except PartitionError as error:
            partition_errors[partition] = error
    pending = [r for r in wanted if r.length or r.planned_start is None]
    return StagePlan(tuple(_share_out(pending, max_records)), partition_errors)


def _pending_range(
    partition: TopicPartition, snapshot: PartitionSnapshot, frontier: Frontier | None, *, skip: bool
) -> OffsetRange:
    """Return all that is left to stage of *partition*; *skip*: begin a new one at its end."""
    watermarks = snapshot.watermarks
    if frontier is None or _is_recreated(partition, snapshot, frontier):
        fresh = SourcePartition(partition.topic, snapshot.topic_id, partition.partition)
        start = watermarks.stable if skip else watermarks.low
        return OffsetRange(fresh, start, watermarks.stable, None, None, watermarks)
    at = frontier.next_offset
    if watermarks.high < at:
        raise LogTruncatedError(partition, staged=at, end=watermarks.high)
    if watermarks.low > at:
        raise RecordsExpiredError(partition, wanted=at, low=watermarks.low)
    # The LSO of a new leader can be below the frontier for a moment.
    end = max(at, watermarks.stable)
    return OffsetRange(frontier.source, at, end, at, frontier.leader_epoch, watermarks)


def _is_recreated(
    partition: TopicPartition, snapshot: PartitionSnapshot, frontier: Frontier
) -> bool:
    """Return whether the topic was re-created. Raises TopicRecreatedError if it has a gap."""
    if base_id(frontier.source.topic_id) == snapshot.topic_id:
        return False
    at, end = frontier.next_offset, frontier.last_stable
    if at < end:
        raise TopicRecreatedError(partition, frontier=at, end=end)
    return True


def unfinished_frontier(
    partition: TopicPartition,
    frontier: Frontier | None,
    incarnations: Sequence[PartitionSnapshot],
    present: str | None,
) -> Frontier | None:
    """Return the frontier of *partition* with the last known LSO of its incarnation.

    *incarnations* are the last snapshots of each incarnation, oldest first. *present* is the
    current topic id or None. An earlier incarnation that was not staged to its last known LSO comes
    first, even if nothing of it is staged. None: the partition is new.
    """
    own = None if frontier is None else base_id(frontier.source.topic_id)
    ids = [snapshot.topic_id for snapshot in incarnations]
    if frontier is not None and own not in ids and frontier.next_offset < frontier.last_stable:
        return frontier
    for snapshot in incarnations[ids.index(own) :] if own in ids else incarnations:
        watermarks = snapshot.watermarks
        if frontier is not None and snapshot.topic_id == own:
            at = replace(frontier, last_stable=max(frontier.last_stable, watermarks.stable))
        elif snapshot.topic_id == present:
            break  # its first range will be staged as a new partition
        else:
            source = SourcePartition(partition.topic, snapshot.topic_id, partition.partition)
            at = Frontier(source, watermarks.low, None, watermarks.stable)
        if at.next_offset < at.last_stable:
            return at
    return frontier


def _share_out(ranges: Sequence[OffsetRange], max_records: int) -> list[OffsetRange]:
    """Clip *ranges* so that they span at most *max_records* together; short ones stay whole."""
    left, shared = max_records, {}
    by_length = sorted(ranges, key=lambda r: r.length)
    for i, r in enumerate(by_length):
        share = max(1, left // (len(by_length) - i))
        taken = min(r.length, share)
        left = max(0, left - taken)
        shared[r] = replace(r, end=r.start + taken)
    return [shared[r] for r in ranges]


def assign_ranges(
    ranges: Sequence[OffsetRange], workers: int, bytes_per_offset: float
) -> dict[int, list[OffsetRange]]:
    """Return *ranges* by the number of the worker that stages them: their slot mod *workers*.

    Worker 0 stages all ranges if they have less than SMALL_TICK_BYTES, so that they are one file.
    """
    if sum(r.length for r in ranges) * bytes_per_offset < SMALL_TICK_BYTES:
        workers = 1
    assigned: dict[int, list[OffsetRange]] = {}
    for r in ranges:
        assigned.setdefault(r.partition.slot % workers, []).append(r)
    return assigned


SMALL_TICK_BYTES = 2**20
"""Bytes below which one worker reads a tick: a second file costs more than it saves."""

INITIAL_TICK_BYTES = 64 * 2**20
"""About one second of staging, so that replay can begin before a long backlog is staged.

Ticks grow while there is a backlog, because larger ticks need less CPU per record.
"""


def next_tick_bytes(former: int, most: int, *, is_behind: bool) -> int:
    """Return the next tick's bound; *former* is the last one, *is_behind*: it left records."""
    return min(most, 2 * former if is_behind else INITIAL_TICK_BYTES)
