"""Write to a compacted topic of MirrorMaker 2: checkpoints, heartbeats, offset syncs, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from resources.kafka.cluster import KafkaCluster
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import PermissionMissingError, UnreachableError
from schemas.kafka.acl import Permission

REQUEST_TIMEOUT_S = 10.0

PRODUCER_SETTINGS = {
    # A reader keeps the last record of a key, so a retry must not reorder records.
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "log_level": 2,
    # Java's default partitioner, so that all records of a key are in the same partition.
    "partitioner": "murmur2_random",
}

ANY_PARTITION = -1  # RD_KAFKA_PARTITION_UA: the partitioner chooses


class CompactedTopic:
    """The topic *name* on *cluster*, written with librdkafka's producer *settings*.

    A topic that this creates has *partitions* partitions. If there are several, a record's key
    determines its partition. The producer is reused until a write fails. Not thread-safe.
    """

    def __init__(
        self, cluster: KafkaCluster, name: str, settings: Mapping[str, Any], partitions: int = 1
    ) -> None:
        self._cluster, self._name, self._partitions = cluster, name, partitions
        # MirrorMaker 2's tools read only partition 0, even if there are more.
        self._partition = 0 if partitions == 1 else ANY_PARTITION
        bounds = {"message.timeout.ms": int(REQUEST_TIMEOUT_S * 1000)}
        self._settings = {**settings, **PRODUCER_SETTINGS, **bounds}
        self._producer: Producer | None = None

    def ensure_exists(self, replication_factor: int) -> None:
        """Create the topic if it is missing. Raises TargetTopicError if that fails.

        For an existing topic no create request is sent, so the user needs no Create permission.
        """
        if not self._cluster.topics([self._name]):
            compact = {"cleanup.policy": "compact"}
            self._cluster.create_topic(self._name, self._partitions, replication_factor, compact)

    def write(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Append *records* (key, value) in order; wait until all are acknowledged.

        Raises UnreachableError if the cluster does not answer, RequestRefusedError if it refuses.
        """
        failures: list[KafkaError] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        try:
            producer = self._producer or Producer(self._settings)
            self._producer = None
            for key, value in records:
                self._send(producer, key, value, report)
            unsent = producer.flush(REQUEST_TIMEOUT_S + 1)
        except (KafkaException, SystemError) as failure:
            # If the client raises while it calls `report`, SystemError wraps the client's error.
            fatal = failure if isinstance(failure, KafkaException) else failure.__cause__
            if not isinstance(fatal, KafkaException):
                raise
            failures.insert(0, fatal.args[0])
            unsent = 0
        if failures:
            raise self._error_for(failures[0])
        if unsent:
            raise self._unreachable_error(f"{unsent} records are not acknowledged")
        self._producer = producer

    def _send(self, producer: Producer, key: bytes, value: bytes, report: Any) -> None:  # noqa: ANN401 - the client's callback
        while True:
            try:
                producer.produce(self._name, value, key, self._partition, on_delivery=report)
            except BufferError:  # bounded: queued records are acknowledged or time out
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _error_for(self, error: KafkaError) -> UnreachableError | RequestRefusedError:
        # Codes below zero are the client's own errors; brokers' errors are above.
        if error.code() < 0:
            return self._unreachable_error(error.str())
        what, needed = f"accept records of {self._name}", Permission("Write", "topic", self._name)
        # A user that may not write to any topic gets no producer id from the cluster.
        is_unauthorized = error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
        alias = self._cluster.alias
        if is_unauthorized or needed.is_missed_by(error.name()):
            return PermissionMissingError(alias, what, needed)
        return RequestRefusedError(alias, action=what, code=error.name(), reason=error.str())

    def _unreachable_error(self, why: str) -> UnreachableError:
        servers = str(self._settings.get("bootstrap.servers", ""))
        return UnreachableError(self._cluster.alias, servers=servers, reason=why)
