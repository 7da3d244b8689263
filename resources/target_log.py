"""What a target cluster says of its logs: where they end, what lies in them, whose they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from resources.cluster import KafkaCluster
from resources.reader import RangeReader
from schemas.errors import DeltamirrorError, PartitionError, RangeUnfinishedError, UnreachableError
from schemas.offset_range import OffsetRange
from schemas.topic_partition import SourcePartition, TopicPartition
from schemas.watermarks import Watermarks

POLICY, IN_SYNC = "cleanup.policy", "min.insync.replicas"


class TargetLog:
    """The logs of cluster *alias*, read with librdkafka's consumer *settings*."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self._settings_to_read = dict(settings)
        self._cluster = KafkaCluster(alias, settings)

    def ends(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | PartitionError]:
        """Return the high watermark of each of *partitions*, or why it is not told.

        Raises UnreachableError.
        """
        return {p: _told(p, end) for p, end in self._cluster.ends(partitions).items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the present id of each of *topics* that is there. Raises UnreachableError."""
        return {name: topic.topic_id for name, topic in self._cluster.topics(topics).items()}

    def begins(self, partition: TopicPartition) -> int:
        """Return the log start of *partition*. Raises RangeUnfinishedError: no answer."""
        return self._watermarks(partition).low

    def is_compacted(self, partition: TopicPartition) -> bool:
        """Return whether the topic's `cleanup.policy` has compaction; not to be told counts as no.

        Raises UnreachableError.
        """
        return "compact" in (self._setting(partition.topic, POLICY) or "")

    def read_back(
        self, partition: TopicPartition, start: int, take: Callable[[pa.RecordBatch], None]
    ) -> None:
        """Give *take* the committed records of *partition* from *start* to its high watermark.

        Raises RangeUnfinishedError, with the reason where somebody's open transaction hides them.
        """
        marks = self._watermarks(partition)
        low, high = marks.low, marks.high
        start = max(start, low)
        if start >= high:
            return
        source = SourcePartition(partition.topic, "", partition.partition)
        wanted = OffsetRange(source, start, high, None, None, Watermarks(low, high, high))
        reader = RangeReader(self._settings_to_read)
        try:
            while wanted.start < wanted.end:
                reached = reader.read([wanted], 2**26, lambda _, rows: take(rows))[wanted]
                if reached.error is not None:
                    raise self._explained(partition, high, reached.error)
                wanted = OffsetRange(source, reached.end, high, None, None, wanted.watermarks)
        finally:
            reader.close()

    def why_silent(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Return why the cluster takes nothing for those of *partitions* of which it is known.

        Raises UnreachableError.
        """
        found = {}
        self._cluster.probe()
        replicas = self._cluster.in_sync(partitions)
        for partition in partitions:
            there = replicas.get(partition)
            needed = int(self._setting(partition.topic, IN_SYNC) or 1)
            if there is None:
                found[partition] = "it has no leader"
            elif there < needed:
                found[partition] = f"{there} of its replicas are in sync, {IN_SYNC} is {needed}"
        return found

    def _explained(
        self, partition: TopicPartition, end: int, error: PartitionError
    ) -> PartitionError:
        """Return *error*, or what is known to be behind it."""
        marks = self._watermarks(partition)
        if marks.stable >= end:
            return error
        why = f"another producer's transaction is open there since offset {marks.stable}"
        return RangeUnfinishedError(partition, at=marks.stable, end=end, why=why)

    def _watermarks(self, partition: TopicPartition) -> Watermarks:
        found = self._cluster.watermarks([partition])[partition]
        if isinstance(found, Watermarks):
            return found
        raise RangeUnfinishedError(partition, at=0, end=0, why=str(found)) from found

    def _setting(self, topic: str, name: str) -> str | None:
        found = self._cluster.topic_configs([topic]).get(topic, {}).get(name)
        return found.value if found else None


def _told(partition: TopicPartition, end: int | DeltamirrorError) -> int | PartitionError:
    if isinstance(end, UnreachableError):
        raise end
    if isinstance(end, DeltamirrorError):
        return RangeUnfinishedError(partition, at=0, end=0, why=str(end))
    return end
