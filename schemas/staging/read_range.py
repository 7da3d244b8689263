"""A planned read of a source partition."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import PartitionError
from schemas.kafka.partition import SourcePartition, Watermarks


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition to stage next; end not included.

    *leader_epoch* is the epoch of the last record staged before *start* (None: unknown): given
    to the broker with the start, so that it finds a log that was cut and grew again (KIP-320).
    *planned_start* is the frontier the commit compares with (None: a partition new to us).
    """

    partition: SourcePartition
    start: int
    end: int
    planned_start: int | None
    leader_epoch: int | None
    watermarks: Watermarks

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a range of offsets: {self}")

    @property
    def length(self) -> int:
        """Return how many offsets the range spans; some may hold no record."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ReadResult:
    """*range* was read up to *end*, and proven so; *error* says why not to its planned end.

    No error and an earlier end: it was cut at a record boundary to bound memory.
    """

    range: OffsetRange
    end: int
    error: PartitionError | None = None
