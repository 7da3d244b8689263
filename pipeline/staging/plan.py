"""Watermarks and frontiers in, the offset ranges to stage next out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.errors import (
    LogTruncatedError,
    PartitionError,
    RecordsExpiredError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier, PartitionSnapshot, base_id
from schemas.staging.read_range import OffsetRange


@dataclass(frozen=True)
class StagePlan:
    """Ranges to stage next, and the partitions that have to wait for an operator."""

    ranges: tuple[OffsetRange, ...] = ()
    partition_errors: Mapping[TopicPartition, PartitionError] = field(default_factory=dict)


def plan_ranges(
    seen: Mapping[TopicPartition, PartitionSnapshot],
    frontiers: Mapping[TopicPartition, Frontier],
    max_records: int,
    *,
    from_latest: bool = False,
) -> StagePlan:
    """Return what to stage next: `[frontier, last stable offset)` of every partition seen.

    A partition new to us begins at its log start; with *from_latest* (`auto.offset.reset=latest`)
    those of a topic of which nothing is staged yet begin at their last stable offset instead.
    Together the ranges span at most *max_records* offsets, shared out evenly. A partition whose
    source does not hold what has to come next is in `partition_errors` and in no range (DESIGN
    2.1).
    """
    wanted: list[OffsetRange] = []
    partition_errors: dict[TopicPartition, PartitionError] = {}
    known = {partition.topic for partition in frontiers}
    for partition, sight in sorted(seen.items()):
        skip = from_latest and partition.topic not in known
        try:
            wanted.append(_pending_range(partition, sight, frontiers.get(partition), skip=skip))
        except PartitionError as error:
            partition_errors[partition] = error
    pending = [r for r in wanted if r.length or r.planned_start is None]
    return StagePlan(tuple(_share_out(pending, max_records)), partition_errors)


def _pending_range(
    partition: TopicPartition, sight: PartitionSnapshot, frontier: Frontier | None, *, skip: bool
) -> OffsetRange:
    """Return all that could be staged of *partition*; *skip* what a new one holds already.

    Raises PartitionError: not staged on.
    """
    watermarks = sight.watermarks
    if frontier is None or _is_recreated(partition, sight, frontier):
        fresh = SourcePartition(partition.topic, sight.topic_id, partition.partition)
        start = watermarks.stable if skip else watermarks.low
        return OffsetRange(fresh, start, watermarks.stable, None, None, watermarks)
    at = frontier.next_offset
    if watermarks.high < at:
        raise LogTruncatedError(partition, staged=at, end=watermarks.high)
    if watermarks.low > at:
        raise RecordsExpiredError(partition, wanted=at, low=watermarks.low)
    # The LSO can be behind the frontier for a moment, while a new leader learns it.
    end = max(at, watermarks.stable)
    return OffsetRange(frontier.source, at, end, at, frontier.leader_epoch, watermarks)


def _is_recreated(partition: TopicPartition, sight: PartitionSnapshot, frontier: Frontier) -> bool:
    """Return whether the topic was made anew since.

    Raises TopicRecreatedError where its former life has an end that was seen and not staged.
    """
    if base_id(frontier.source.topic_id) == sight.topic_id:
        return False
    if frontier.next_offset < frontier.last_stable:
        raise TopicRecreatedError(
            partition, frontier=frontier.next_offset, end=frontier.last_stable
        )
    return True


def unfinished_frontier(
    partition: TopicPartition,
    frontier: Frontier | None,
    incarnations: Sequence[PartitionSnapshot],
    present: str | None,
) -> Frontier | None:
    """Return the frontier of *partition* with the last stable offset that was seen of its life.

    *incarnations* are the last sights of each of its lives, oldest first; *present* is the topic id
    of the one it has now (None: it is gone). If a life before that was not staged to the end that
    was seen of it, the answer is where that one stands, also where nothing of it is staged. None:
    the partition is new to us and nothing is owed.
    """
    own = None if frontier is None else base_id(frontier.source.topic_id)
    ids = [sight.topic_id for sight in incarnations]
    if frontier is not None and own not in ids and frontier.next_offset < frontier.last_stable:
        return frontier
    for sight in incarnations[ids.index(own) :] if own in ids else incarnations:
        watermarks = sight.watermarks
        if frontier is not None and sight.topic_id == own:
            at = replace(frontier, last_stable=max(frontier.last_stable, watermarks.stable))
        elif sight.topic_id == present:
            break  # its first range is yet to be staged
        else:
            source = SourcePartition(partition.topic, sight.topic_id, partition.partition)
            at = Frontier(source, watermarks.low, None, watermarks.stable)
        if at.next_offset < at.last_stable:
            return at
    return frontier


def _share_out(ranges: Sequence[OffsetRange], max_records: int) -> list[OffsetRange]:
    """Cut *ranges* so that together they span at most *max_records*; short ones stay whole."""
    left, shared = max_records, {}
    by_length = sorted(ranges, key=lambda r: r.length)
    for i, r in enumerate(by_length):
        share = max(1, left // (len(by_length) - i))
        taken = min(r.length, share)
        left = max(0, left - taken)
        shared[r] = _clip_range(r, r.start + taken)
    return [shared[r] for r in ranges]


def _clip_range(r: OffsetRange, end: int) -> OffsetRange:
    return OffsetRange(r.partition, r.start, end, r.planned_start, r.leader_epoch, r.watermarks)


def bundle_ranges(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Return *ranges* dealt to at most *tasks* tasks, by size, each slot in one task only.

    A slot is never shared: its file is written by one task (DESIGN 2).
    """
    slots: dict[int, list[OffsetRange]] = {}
    for r in ranges:
        slots.setdefault(r.partition.slot, []).append(r)
    bundles: list[list[OffsetRange]] = [[] for _ in range(min(tasks, len(slots)))]
    sizes = [0] * len(bundles)
    for group in sorted(slots.values(), key=lambda g: -sum(r.length for r in g)):
        i = sizes.index(min(sizes))
        bundles[i].extend(group)
        sizes[i] += sum(r.length for r in group) + 1
    return bundles


INITIAL_TICK_BYTES = 64 * 2**20
"""A second's work, about: replay has something to send before a long backlog is staged.

Larger ticks need less CPU a record, so it is not all that a long backlog gets.
"""


def next_tick_bytes(former: int, most: int, *, is_behind: bool) -> int:
    """Return how many bytes the next tick may stage, *most* at most.

    *former* is what the last one was allowed; *is_behind* whether it left some of what there was.
    """
    return min(most, 2 * former if is_behind else INITIAL_TICK_BYTES)
