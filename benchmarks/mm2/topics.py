"""Topics on the source or on the target, with the records that an application sees."""

from __future__ import annotations

import time
import zlib
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from demo.kafka.brokers import Broker

TopicAndPartition = tuple[str, int]  # topic and partition
ANSWER_S = 30.0
_NOT_THERE_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # the leader does not know of its election yet
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,  # no partition has a leader
)


@dataclass(frozen=True)
class Content:
    """Number of a partition's records, and a checksum of their keys and values in order."""

    records: int
    crc: int


class Topics:
    """Topics *names* on *broker*, each with *partitions* partitions, read with read_committed."""

    def __init__(self, broker: Broker, names: Collection[str], partitions: int = 1) -> None:
        self._broker, self.names = broker, frozenset(names)
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self.places = [(name, p) for name in names for p in range(partitions)]

    def are_there(self) -> bool:
        """Return whether the broker lists all topics."""
        return self.names <= set(self._admin.list_topics(timeout=ANSWER_S).topics)

    def ends(self) -> dict[TopicAndPartition, int]:
        """Return the last stable offset of each partition; 0 if the topic does not exist yet."""
        futures = self._admin.list_offsets(
            {
                TopicPartition(*topic_partition): OffsetSpec.latest()
                for topic_partition in self.places
            },
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_S,
        )
        found = dict.fromkeys(self.places, 0)
        for partition, answer in futures.items():
            try:
                found[partition.topic, partition.partition] = answer.result().offset
            except KafkaException as error:
                # The client itself waits for a missing topic, and then reports a timeout.
                code = error.args[0].code()
                is_missing = code == KafkaError._TIMED_OUT and not self.are_there()
                if code not in _NOT_THERE_YET and not is_missing:
                    raise
        return found

    def contents(
        self, since: Mapping[TopicAndPartition, int] | None = None
    ) -> dict[TopicAndPartition, Content]:
        """Read all visible records, from *since* if given; return the content by partition."""
        ends = self.ends()
        counts, sums = dict.fromkeys(ends, 0), dict.fromkeys(ends, 0)
        for message in self.read(since or dict.fromkeys(ends, 0), ends):
            topic_partition, _ = at(message)
            counts[topic_partition] += 1
            key, value = message.key() or b"", message.value() or b""
            sums[topic_partition] = zlib.crc32(value, zlib.crc32(key, sums[topic_partition]))
        return {
            topic_partition: Content(counts[topic_partition], sums[topic_partition])
            for topic_partition in ends
        }

    def delete(self) -> None:
        """Delete the topics to free disk space."""
        for answer in self._admin.delete_topics(list(self.names)).values():
            answer.result(ANSWER_S)

    def read(
        self, start: Mapping[TopicAndPartition, int], until: Mapping[TopicAndPartition, int]
    ) -> Generator[Message]:
        """Yield every visible record from *start* to *until*. Raises TimeoutError, KafkaException.

        TimeoutError means that the reader gets no records, which cannot be the rival's fault.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the delay of the reported end, which is measured too
                "auto.offset.reset": "error",
                "queued.min.messages": 100_000,
                "fetch.queue.backoff.ms": 5,  # the default, 1 s, would dominate the time
            }
        )
        try:
            consumer.assign(
                [
                    TopicPartition(*topic_partition, offset)
                    for topic_partition, offset in start.items()
                ]
            )
            unread = {
                topic_partition
                for topic_partition, end in until.items()
                if end > start[topic_partition]
            }
            give_up_at = time.monotonic() + ANSWER_S
            while unread:
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{sorted(unread)[:5]}: not read to {len(unread)} ends")
                for message in consumer.consume(10_000, 0.05):
                    give_up_at = time.monotonic() + ANSWER_S
                    error, topic_partition, offset = message.error(), *at(message)
                    if error is None:
                        yield message
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    elif offset >= until[topic_partition]:
                        unread.discard(topic_partition)
        finally:
            consumer.close()


def at(message: Message) -> tuple[TopicAndPartition, int]:
    """Return the partition and the offset of *message*."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return (topic, partition), offset
