"""Write the demo's topics, read as its group, and read single records.

These are the applications around deltamirror, in plain confluent-kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewTopic

from demo.data import DemoRecord, DemoTable
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition

_TIMEOUT_S = 60.0
_BATCH_SIZE = 10_000
# Critical messages only: a coordinator that is still loading is not worth a line.
_LOG_LEVEL = 2

PARTITIONER = "murmur2_random"
"""The Java client's partitioner: all flights of a carrier are in one partition."""


class DemoClusterError(DeltamirrorError):
    """A request to a cluster of the demo failed."""

    hint = "Run `make down` and `make demo` again. The brokers' logs are in .demo/kafka."


def load_tables(servers: str, tables: Sequence[DemoTable], report: Callable[[str], None]) -> bool:
    """Create the topics of *tables* and write all rows in one transaction.

    Return False if an earlier run has written them. Raises DemoClusterError, DemoDataMissingError.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": _LOG_LEVEL})
    existing = admin.list_topics(timeout=_TIMEOUT_S).topics
    last = tables[-1].name
    if last in existing and next_record(servers, TopicPartition(last, 0), 0):
        return False
    # Kafka would delete records of 2013 at once.
    keep = {"retention.ms": "-1"}
    new = [NewTopic(t.name, t.partitions, 1, config=keep) for t in tables if t.name not in existing]
    if new:
        for created in admin.create_topics(new).values():
            created.result(_TIMEOUT_S)
    producer = kafka.Producer(
        {
            "bootstrap.servers": servers,
            "log_level": _LOG_LEVEL,
            "transactional.id": "deltamirror-demo",
            "transaction.timeout.ms": 120_000,
            "partitioner": PARTITIONER,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    try:
        # This aborts the transaction of an earlier run that was interrupted.
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for table in tables:
            records = list(table.records())
            for record in records:
                produce_record(producer, table.name, record)
            report(f"{table.name:9}{len(records):>8,} records")
        producer.commit_transaction(_TIMEOUT_S)
    except kafka.KafkaException as error:
        raise DemoClusterError(f"the demo's topics could not be written: {error}") from None
    return True


def produce_record(producer: kafka.Producer, topic: str, record: DemoRecord) -> None:
    """Produce *record*; wait while the producer's queue is full."""
    # librdkafka has no timestamp value that means "now": leave the argument out.
    at: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
    while True:
        try:
            producer.produce(topic, record.value, record.key, headers=record.headers, **at)
            return
        except BufferError:
            producer.poll(0.05)


def read_first_half(servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Read *topic* as *group* up to the middle of each partition and commit there.

    Return the committed offsets by partition, without empty partitions. A group that has committed
    before keeps its offsets. Raises DemoClusterError.
    """
    consumer = _consumer(servers, group)
    every = [kafka.TopicPartition(topic, each) for each in range(partitions)]
    try:
        consumer.subscribe([topic])
        give_up_at = time.monotonic() + _TIMEOUT_S
        # A new cluster has no group coordinator yet; joining the group waits for one.
        while not consumer.assignment() and time.monotonic() < give_up_at:
            consumer.poll(0.1)
        found = consumer.committed(every, _TIMEOUT_S)
        if committed := {p.partition: p.offset for p in found if p.offset >= 0}:
            return committed
        ends = {p.partition: consumer.get_watermark_offsets(p, _TIMEOUT_S)[1] for p in every}
        middles = {partition: end // 2 for partition, end in ends.items() if end > 1}
        unfinished = dict(middles)
        while unfinished and time.monotonic() < give_up_at:
            for message in consumer.consume(_BATCH_SIZE, 0.5):
                partition, offset = message.partition(), message.offset()
                if message.error() or partition not in unfinished or offset is None:
                    continue
                if offset + 1 >= unfinished[partition]:
                    del unfinished[partition]
                    consumer.pause([kafka.TopicPartition(topic, partition)])
        if unfinished:
            raise DemoClusterError(f"{group} read less than half of {topic} in {_TIMEOUT_S:.0f} s")
        offsets = [kafka.TopicPartition(topic, each, at) for each, at in middles.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
    except kafka.KafkaException as error:
        raise DemoClusterError(f"{group} cannot read {topic}: {error}") from None
    finally:
        consumer.close()
    return middles


def next_record(servers: str, partition: TopicPartition, offset: int) -> kafka.Message | None:
    """Return the first record at or after *offset*, or None at the end. Raises DemoClusterError."""
    consumer = _consumer(servers)
    try:
        consumer.assign([kafka.TopicPartition(partition.topic, partition.partition, offset)])
        message = consumer.poll(_TIMEOUT_S)
    finally:
        consumer.close()
    if message is None:
        raise DemoClusterError(f"no answer for {partition} in {_TIMEOUT_S:.0f} s")
    if (error := message.error()) is None:
        return message
    if error.code() == kafka.KafkaError._PARTITION_EOF:
        return None
    raise DemoClusterError(f"{partition} cannot be read: {error.str()}")


def _consumer(servers: str, group: str | None = None) -> kafka.Consumer:
    return kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": _LOG_LEVEL,
            # librdkafka requires a name even if nothing is committed.
            "group.id": group or "deltamirror.demo",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": group is None,
        }
    )
