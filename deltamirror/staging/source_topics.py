"""Observe the topics of a source cluster: ids, watermarks, and how far each incarnation reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from deltamirror.context import MirrorContext
from pipeline.staging.plan import unfinished_frontier
from schemas.errors.base import PartitionError
from schemas.errors.environment import PermissionMissingError
from schemas.errors.source import RangeUnfinishedError, TopicDeletedError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic
from schemas.staging.frontier import Frontier, PartitionSnapshot, base_id

log = logging.getLogger(__name__)


class SourceTopics:
    """The selected topics of source cluster *alias*, observed in each tick. Not thread-safe.

    It remembers the last watermarks of each incarnation. So a topic that is deleted or re-created
    before it was staged to its end is reported as an error, not skipped.
    """

    def __init__(self, context: MirrorContext, alias: str) -> None:
        self._context, self._alias = context, alias
        self._flows = [f for f in context.config.flows if f.flow.source == alias]
        self._from_latest = context.config.clusters[alias].auto_offset_reset == "latest"
        self._topics: dict[str, Topic] = {}
        self._topics_at = float("-inf")
        self._incarnations: dict[TopicPartition, dict[str, PartitionSnapshot]] = {}
        self._all_read_at = float("-inf")
        self._forbidden: dict[str, PermissionMissingError] = {}

    def refresh_topics(self) -> None:
        """List topics and partitions again at the next `snapshot_partitions`."""
        self._topics_at = float("-inf")

    def snapshot_partitions(
        self, only: Collection[str] | None, staged: Mapping[TopicPartition, Frontier]
    ) -> tuple[dict[TopicPartition, PartitionSnapshot], dict[TopicPartition, PartitionError]]:
        """Return topic id and watermarks of each partition, and an error of each unreadable one.

        *only* limits it to these topics. If a partition is *staged* to its last stable offset and
        that offset has not moved, its other watermarks may be `Timings.full_read_interval_s` old.
        Raises UnreachableError, RequestRefusedError.
        """
        self._list_topics()
        wanted = {n: t for n, t in self._topics.items() if only is None or n in only}
        forbidden: dict[TopicPartition, PartitionError] = {
            TopicPartition(name, i): error
            for name, error in self._forbidden.items()
            if only is None or name in only
            for i in range(wanted[name].partitions if name in wanted else 1)
        }
        partitions = [
            TopicPartition(t.name, i)
            for t in wanted.values()
            if t.name not in self._forbidden
            for i in range(t.partitions)
        ]
        if not partitions:
            return {}, forbidden
        known = self._idle_watermarks(partitions, staged)
        answers = self._context.cluster(self._alias).watermarks(partitions, known)
        seen: dict[TopicPartition, PartitionSnapshot] = {}
        lost: dict[TopicPartition, PartitionError] = {}
        for p, answer in answers.items():
            if isinstance(answer, Watermarks):
                seen[p] = PartitionSnapshot(wanted[p.topic].topic_id, answer)
            else:
                lost[p] = RangeUnfinishedError(p, at=0, end=0, reason=str(answer))
        if lost:
            self.refresh_topics()
        return self._confirm_topic_ids(seen), {**forbidden, **lost}

    def pending_frontiers(
        self, staged: Mapping[TopicPartition, Frontier]
    ) -> dict[TopicPartition, Frontier]:
        """Return the frontiers to plan from: *staged*, with the ends that were seen since.

        See `unfinished_frontier`. With `auto.offset.reset=latest`, unstaged topics have none.
        """
        known = {partition.topic for partition in staged}
        frontiers = dict(staged)
        for partition, incarnations in self._incarnations.items():
            if self._from_latest and partition.topic not in known:
                continue
            snapshots, present = list(incarnations.values()), self._current_topic_id(partition)
            found = unfinished_frontier(partition, staged.get(partition), snapshots, present)
            if found is not None:
                frontiers[partition] = found
        return frontiers

    def deleted_partitions(
        self, pending_frontiers: Mapping[TopicPartition, Frontier], only: Collection[str] | None
    ) -> dict[TopicPartition, TopicDeletedError]:
        """Return an error for each partition that was deleted before it was staged to its end."""
        return {
            p: TopicDeletedError(p, frontier=f.next_offset, end=f.last_stable)
            for p, f in pending_frontiers.items()
            if f.next_offset < f.last_stable
            and (only is None or p.topic in only)
            and self._current_topic_id(p) is None
            and self._is_selected(p.topic)
        }

    def _idle_watermarks(
        self, partitions: Collection[TopicPartition], staged: Mapping[TopicPartition, Frontier]
    ) -> dict[TopicPartition, Watermarks]:
        """Return the last watermarks of idle partitions; none if all are due to be read."""
        # Records of an open transaction raise the high watermark, but not the last stable offset.
        now = time.monotonic()
        if now >= self._all_read_at + self._context.timings.full_read_interval_s:
            self._all_read_at = now
            return {}
        idle = {}
        for p in partitions:
            snapshot = self._incarnations.get(p, {}).get(self._topics[p.topic].topic_id)
            at = staged.get(p)
            if (
                snapshot is not None
                and at is not None
                and at.next_offset == snapshot.watermarks.stable
                and base_id(at.source.topic_id) == snapshot.topic_id
            ):
                idle[p] = snapshot.watermarks
        return idle

    def _list_topics(self) -> None:
        intervals = [f.refresh_topics_interval_s for f in self._flows]
        interval_s = min((s for s in intervals if s is not None), default=float("inf"))
        if self._topics and time.monotonic() < self._topics_at + interval_s:
            return
        cluster = self._context.cluster(self._alias)
        found = cluster.topics()
        self._topics = {name: topic for name, topic in found.items() if self._is_selected(name)}
        self._topics_at = time.monotonic()
        # A topic that the user may not describe is not listed, so no pattern can match it.
        unseen = {
            name
            for flow in self._flows
            for name in flow.topics.names
            if flow.replicates(name) and name not in found
        }
        forbidden = cluster.unauthorized_topics(unseen) if unseen else {}
        for name, topic in self._topics.items():
            if topic.is_denied("READ"):
                needed = Permission("Read", "topic", name)
                forbidden[name] = PermissionMissingError(
                    self._alias, f"allow reads of topic {name}", needed
                )
        for name in forbidden.keys() - self._forbidden.keys():
            log.warning("%s", forbidden[name])
        self._forbidden = forbidden

    def _is_selected(self, topic: str) -> bool:
        return any(flow.replicates(topic) for flow in self._flows)

    def _confirm_topic_ids(
        self, seen: dict[TopicPartition, PartitionSnapshot]
    ) -> dict[TopicPartition, PartitionSnapshot]:
        """Return and remember the snapshots of topics whose ids have not changed."""
        # Watermarks are requested by name, so they may be of a newer incarnation than was listed.
        news = {p: s for p, s in seen.items() if self._incarnations.get(p, {}).get(s.topic_id) != s}
        names = {p.topic for p in news}
        now = self._context.cluster(self._alias).topics(names) if names else {}
        changed = {n for n in names if n not in now or now[n].topic_id != self._topics[n].topic_id}
        if changed:
            self.refresh_topics()
        for p, snapshot in news.items():
            if p.topic not in changed:
                self._incarnations.setdefault(p, {})[snapshot.topic_id] = snapshot
        return {p: s for p, s in seen.items() if p.topic not in changed}

    def _current_topic_id(self, partition: TopicPartition) -> str | None:
        """Return the topic id of *partition* when topics were last listed; None if it is gone."""
        topic = self._topics.get(partition.topic)
        return topic.topic_id if topic and partition.partition < topic.partitions else None
