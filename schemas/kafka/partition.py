"""A partition of a topic, and the slot it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

SLOT_COUNT = 16
"""Slots of a source cluster: a constant of the lake's format, as 50 is of `__consumer_offsets`."""

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
        """Return the fixed share of the cluster's partitions that this one belongs to."""
        return slot_of(self.topic, self.partition)


def slot_of(topic: str, partition: int) -> int:
    """Return `(crc32(topic) + partition) mod 16`, the slot of a source partition."""
    return (crc32(topic.encode()) + partition) % SLOT_COUNT


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """A partition in one incarnation of its topic: what staged offsets belong to."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"

    @property
    def app_id(self) -> str:
        """Return the `txn` id whose version is this partition's frontier (DESIGN 2.1)."""
        return f"{self.topic}/{self.topic_id}/{self.partition}"

    @property
    def slot(self) -> int:
        """Return the slot of the partition; incarnations share it."""
        return slot_of(self.topic, self.partition)

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition without its incarnation."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The half-open range [low, high) of offsets a partition holds, and its last stable offset.

    *stable* (LSO) is where a read_committed reader ends: low <= stable <= high. It is read
    before *high*, so it is never past it; on a log that is cut between the two it is lowered.
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
        """Return what changes whenever there is more to read, or the log is another's."""
        return self.stable, self.leader_epoch
