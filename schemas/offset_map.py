"""Offset runs, and translations of committed offsets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from schemas.kafka.partition import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRun:
    """Consecutive upstream offsets and the consecutive downstream offsets they became."""

    upstream_start: int
    downstream_start: int
    length: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.upstream_start < 0 or self.downstream_start < 0:
            raise ValueError(f"not a run of offsets: {self}")

    @property
    def upstream_end(self) -> int:
        """Return the upstream offset after the run."""
        return self.upstream_start + self.length

    @property
    def downstream_end(self) -> int:
        """Return the downstream offset after the run."""
        return self.downstream_start + self.length


@dataclass(frozen=True, slots=True)
class Translation:
    """A committed offset on the source, and the offset on the target at which a group resumes.

    *downstream_offset* is None if no record of the partition has arrived. *topic_id* is the
    incarnation of the offsets.
    """

    topic: str
    topic_id: str
    partition: int
    upstream_offset: int
    target_topic: str
    target_partition: int
    downstream_offset: int | None

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.target_partition)

    def to_json(self, flow: str) -> dict[str, Any]:
        """Return what `translate --format json` prints for the flow named *flow*."""
        fields = asdict(self)
        incarnation = fields.pop("topic_id")
        return {"flow": flow, **fields, "incarnation": incarnation}


@dataclass(frozen=True, slots=True)
class GroupTranslation:
    """Where *group* resumes in one partition, translated from its last commit read.

    *metadata* is the metadata of the committed offset. Kafka Streams stores its stream time there.
    """

    group: str
    at: Translation
    metadata: str = ""
