"""Consumer groups that read the source and commit; acknowledged commits are kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.chaos.ground import GROUPS

PartitionKey = tuple[str, int]


class Member(threading.Thread):
    """The only member of *group*. It reads *topics* and commits until `stop`.

    The group `rewinder` commits any offset up to its position, also a marker's or an aborted
    record's. The group `reports` reads uncommitted, so that it commits inside open transactions.
    """

    def __init__(self, group: str, bootstrap: str, topics: Iterable[str], seed: int) -> None:
        super().__init__(name=f"group {group}", daemon=True)
        self.group = group
        self.committed: dict[PartitionKey, set[int]] = {}
        self._topics = list(topics)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted" if group == "reports" else "read_committed",
            "session.timeout.ms": 6_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
            "on_commit": self._answered,
        }
        self._random = random.Random(f"{seed} {group}")
        self._over = threading.Event()

    def run(self) -> None:
        """Read and commit; retry after every error."""
        consumer = Consumer(self._settings)
        consumer.subscribe(self._topics)
        at: dict[PartitionKey, int] = {}
        try:
            while not self._over.is_set():
                for message in consumer.consume(self._random.randint(1, 500), 0.5):
                    if message.error() is None:
                        at[message.topic(), message.partition()] = message.offset() + 1
                if at and self._random.random() < 0.3:
                    self._commit(consumer, at)
        finally:
            consumer.close()

    def stop(self) -> None:
        """End after the next commit."""
        self._over.set()

    def _commit(self, consumer: Consumer, at: dict[PartitionKey, int]) -> None:
        if self.group == "rewinder":
            at = {
                topic_partition: self._random.randint(0, offset)
                for topic_partition, offset in at.items()
            }
        wanted = [
            TopicPartition(*topic_partition, offset) for topic_partition, offset in at.items()
        ]
        # A synchronous commit waits without end for a coordinator that was killed.
        with suppress(KafkaException):  # The group is being rebalanced.
            consumer.commit(offsets=wanted, asynchronous=True)

    def _answered(self, error: KafkaError | None, committed: Iterable[TopicPartition]) -> None:
        for each in committed if error is None else ():
            if each.error is None:
                self.committed.setdefault((each.topic, each.partition), set()).add(each.offset)


def members(bootstrap: str, topics: Iterable[str], seed: int) -> list[Member]:
    """Return the member of each group, not started."""
    return [Member(group, bootstrap, topics, seed) for group in GROUPS]
