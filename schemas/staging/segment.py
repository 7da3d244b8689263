"""Segments: staged offset ranges, their counts and digests, and the causes of their gaps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from schemas.kafka.partition import SourcePartition


@dataclass(frozen=True, slots=True)
class Segment:
    """One staged range `[start, end)` of a partition, which was read completely.

    It has *count* records between offsets *first* and *last* (None without records). `end - start -
    count` offsets have no record, because of *gap_cause*. Its records are in a file of
    *sequence*, or after compaction in one of a higher sequence. *digest* is over the records'
    content in order (timestamp, key, value, headers), not their offsets. Sizes are in bytes, times
    in ms since 1970.
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
        return SourcePartition(self.topic, self.topic_id, self.partition)

    @property
    def gaps(self) -> int:
        """Return how many offsets of the range have no record."""
        return self.end - self.start - self.count

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of the table `segments`, without the commit's version."""
        return asdict(self)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Segment:
        """Return the segment of a row; other columns of the row are ignored."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


UNCOMPACTED = "transaction markers or aborted"
"""The topic was not compacted when it was staged."""

ANY = "compacted, transaction markers or aborted"
"""The topic is compacted, or its configs are unknown."""

ACCEPTED = "accepted"
"""Suffix of the cause if an operator accepted the gap: its offsets are not read again."""

EXPIRED = f"expired, {ACCEPTED}"
RECREATED = f"re-created before it was staged, {ACCEPTED}"
DELETED = f"deleted before it was staged, {ACCEPTED}"
TRUNCATED = f"log cut, goes on as a new incarnation, {ACCEPTED}"


FOREIGN_SEQUENCE = -1
"""Sequence of a file of `records` that another program wrote."""


@dataclass(frozen=True, slots=True)
class RecordsFile:
    """A live file of the table: relative *path*, sequence, size, and a bit for each of its *slots*.

    *level* is 0 for a file of staging, and rises each time compaction joins it with others.

    Within a slot, a file of a higher *sequence* holds later offsets of a partition. Replay skips a
    file of FOREIGN_SEQUENCE (written by another program's OPTIMIZE or DELETE), and then detects by
    the record count that records are missing.
    """

    path: str
    slots: int
    sequence: int
    size_bytes: int
    level: int = 0

    def has_slot(self, slot: int) -> bool:
        """Return whether the file may hold records of *slot*."""
        return bool(self.slots >> slot & 1)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The data of a Delta `add` action: a file's path in the table, size and statistics."""

    path: str
    size_bytes: int
    stats_json: str
    modified_ms: int
