"""A staged range and what was found in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from schemas.kafka.partition import SourcePartition


@dataclass(frozen=True, slots=True)
class Segment:
    """One staged range `[start, end)` of a partition: the evidence that it was read to its end.

    *count* records between offsets *first* and *last* (None where there is none); `end - start -
    count` offsets hold no record, for *gap_cause*. Its records lie in files of *sequence* or, once
    compacted, of a higher one. *digest* is over offset-free record content in
    order (key, value, headers, timestamp). Sizes in bytes, times in ms since 1970.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    count: int
    size_bytes: int
    first: int | None
    last: int | None
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    leader_epoch: int | None
    low: int
    stable: int
    high: int
    gap_cause: str
    digest: str
    staged_at_ms: int
    sequence: int

    @property
    def source(self) -> SourcePartition:
        """Return the partition and incarnation that the segment belongs to."""
        return SourcePartition(self.topic, self.topic_id, self.partition)

    @property
    def gaps(self) -> int:
        """Return how many offsets of the range hold no record."""
        return self.end - self.start - self.count

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of the table `segments`, but for the commit's version."""
        return asdict(self)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Segment:
        """Return the segment of a row; columns that a segment does not have are left out."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


UNCOMPACTED = "transaction markers or aborted"
"""The topic was not compacted when it was staged."""

ANY = "compacted, transaction markers or aborted"
"""The topic is compacted, or its settings were not told."""

ACCEPTED = "accepted"
"""How the cause of a gap ends that an operator accepted: its offsets are not read again."""

EXPIRED = f"expired, {ACCEPTED}"
RECREATED = f"re-created before it was staged, {ACCEPTED}"
DELETED = f"deleted before it was staged, {ACCEPTED}"
TRUNCATED = f"log cut, goes on as a new incarnation, {ACCEPTED}"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What Delta needs to know to add a file: its path in the table, size and statistics."""

    path: str
    size_bytes: int
    slot: int
    stats_json: str
    modified_ms: int
