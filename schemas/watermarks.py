"""What a source partition holds, as its broker told it."""

from __future__ import annotations

from dataclasses import dataclass


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
    def stands_at(self) -> tuple[int, int | None]:
        """Return what changes whenever there is more to read, or the log is another's."""
        return self.stable, self.leader_epoch
