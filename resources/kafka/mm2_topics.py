"""Read and write the internal topics of MirrorMaker 2: source offsets and offset syncs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from resources.kafka.cluster import KafkaCluster
from resources.kafka.compacted_topic import CompactedTopic
from resources.kafka.target_log import TargetLog
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import OffsetSync

CONNECTOR = "MirrorSourceConnector"  # that copies records, in dedicated mode


class Mm2Topics:
    """The internal topics on cluster *alias*, read with librdkafka's consumer *settings*."""

    def __init__(self, cluster: KafkaCluster, settings: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._log = TargetLog(cluster.alias, settings)

    def source_offsets(self, topic: str, source_alias: str) -> dict[TopicPartition, int]:
        """Return the offset of the last copied record of each partition of source *source_alias*.

        *topic* is Connect's topic of source offsets. A key is a JSON list of the connector and
        `{"cluster", "topic", "partition"}`, a value is `{"offset"}` (MirrorUtils 4.3.0). Keys of
        other connectors have other formats and are skipped. Raises UnreachableError,
        RangeUnfinishedError.
        """
        found: dict[TopicPartition, int] = {}
        for key, value in self._latest_records(topic):
            with suppress(ValueError, KeyError, TypeError):
                _, at = json.loads(key)
                if at["cluster"] == source_alias:
                    partition = TopicPartition(at["topic"], int(at["partition"]))
                    found[partition] = int(json.loads(value)["offset"])
        return found

    @staticmethod
    def write_source_offsets(
        topic: CompactedTopic, source_alias: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Write the offsets of the last copied records, byte for byte as Connect writes them.

        Connect finds an offset by the bytes of its key. Raises UnreachableError,
        RequestRefusedError.
        """
        records = []
        for at, offset in offsets.items():
            # Connect writes the keys in the order of Java's HashMap.
            source = {"cluster": source_alias, "partition": at.partition, "topic": at.topic}
            records.append((_to_json([CONNECTOR, source]), _to_json({"offset": offset})))
        topic.write(records)

    def offset_syncs(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the last offset sync (upstream, downstream) of each partition of the source.

        Raises UnreachableError, RangeUnfinishedError.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        for key, value in self._latest_records(topic):
            with suppress(ValueError):
                sync = OffsetSync.read(key, value)
                at = TopicPartition(sync.topic, sync.partition)
                found[at] = sync.upstream_offset, sync.downstream_offset
        return found

    def _latest_records(self, topic: str) -> Iterator[tuple[bytes, bytes]]:
        """Return the last record of each key of compacted *topic*; nothing if it is missing."""
        description = self._cluster.topics([topic]).get(topic)
        values: dict[bytes, bytes | None] = {}

        def take(rows: pa.RecordBatch) -> None:
            keys, contents = rows.column("key").to_pylist(), rows.column("value").to_pylist()
            values.update(zip(keys, contents, strict=True))

        for partition in range(description.partitions if description else 0):
            self._log.read_back(TopicPartition(topic, partition), 0, take)
        return ((key, value) for key, value in values.items() if key and value)


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
