"""Partitions, their slots, incarnations and watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

SLOT_COUNT = 16
"""Number of slots of a source cluster: fixed by the lake's format, so it must never change."""

NO_TOPIC_ID = "none"
"""The incarnation on clusters without topic ids (before Kafka 2.8)."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"

    @property
    def slot(self) -> int:
        return slot_of(self.topic, self.partition)


def slot_of(topic: str, partition: int) -> int:
    """Return `(crc32(topic) + partition) mod 16`, the slot of a source partition."""
    return (crc32(topic.encode()) + partition) % SLOT_COUNT


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """A partition in one incarnation of its topic; staged offsets belong to it."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"

    @property
    def app_id(self) -> str:
        """Return the Delta `txn` app id whose version is this partition's frontier."""
        return f"{self.topic}/{self.topic_id}/{self.partition}"

    @classmethod
    def from_app_id(cls, app_id: str) -> SourcePartition:
        """Return the partition whose `app_id` is *app_id*. No part of it contains a slash."""
        topic, topic_id, partition = app_id.split("/")
        return cls(topic, topic_id, int(partition))

    @property
    def slot(self) -> int:
        return slot_of(self.topic, self.partition)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The half-open range [low, high) of a partition's offsets, and its last stable offset.

    *stable* (LSO) is the end for a read_committed reader: low <= stable <= high. It is read before
    *high*, so it is not larger. If the log is truncated between the two reads, it is lowered.
    """

    low: int
    stable: int
    high: int
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.stable <= self.high:
            raise ValueError(f"not the watermarks of a partition: {self}")

    @property
    def end_state(self) -> tuple[int, int | None]:
        """Return (LSO, leader epoch): it changes with new records and with a new leader."""
        return self.stable, self.leader_epoch
