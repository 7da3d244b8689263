"""Read a target cluster's logs: end offsets, topic ids, configs and records."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from resources.kafka.cluster import KafkaCluster
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.environment import UnreachableError
from schemas.errors.source import RangeUnfinishedError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.staging.read_range import OffsetRange

OPEN_TRANSACTION_TIMEOUT_S = 5.0  # for the end of an open transaction that hides records


class TargetLog:
    """The logs of cluster *alias*, read with librdkafka's consumer *settings*."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self._consumer_settings = dict(settings)
        self._cluster = KafkaCluster(alias, settings)

    def end_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | PartitionError]:
        """Return each partition's high watermark or its error. Raises UnreachableError."""
        ends: dict[TopicPartition, int | PartitionError] = {}
        for partition, end in self._cluster.end_offsets(partitions).items():
            if isinstance(end, UnreachableError):
                raise end
            ends[partition] = end if isinstance(end, int) else _unfinished_error(partition, end)
        return ends

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topic id of each of *topics* that exists. Raises UnreachableError."""
        return {name: topic.topic_id for name, topic in self._cluster.topics(topics).items()}

    def log_start_offset(self, partition: TopicPartition) -> int:
        """Return the log start offset. Raises RangeUnfinishedError if there is no answer."""
        return self._watermarks(partition).low

    def is_compacted(self, partition: TopicPartition) -> bool:
        """Return whether the topic's `cleanup.policy` includes `compact`.

        Return False if the cluster does not return the topic's configs. Raises UnreachableError.
        """
        configs = self._cluster.topic_configs([partition.topic]).get(partition.topic, {})
        policy = configs.get("cleanup.policy")
        return policy is not None and "compact" in (policy.value or "")

    def read_back(
        self, partition: TopicPartition, start: int, handle_batch: Callable[[pa.RecordBatch], None]
    ) -> None:
        """Pass the committed records of *partition* from *start* to its end to *handle_batch*.

        Raises RangeUnfinishedError if an open transaction hides records or the read does not reach
        the high watermark.
        """
        watermarks = self._stable_watermarks(partition)
        low, high = watermarks.low, watermarks.high
        source = SourcePartition(partition.topic, "", partition.partition)
        bounds = Watermarks(low, high, high)
        wanted = OffsetRange(source, min(max(start, low), high), high, None, None, bounds)
        with closing(RangeReader(self._consumer_settings)) as reader:
            while wanted.start < wanted.end:
                reached = reader.read([wanted], 2**26, lambda _, rows: handle_batch(rows))[wanted]
                if reached.error is not None:
                    raise reached.error
                wanted = replace(wanted, start=reached.end)

    def _stable_watermarks(self, partition: TopicPartition) -> Watermarks:
        """Wait until the last stable offset reaches the present end; return the watermarks.

        A transaction marker is written a moment after the commit. Raises RangeUnfinishedError if a
        transaction stays open: its records must not be considered missing.
        """
        give_up_at = time.monotonic() + OPEN_TRANSACTION_TIMEOUT_S
        watermarks = first = self._watermarks(partition)
        while watermarks.stable < first.high:
            if time.monotonic() > give_up_at:
                stable = watermarks.stable
                why = f"another producer's transaction is open there since offset {stable}"
                raise RangeUnfinishedError(partition, at=stable, end=first.high, reason=why)
            time.sleep(0.05)
            watermarks = self._watermarks(partition)
        return watermarks

    def _watermarks(self, partition: TopicPartition) -> Watermarks:
        found = self._cluster.watermarks([partition])[partition]
        if isinstance(found, Watermarks):
            return found
        raise _unfinished_error(partition, found) from found


def _unfinished_error(partition: TopicPartition, error: DeltamirrorError) -> RangeUnfinishedError:
    return RangeUnfinishedError(partition, at=0, end=0, reason=str(error))
