"""A topic on the source or on the target, as an application sees it: what is visible, and what."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Mapping
from contextlib import closing
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

from benchmarks.ground import PARTITIONS
from resources.brokers import Broker

Offsets = Mapping[int, int]  # by partition
Record = tuple[bytes | None, bytes | None]  # key and value
ANSWER_S = 30.0
_NOT_THERE_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._NOENT,  # no partition has a leader
)
_LOOK_BACK = 6
"""Offsets before a partition's end among which its last record lies: the rest are markers."""


@dataclass(frozen=True)
class Content:
    """What a partition's records come to: how many, and a sum over keys and values in order."""

    records: int
    crc: int


class Topic:
    """*name* on *broker*, with so many *partitions*, as read_committed sees it."""

    def __init__(self, broker: Broker, name: str, partitions: int = PARTITIONS) -> None:
        self._broker, self.name = broker, name
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self._partitions = [TopicPartition(name, p) for p in range(partitions)]

    @property
    def partitions(self) -> int:
        """How many it has."""
        return len(self._partitions)

    def ends(self) -> dict[int, int]:
        """Return the last stable offset of each partition; 0 where the topic is not there yet."""
        asked = self._admin.list_offsets(
            dict.fromkeys(self._partitions, OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_S,
        )
        found = {partition.partition: 0 for partition in self._partitions}
        for partition, answer in asked.items():
            try:
                found[partition.partition] = answer.result().offset
            except KafkaException as error:
                if error.args[0].code() not in _NOT_THERE_YET:
                    raise
        return found

    def last(self, partition: int, end: int) -> Record | None:
        """Return the last visible record below *end*; None: only markers lie there."""
        start = {partition: max(0, end - _LOOK_BACK)}
        found = [(m.key(), m.value()) for m in self._read(start, {partition: end})]
        return found[-1] if found else None

    def key_at(self, partition: int, offset: int) -> bytes | None:
        """Return the key of the first visible record at or behind *offset*; None: there is none."""
        end = self.ends()[partition]
        with closing(self._read({partition: offset}, {partition: end})) as messages:
            return next((message.key() for message in messages), None)

    def contents(self) -> dict[int, Content]:
        """Read everything that is visible, and return what each partition comes to."""
        ends = self.ends()
        counts, sums = dict.fromkeys(ends, 0), dict.fromkeys(ends, 0)
        for message in self._read(dict.fromkeys(ends, 0), ends):
            partition, _ = at(message)
            counts[partition] += 1
            key, value = message.key() or b"", message.value() or b""
            sums[partition] = zlib.crc32(value, zlib.crc32(key, sums[partition]))
        return {partition: Content(counts[partition], sums[partition]) for partition in ends}

    def delete(self) -> None:
        """Delete it: what was measured is not needed any more, and disks are finite."""
        self._admin.delete_topics([self.name])[self.name].result(ANSWER_S)

    def _read(self, start: Offsets, until: Offsets) -> Generator[Message]:
        """Give every visible record from *start* to *until*. Raises TimeoutError, KafkaException.

        TimeoutError is for a reader to whom nothing comes, which cannot be a rival's fault.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the end is told when this is over: it is a measure's end
                "auto.offset.reset": "error",
                "queued.min.messages": 100_000,
            }
        )
        try:
            consumer.assign([TopicPartition(self.name, p, at) for p, at in start.items()])
            unread = {partition for partition, end in until.items() if end > start[partition]}
            give_up_at = time.monotonic() + ANSWER_S
            while unread:
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{self.name}: {sorted(unread)} not read to {until}")
                for message in consumer.consume(10_000, 0.05):
                    give_up_at = time.monotonic() + ANSWER_S
                    error, partition, offset = message.error(), *at(message)
                    if error is None:
                        yield message
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    elif offset >= until[partition]:
                        unread.discard(partition)
        finally:
            consumer.close()


def at(message: Message) -> tuple[int, int]:
    """Return the partition and the offset of *message*, which every message read has."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset
