"""What a point-in-time replay sends."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.config.flow import Flow


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


@dataclass(frozen=True, slots=True)
class ReplayFlow:
    """One replay of *flow*'s stage, with producers and progress of its own.

    Neither fences the running flow nor moves its progress (DESIGN 2.2).
    """

    flow: Flow
    replay_id: str

    @property
    def target(self) -> str:
        """Return the alias of the cluster that is written to."""
        return self.flow.target

    @property
    def name(self) -> str:
        """Return what its duty is called."""
        return f"replay.{self.replay_id}"

    @property
    def progress_group(self) -> str:
        """Return the group on the target that keeps its progress."""
        return f"deltamirror.{self.name}"

    def transactional_id(self, slot: int) -> str:
        """Return the id of the producer of *slot*."""
        return f"deltamirror.{self.name}.{slot}"
