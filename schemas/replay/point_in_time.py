"""Point-in-time replays: the selected records, their ranges and their names on the target."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.config.flow import Flow


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of a topic's staged records; without bounds all of them.

    Offsets are of the newest incarnation. Times are ms since 1970. *as_of_ms* is the latest time
    of staging. The other times are bounds as in Kafka's `offsets_for_times`. Ends are exclusive.
    """

    partition: int | None = None
    as_of_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class ReplayRange:
    """Offsets `[start, end)` of a partition in one incarnation."""

    partition: int
    incarnation: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReplayFlow:
    """One replay of *flow*'s staged records, with its own producers and progress.

    It does not fence the running flow and does not change its progress.
    """

    flow: Flow
    replay_id: str

    @property
    def target(self) -> str:
        return self.flow.target

    @property
    def name(self) -> str:
        """Return the name of the replay's role."""
        return f"replay.{self.replay_id}"

    @property
    def progress_group(self) -> str:
        """Return the group on the target to which the replay's progress is committed."""
        return f"deltamirror.{self.name}"

    def transactional_id(self, slot: int) -> str:
        return f"deltamirror.{self.name}.{slot}"
