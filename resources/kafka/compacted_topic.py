"""A compacted topic that MirrorMaker 2 or its tools read: checkpoints, heartbeats, its offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from resources.kafka.cluster import KafkaCluster
from schemas.errors import PermissionMissingError, RequestRefusedError, UnreachableError
from schemas.kafka.acl import Permission

REQUEST_TIMEOUT_S = 10.0

# A reader keeps the last record of a key: an unordered retry would leave it an old one.
PRODUCER_SETTINGS = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "log_level": 2}

ANY_PARTITION = -1
"""In place of a partition: the partitioner chooses (librdkafka's RD_KAFKA_PARTITION_UA)."""

# Where Java's producer puts a key: a later value must lie behind the former one.
JAVA_PARTITIONER = {"partitioner": "murmur2_random"}

NO_PRODUCER_ID_CODE = KafkaError.CLUSTER_AUTHORIZATION_FAILED


class CompactedTopic:
    """The topic *name* on *cluster*, written with librdkafka's producer *settings*.

    It has *partitions* where this makes it; of several, a record's key says which is its own. The
    producer is kept from one write to the next until one fails. Not thread-safe.
    """

    def __init__(
        self, cluster: KafkaCluster, name: str, settings: Mapping[str, Any], partitions: int = 1
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._partitions = partitions
        bounds = {"message.timeout.ms": int(REQUEST_TIMEOUT_S * 1000)}
        self._settings = {**settings, **PRODUCER_SETTINGS, **JAVA_PARTITIONER, **bounds}
        self._producer: Producer | None = None

    def ensure_exists(self, replication_factor: int) -> None:
        """Make the topic where it is missing. Raises TargetTopicError where it cannot be.

        One that is there is not asked for again: that takes a right that nobody needs then.
        """
        if not self._cluster.topics([self._name]):
            compact = {"cleanup.policy": "compact"}
            self._cluster.create_topic(self._name, self._partitions, replication_factor, compact)

    def write(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Append *records* (key, value) in order and return when all are acknowledged.

        Raises UnreachableError where the cluster is silent, RequestRefusedError where it says no.
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
            # The client calls the reports all the same when it raises: SystemError hides its own.
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
            except BufferError:  # bounded: what waits is acknowledged or times out
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    @property
    def _partition(self) -> int:
        # MirrorMaker 2's tools read partition 0 and no other, however many there are.
        return 0 if self._partitions == 1 else ANY_PARTITION

    def _error_for(self, error: KafkaError) -> UnreachableError | RequestRefusedError:
        # Kafka's client numbers its own troubles below zero, the brokers' answers above.
        if error.code() < 0:
            return self._unreachable_error(error.str())
        what, needed = f"take records of {self._name}", Permission("Write", "topic", self._name)
        # Who may write to no topic at all gets no id of an idempotent producer: the cluster's word.
        if needed.is_missed_by(error.name()) or error.code() == NO_PRODUCER_ID_CODE:
            return PermissionMissingError(self._cluster.alias, what, needed)
        return RequestRefusedError(
            self._cluster.alias, action=what, code=error.name(), reason=error.str()
        )

    def _unreachable_error(self, why: str) -> UnreachableError:
        servers = str(self._settings.get("bootstrap.servers", ""))
        return UnreachableError(self._cluster.alias, servers=servers, reason=why)
