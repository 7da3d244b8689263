"""What a point-in-time replay sends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Which staged records of a topic are wanted; nothing said: all of them.

    Offsets are of the newest incarnation. Times (ms since 1970): *as_of_ms* is when a record was
    staged, the others are bounds as `offsets_for_times` takes them, the end not included.
    """

    partition: int | None = None
    as_of_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None

    @property
    def is_by_offset(self) -> bool:
        """Return whether offsets bound it."""
        return self.from_offset is not None or self.to_offset is not None


@dataclass(frozen=True, slots=True, order=True)
class ReplayRange:
    """Offsets `[start, end)` of a partition in one incarnation."""

    partition: int
    incarnation: str
    start: int
    end: int
