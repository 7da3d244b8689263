"""Measure arrivals on the target, and the longest time without one."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.ground import Ground

LOOK_SECONDS = 0.25
ANSWER_SECONDS = 1.0


class Watch(threading.Thread):
    """Thread that reads the target's last stable offsets until `stop`.

    *arrived* is their sum. *longest_s* is the longest time without growth since the first record,
    including the time in which the broker is down.
    """

    def __init__(self, ground: Ground) -> None:
        super().__init__(name="watch", daemon=True)
        self._ground = ground
        self._over = threading.Event()
        self._ends: dict[tuple[str, int], int] = {}
        self.arrived = 0
        self.longest_s = 0.0

    def run(self) -> None:
        """Read offsets; a broker that does not respond counts as no growth."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._ground.target.bootstrap,
                "group.id": "chaos-watch",
                "isolation.level": "read_committed",
                # The default of five minutes is too long to notice an added partition.
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        grown_at = time.monotonic()
        try:
            while not self._over.wait(LOOK_SECONDS):
                seen = self._sum(consumer)
                now = time.monotonic()
                if self.arrived:
                    self.longest_s = max(self.longest_s, now - grown_at)
                if seen > self.arrived:
                    self.arrived, grown_at = seen, now
        finally:
            consumer.close()

    def stop(self) -> None:
        """Stop after the current read."""
        self._over.set()

    def _sum(self, consumer: Consumer) -> int:
        world = self._ground.world
        for topic, partitions in self._ground.topics.items():
            for partition in range(partitions):
                remote_partition = world.remote(topic), partition
                with suppress(
                    KafkaException
                ):  # The topic does not exist yet, or the broker is down.
                    end = consumer.get_watermark_offsets(
                        TopicPartition(*remote_partition), timeout=ANSWER_SECONDS
                    )
                    self._ends[remote_partition] = end[1] if end else 0
        return sum(self._ends.values())
