"""Where the loops of a run that is to end may end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from deltamirror.staging.segment_index import SegmentIndex
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors import TopicMissingError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.slot_work import CommittedBatch, Progress
from schemas.staging.frontier import base_id


@dataclass(frozen=True)
class CatchUpTarget:
    """Topic ids and last stable offsets of a source, seen at a run's start.

    An offset is None where its leader has not told it yet: nobody is past that.
    """

    ends: Mapping[TopicPartition, tuple[str, int | None]] = field(default_factory=dict)

    @classmethod
    def at_start(
        cls, cluster: KafkaCluster, flows: Collection[FlowConfig], only: Collection[str] | None
    ) -> CatchUpTarget:
        """Return where those topics of *cluster* end that *flows* replicate, *only* these if given.

        Raises UnreachableError.
        """
        ids = {
            TopicPartition(name, i): topic.topic_id
            for name, topic in cluster.topics().items()
            if (only is None or name in only) and any(flow.replicates(name) for flow in flows)
            for i in range(topic.partitions)
        }
        return cls({p: (topic_id, None) for p, topic_id in ids.items()}).resolve_ends(cluster)

    def resolve_ends(self, cluster: KafkaCluster) -> CatchUpTarget:
        """Return the goal with what *cluster* tells now of the offsets that are not known yet.

        What it told before stays. A topic that is gone has no end to wait for; one that a broker
        does not know, but is listed, has: that broker is late.
        """
        unknown = [p for p, (_, end) in self.ends.items() if end is None]
        if not unknown:
            return self
        ends, told = dict(self.ends), cluster.watermarks(unknown)
        missing = {p.topic for p, found in told.items() if isinstance(found, TopicMissingError)}
        there = cluster.topics(missing) if missing else {}
        for partition, found in told.items():
            topic = there.get(partition.topic)
            if isinstance(found, Watermarks):
                ends[partition] = ends[partition][0], found.stable
            elif partition.topic in missing and (
                topic is None or topic.topic_id != ends[partition][0]
            ):
                del ends[partition]
        return CatchUpTarget(ends)

    def is_staged(self, segment_index: SegmentIndex, excluded: Collection[TopicPartition]) -> bool:
        """Return whether everything up to the goal is in *segment_index*, *excluded* for these.

        A life of a topic that another one has followed meanwhile is over.
        """
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
        """Return whether the *progress* of each partition that *is_included* is past the goal.

        There may be more to replay: there are topics that never rest, heartbeats first of all.
        False where a topic was made anew meanwhile.
        """
        return all(
            _is_partition_replayed(progress(p), topic_id, end)
            for p, (topic_id, end) in self.ends.items()
            if end != 0 and is_included(p)
        )

    def is_advanced_by(self, moves: Iterable[CommittedBatch]) -> bool:
        """Return whether one of *moves* was on the way to the goal, and not past it."""
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
    known = segment_index.chains.frontiers.get(partition)
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
