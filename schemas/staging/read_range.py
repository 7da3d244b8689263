"""Planned read of a source partition, and its result."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors.base import PartitionError
from schemas.kafka.partition import SourcePartition, Watermarks


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition to stage next; end not included.

    *leader_epoch* is the frontier's epoch (None: unknown). The broker gets it together with *start*
    and detects a log that was truncated and has grown again (KIP-320). *planned_start* is the
    frontier that the commit compares with (None: a new partition).
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
    """The *range* was read completely up to *end*; *error* stopped it before its planned end.

    Without an error, an earlier end is a record boundary at which reading stopped to bound memory.
    """

    range: OffsetRange
    end: int
    error: PartitionError | None = None
