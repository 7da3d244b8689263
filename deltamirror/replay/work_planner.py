"""Plan what each partition of a flow sends next, from the segment index and the offset map."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

from deltamirror.control import RESTART, ControlTable
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.staging.segment_index import IndexedSegment, SegmentIndex
from deltamirror.topics.remote_topics import RemoteTopics
from pipeline.monitoring.lag import partition_lag
from resources.delta.records_table import RecordsTable
from schemas.config.config import Config, FlowConfig
from schemas.config.flow import Flow
from schemas.errors.target import PartitionDownError, TargetChangedError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import PartitionLag
from schemas.replay.point_in_time import ReplayFlow
from schemas.replay.slot_work import (
    MissingProgressPolicy,
    PartitionWork,
    Progress,
    SlotReplayResult,
    SlotWork,
)

log = logging.getLogger(__name__)

BATCHES_PER_TICK = 8
"""Transactions that a slot sends in one tick. The offset map is written after each tick."""


class WorkPlanner:
    """Plan the next tick of one flow. No method sends a request to a cluster.

    *at* is the progress of each partition that was read from the target. `FlowReplayer` sets it.
    """

    def __init__(
        self,
        config: Config,
        flow: FlowConfig,
        segment_index: SegmentIndex,
        records: RecordsTable,
        offset_map: OffsetMap,
        remote: RemoteTopics,
    ) -> None:
        self._config, self._flow = config, flow
        self._records, self._map, self._remote_topics = records, offset_map, remote
        self.segment_index = segment_index
        self.at: dict[TopicPartition, Progress] = {}
        self._batch_bytes: dict[int, int] = {}

    def target(self, partition: TopicPartition) -> TopicPartition:
        """Return the target partition of source *partition*."""
        return TopicPartition(self._flow.remote_topic(partition.topic), partition.partition)

    def partitions(self) -> Iterator[TopicPartition]:
        """Return the staged partitions that the flow replicates."""
        return (p for p in self.segment_index.partitions() if self._flow.replicates(p.topic))

    def progress(self, partition: TopicPartition) -> Progress | None:
        """Return the progress of source *partition* that is staged and mapped; None if unknown."""
        at = self.at.get(partition)
        if at is None or partition not in self.segment_index.frontiers:
            return None
        incarnations = self.segment_index.incarnations(partition)
        mapped = self._map.end(self.target(partition), at.target_topic_id, incarnations)
        if mapped is not None:
            return mapped.progress
        # A partition that never held a record has no map.
        has_records = any(staged.link.count for staged in self.segment_index.links(partition))
        return None if has_records else at

    def partition_lag(self, partition: TopicPartition, *, is_paused: bool) -> PartitionLag:
        """Return the lag of *partition*. Unread progress is taken from the end of the map."""
        incarnations, target = self.segment_index.incarnations(partition), self.target(partition)
        return partition_lag(
            self.segment_index.frontiers[partition],
            [(staged.link, staged.oldest_ms) for staged in self.segment_index.links(partition)],
            incarnations,
            self.at.get(partition) or self._map.newest_progress(target, incarnations),
            target.topic,
            is_paused=is_paused,
        )

    def work(self, partition: TopicPartition, requests: ControlTable) -> PartitionWork | None:
        """Return the work of *partition*; None if it has nothing to send or must wait.

        It waits for its remote topic, or until a lost lake is staged again up to its progress.
        Raises TargetChangedError if no restart was requested, PartitionDownError.
        """
        target_topic_id = self._remote_topics.topic_id(partition)
        if target_topic_id is None:
            return None
        target = self.target(partition)
        at = self.at.get(partition)
        former: set[str] = set()
        if at is not None and at.target_topic_id != target_topic_id:
            former.add(at.target_topic_id)
            del self.at[partition]
            at = None
        if at is not None and self._is_being_restaged(partition, at):
            return None
        incarnations = self.segment_index.incarnations(partition)
        mapped = self._map.end(target, target_topic_id, incarnations)
        if at is None and mapped is not None:
            log.warning(
                "replay %s: the group %s has no progress of %s: replay resumes where the offset "
                "map and the target's log end",
                *(self._flow.flow, self._flow.flow.progress_group, target),
            )
        # From the map's end on, not from progress: records in between are paired and mapped first.
        links = self._pending_links(partition, mapped.progress if mapped else None)
        if not links:
            return None
        last = links[-1].link
        # A partition that never held a record has no map: it is done when progress is committed.
        if (
            at is not None
            and (at.incarnation, at.next_offset) == (last.incarnation, last.end)
            and (at == mapped.progress if mapped else last.start == last.end)
        ):
            return None
        if mapped is None:
            former |= self._map.former_topic_ids(target, target_topic_id)
        is_ordered = mapped is None and self._is_restart_requested(
            partition, target, target_topic_id, former, requests
        )
        if former and not is_ordered:
            raise TargetChangedError(target, was=sorted(former)[0], now=target_topic_id)
        reason = self._remote_topics.unavailable_reason(target)
        if reason is not None:
            start = at.next_offset if at else links[0].link.start
            raise PartitionDownError(target, start=start, end=last.end, reason=reason)
        bound = BATCHES_PER_TICK * self._config.transaction_records
        # Without progress all links are needed: the target's log, which decides where replay
        # resumes, may already hold more records than one tick sends.
        chosen = tuple(staged.link for staged in (_limit_links(links, bound, at) if at else links))
        if_unknown = (
            MissingProgressPolicy.SEARCH_OR_BEGIN if is_ordered else MissingProgressPolicy.SEARCH
        )
        return PartitionWork(partition, target, target_topic_id, chosen, mapped, if_unknown)

    def slot_works(self, works: Sequence[PartitionWork]) -> list[SlotWork]:
        """Return *works* grouped by slot, with the files that hold their records."""
        slots: dict[int, list[PartitionWork]] = {}
        for work in works:
            slots.setdefault(work.partition.slot, []).append(work)
        sequences = {
            slot: min(self.segment_index.first_sequence(w.partition, w.links[0]) for w in members)
            for slot, members in slots.items()
        }
        self._records.refresh()
        paths = self._records.paths_from(sequences)
        flow, throttled = self._flow.flow, self._batch_bytes
        return [
            slot_work(flow, slot, members, paths[slot], self._config, throttled.get(slot))
            for slot, members in sorted(slots.items())
        ]

    def adjust_batch_size(self, answer: SlotReplayResult) -> None:
        """Limit the slot's next transactions to the bytes that the target's quota allows in time.

        Without a quota the limit grows by a quarter in each tick up to `transaction_bytes`.
        """
        wished = self._config.transaction_bytes
        before = self._batch_bytes.pop(answer.slot, wished)
        fits = answer.max_transaction_bytes
        if fits is None:
            fits = before * 5 // 4 + 1
        if fits < wished:
            self._batch_bytes[answer.slot] = fits

    def _pending_links(
        self, partition: TopicPartition, at: Progress | None
    ) -> list[IndexedSegment]:
        """Return the links of *partition* from *at* on; drop earlier ones from the index."""
        if at is None:
            if self.segment_index.is_cut(partition):
                self.segment_index.read_all()
            # A new flow begins after the records that retention removed.
            return self.segment_index.retained_links(partition, self._records)
        done = link_index(self.segment_index.links(partition), at)
        self.segment_index.drop_links(partition, done)
        return self.segment_index.links(partition)

    def _is_being_restaged(self, partition: TopicPartition, at: Progress) -> bool:
        """Return whether a lost lake is being staged again and will reach progress *at*."""
        frontier = self.segment_index.frontiers[partition]
        is_same_incarnation = at.incarnation == frontier.source.topic_id
        return is_same_incarnation and frontier.next_offset < at.next_offset <= frontier.last_stable

    def _is_restart_requested(
        self,
        partition: TopicPartition,
        target: TopicPartition,
        target_topic_id: str,
        former: Collection[str],
        requests: ControlTable,
    ) -> bool:
        """Return whether an operator requested to replay *partition* into its re-created topic."""
        # A request applies to one incarnation of the target topic, which the offset map records.
        if self._map.restart_request(target.topic, target_topic_id) is not None:
            return True
        used = max((self._map.restart_request(target.topic, i) or 0 for i in former), default=0)
        unused = [
            request.number
            for request in requests.requests_for(self._flow.flow.name)
            if request.order == RESTART and request.applies_to(partition) and request.number > used
        ]
        if unused:
            self._map.record_restart(target.topic, target_topic_id, unused[-1])
        return bool(unused)


def slot_work(
    flow: Flow | ReplayFlow,
    slot: int,
    works: Iterable[PartitionWork],
    paths: Iterable[str],
    config: Config,
    throttled_bytes: int | None = None,
) -> SlotWork:
    """Return one tick's work of *slot*; *throttled_bytes* is what the target's quota allows."""
    records, size, batches = config.transaction_records, config.transaction_bytes, BATCHES_PER_TICK
    if throttled_bytes is not None:
        size, batches = throttled_bytes, 1  # one transaction takes long
    members, files = tuple(works), tuple(paths)
    return SlotWork(flow, slot, members, files, records, size, batches * records, batches * size)


def link_index(links: Sequence[IndexedSegment], at: Progress) -> int:
    """Return the index of the link that contains *at* or ends there; 0 if no link does."""
    done = [
        i
        for i, staged in enumerate(links)
        if staged.link.incarnation == at.incarnation and staged.link.start <= at.next_offset
    ]
    return done[-1] if done else 0


def _limit_links(
    links: Sequence[IndexedSegment], records: int, at: Progress
) -> list[IndexedSegment]:
    """Return *links* up to *at*, and the following ones until they hold more than *records*."""
    start, count = link_index(links, at), 0
    for i, staged in enumerate(links[start:], start + 1):
        count += staged.link.count
        if count > records and i > start + 1:
            return list(links[:i])
    return list(links)
