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
from schemas.staging.frontier import Frontier, Sight, base_id
from schemas.staging.read_range import OffsetRange


@dataclass(frozen=True)
class Plan:
    """Ranges to stage next, and the partitions that have to wait for an operator."""

    ranges: tuple[OffsetRange, ...] = ()
    troubles: Mapping[TopicPartition, PartitionError] = field(default_factory=dict)


def plan(
    seen: Mapping[TopicPartition, Sight],
    frontiers: Mapping[TopicPartition, Frontier],
    max_records: int,
    *,
    from_latest: bool = False,
) -> Plan:
    """Return what to stage next: `[frontier, last stable offset)` of every partition seen.

    A partition new to us begins at its log start; with *from_latest* (`auto.offset.reset=latest`)
    those of a topic of which nothing is staged yet begin at their last stable offset instead.
    Together the ranges span at most *max_records* offsets, shared out evenly. A partition whose
    source does not hold what has to come next is in `troubles` and in no range (DESIGN 2.1).
    """
    wanted: list[OffsetRange] = []
    troubles: dict[TopicPartition, PartitionError] = {}
    known = {partition.topic for partition in frontiers}
    for partition, sight in sorted(seen.items()):
        skip = from_latest and partition.topic not in known
        try:
            wanted.append(_pending(partition, sight, frontiers.get(partition), skip=skip))
        except PartitionError as error:
            troubles[partition] = error
    pending = [r for r in wanted if r.length or r.planned_start is None]
    return Plan(tuple(_share_out(pending, max_records)), troubles)


def _pending(
    partition: TopicPartition, sight: Sight, frontier: Frontier | None, *, skip: bool
) -> OffsetRange:
    """Return all that could be staged of *partition*; *skip* what a new one holds already.

    Raises PartitionError: not staged on.
    """
    marks = sight.watermarks
    if frontier is None or _is_another_life(partition, sight, frontier):
        fresh = SourcePartition(partition.topic, sight.topic_id, partition.partition)
        start = marks.stable if skip else marks.low
        return OffsetRange(fresh, start, marks.stable, None, None, marks)
    at = frontier.next_offset
    if marks.high < at:
        raise LogTruncatedError(partition, staged=at, end=marks.high)
    if marks.low > at:
        raise RecordsExpiredError(partition, wanted=at, low=marks.low)
    # The LSO can be behind the frontier for a moment, while a new leader learns it.
    end = max(at, marks.stable)
    return OffsetRange(frontier.source, at, end, at, frontier.leader_epoch, marks)


def _is_another_life(partition: TopicPartition, sight: Sight, frontier: Frontier) -> bool:
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


def unfinished(
    partition: TopicPartition,
    frontier: Frontier | None,
    lives: Sequence[Sight],
    present: str | None,
) -> Frontier | None:
    """Return the frontier of *partition* with the last stable offset that was seen of its life.

    *lives* are the last sights of each of its lives, oldest first; *present* is the topic id of
    the one it has now (None: it is gone). If a life before that was not staged to the end that was
    seen of it, the answer is where that one stands, also where nothing of it is staged. None: the
    partition is new to us and nothing is owed.
    """
    own = None if frontier is None else base_id(frontier.source.topic_id)
    ids = [sight.topic_id for sight in lives]
    if frontier is not None and own not in ids and frontier.next_offset < frontier.last_stable:
        return frontier
    for sight in lives[ids.index(own) :] if own in ids else lives:
        marks = sight.watermarks
        if frontier is not None and sight.topic_id == own:
            at = replace(frontier, last_stable=max(frontier.last_stable, marks.stable))
        elif sight.topic_id == present:
            break  # its first range is yet to be staged
        else:
            source = SourcePartition(partition.topic, sight.topic_id, partition.partition)
            at = Frontier(source, marks.low, None, marks.stable)
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
        shared[r] = _cut(r, r.start + taken)
    return [shared[r] for r in ranges]


def _cut(r: OffsetRange, end: int) -> OffsetRange:
    return OffsetRange(r.partition, r.start, end, r.planned_start, r.leader_epoch, r.watermarks)


def bundle(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
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


FIRST_BYTES = 64 * 2**20
"""A second's work, about: replay has something to send before a long backlog is staged.

Larger ticks need less CPU a record, so it is not all that a long backlog gets.
"""


def next_budget(former: int, most: int, *, is_behind: bool) -> int:
    """Return how many bytes the next tick may stage, *most* at most.

    *former* is what the last one was allowed; *is_behind* whether it left some of what there was.
    """
    return min(most, 2 * former if is_behind else FIRST_BYTES)
