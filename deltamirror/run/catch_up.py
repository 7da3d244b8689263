"""Catch-up target: the source offsets at which a run with `--until-caught-up` may end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from deltamirror.staging.segment_index import SegmentIndex
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors.source import TopicMissingError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.slot_work import CommittedBatch, Progress
from schemas.staging.frontier import base_id


@dataclass(frozen=True)
class CatchUpTarget:
    """Topic ids and last stable offsets of a source, read at a run's start.

    An offset is None, and its partition is not caught up, until the leader has responded.
    """

    ends: Mapping[TopicPartition, tuple[str, int | None]] = field(default_factory=dict)

    @classmethod
    def at_start(cls, cluster: KafkaCluster, flows: Collection[FlowConfig]) -> CatchUpTarget:
        """Return the ends of the topics that *flows* replicate. Raises UnreachableError."""
        ends = {
            TopicPartition(name, i): (topic.topic_id, None)
            for name, topic in cluster.topics().items()
            if any(flow.replicates(name) for flow in flows)
            for i in range(topic.partitions)
        }
        return cls(ends).resolve_ends(cluster)

    def resolve_ends(self, cluster: KafkaCluster) -> CatchUpTarget:
        """Return the target with the offsets of *cluster* that were not known before.

        Known offsets are kept. A topic that was deleted or re-created is dropped. A topic that one
        broker does not know, but that the cluster lists, is kept: the broker's metadata is late.
        """
        unknown = [p for p, (_, end) in self.ends.items() if end is None]
        if not unknown:
            return self
        ends, answers = dict(self.ends), cluster.watermarks(unknown)
        missing = {p.topic for p, found in answers.items() if isinstance(found, TopicMissingError)}
        listed = cluster.topics(missing) if missing else {}
        ids = {name: topic.topic_id for name, topic in listed.items()}
        for partition, found in answers.items():
            topic_id, name = ends[partition][0], partition.topic
            if isinstance(found, Watermarks):
                ends[partition] = topic_id, found.stable
            elif name in missing and ids.get(name) != topic_id:
                del ends[partition]
        return CatchUpTarget(ends)

    def is_staged(self, segment_index: SegmentIndex, excluded: Collection[TopicPartition]) -> bool:
        """Return whether all but *excluded* is staged; an earlier incarnation counts as staged."""
        return all(
            _is_partition_staged(segment_index, p, topic_id, end)
            for p, (topic_id, end) in self.ends.items()
            if end != 0 and p not in excluded
        )

    def is_replayed(
        self,
        progress: Callable[[TopicPartition], Progress | None],
        is_included: Callable[[TopicPartition], bool],
    ) -> bool:
        """Return whether the *progress* of each partition that *is_included* reaches the target.

        Newer records may still wait for replay. Return False if a topic was re-created meanwhile.
        """
        return all(
            _is_partition_replayed(progress(p), topic_id, end)
            for p, (topic_id, end) in self.ends.items()
            if end != 0 and is_included(p)
        )

    def is_advanced_by(self, moves: Iterable[CommittedBatch]) -> bool:
        """Return whether one of *moves* started before its partition's end in the target."""
        return any(
            move.partition in self.ends
            and not _is_partition_replayed(move.before, *self.ends[move.partition])
            for move in moves
        )


def _is_partition_staged(
    segment_index: SegmentIndex, partition: TopicPartition, topic_id: str, end: int | None
) -> bool:
    if end is None:
        return False
    known = segment_index.frontiers.get(partition)
    if known is None or base_id(known.source.topic_id) != topic_id:
        return topic_id in map(base_id, segment_index.incarnations(partition))
    return known.next_offset >= end


def _is_partition_replayed(progress: Progress | None, topic_id: str, end: int | None) -> bool:
    return (
        progress is not None
        and end is not None
        and base_id(progress.incarnation) == topic_id
        and progress.next_offset >= end
    )
