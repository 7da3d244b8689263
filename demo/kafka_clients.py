"""What the demo does to its clusters from outside: load topics, read as a group, look at a record.

These are the applications around deltamirror, written as anyone would write them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka as kafka

from demo.data import DemoRecord, DemoTable
from schemas.config.config import ClusterConfig
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition

_REQUEST_TIMEOUT_S = 30.0
_READ_TIMEOUT_S = 60.0
_BATCH = 10_000
# Critical ones only: a coordinator that is still loading is no news for the terminal.
_LOG_LEVEL = 2
# A load that is cut off is undone by the next one, or by the broker after this time.
_TRANSACTION_MS = 120_000

PARTITIONER = "murmur2_random"
"""Java's own: a carrier is in one partition."""


class DemoClusterError(DeltamirrorError):
    """A request to a cluster of the demo failed."""

    message = "cluster {alias}: {reason}"
    hint = "Run `make down` and `make demo` to start again. The brokers log under .demo/kafka."


def load_table(cluster: ClusterConfig, table: DemoTable) -> int:
    """Write every row of *table* to its topic in one transaction, and return how many.

    All or nothing: a topic that shows any record has them all. Raises DemoClusterError.
    """
    producer = kafka.Producer(
        {
            **cluster.producer,
            "log_level": _LOG_LEVEL,
            "transactional.id": f"deltamirror-demo.{table.name}",
            "transaction.timeout.ms": _TRANSACTION_MS,
            "partitioner": PARTITIONER,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    written = 0
    try:
        producer.init_transactions(_REQUEST_TIMEOUT_S)
        producer.begin_transaction()
        for record in table.records():
            produce_record(producer, table.name, record)
            written += 1
        producer.commit_transaction(_READ_TIMEOUT_S)
    except kafka.KafkaException as error:
        raise DemoClusterError(
            cluster.alias, reason=f"{table.name} is not loaded: {error}"
        ) from None
    return written


def produce_record(producer: kafka.Producer, topic: str, record: DemoRecord) -> None:
    """Hand *record* over, however full the queue is."""
    # No timestamp is the time of writing; librdkafka has no value that says so.
    stamp: dict[str, Any] = {}
    if record.timestamp_ms is not None:
        stamp["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(topic, record.value, record.key, headers=record.headers, **stamp)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def holds_records(cluster: ClusterConfig, topic: str, partitions: int) -> bool:
    """Return whether *topic* shows a record to a read_committed reader. Raises DemoClusterError."""
    consumer = _reader(cluster)
    try:
        consumer.assign([kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
        at_end: set[int | None] = set()
        give_up_at = time.monotonic() + _READ_TIMEOUT_S
        while len(at_end) < partitions:
            message = _poll(consumer, cluster.alias, topic, give_up_at)
            if message.error() is None:
                return True
            at_end.add(message.partition())
    finally:
        consumer.close()
    return False


def read_first_half(
    cluster: ClusterConfig, group: str, topic: str, ends: Mapping[int, int]
) -> dict[int, int]:
    """Read *topic* as *group* up to the middle of each partition, and commit there.

    *ends* are the partitions' ends; returned are the committed offsets. Raises DemoClusterError.
    """
    middles = {partition: end // 2 for partition, end in ends.items() if end > 1}
    reached = dict.fromkeys(middles, 0)
    consumer = _reader(cluster, group)
    try:
        consumer.subscribe([topic])
        give_up_at = time.monotonic() + _READ_TIMEOUT_S
        while not all(reached[each] >= middle for each, middle in middles.items()):
            if time.monotonic() > give_up_at:
                raise DemoClusterError(cluster.alias, reason=f"{group} does not get to the middle")
            _advance_offsets(consumer.consume(_BATCH, 0.5), reached, middles)
            # The others have the consumer to themselves from here on.
            done = [p for p in reached if reached[p] >= middles[p]]
            consumer.pause([p for p in consumer.assignment() if p.partition in done])
        offsets = [kafka.TopicPartition(topic, each, at) for each, at in reached.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
    except kafka.KafkaException as error:
        raise DemoClusterError(
            cluster.alias, reason=f"{group} cannot read {topic}: {error}"
        ) from None
    finally:
        consumer.close()
    return reached


def _advance_offsets(
    messages: Iterable[kafka.Message], reached: dict[int, int], middles: Mapping[int, int]
) -> None:
    """Move *reached* behind each record, up to the middle of its partition."""
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if message.error() is not None or partition is None or offset is None:
            continue
        if partition in middles and reached[partition] < middles[partition]:
            reached[partition] = offset + 1


def next_record(cluster: ClusterConfig, at: TopicPartition, offset: int) -> kafka.Message | None:
    """Return what a group at *offset* of the partition *at* reads next; None: it is at the end.

    Raises DemoClusterError.
    """
    consumer = _reader(cluster)
    try:
        consumer.assign([kafka.TopicPartition(at.topic, at.partition, offset)])
        message = _poll(consumer, cluster.alias, str(at), time.monotonic() + _READ_TIMEOUT_S)
    finally:
        consumer.close()
    return message if message.error() is None else None


def _poll(consumer: kafka.Consumer, alias: str, what: str, give_up_at: float) -> kafka.Message:
    """Return the next record or the news that a partition has ended; other errors are raised."""
    while time.monotonic() < give_up_at:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None or error.code() == kafka.KafkaError._PARTITION_EOF:
            return message
        if not error.retriable():
            raise DemoClusterError(alias, reason=f"{what} cannot be read: {error.str()}")
    raise DemoClusterError(alias, reason=f"{what} cannot be read: no answer")


def _reader(cluster: ClusterConfig, group: str | None = None) -> kafka.Consumer:
    return kafka.Consumer(
        {
            **cluster.consumer,
            "log_level": _LOG_LEVEL,
            # Without a group nothing is ever committed; librdkafka asks for a name all the same.
            "group.id": group or "deltamirror.demo",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": group is None,
        }
    )
