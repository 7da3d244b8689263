"""Where records went, run-length encoded."""

from __future__ import annotations

from dataclasses import dataclass


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
        """Return the upstream offset behind the run."""
        return self.upstream_start + self.length

    @property
    def downstream_end(self) -> int:
        """Return the downstream offset behind the run."""
        return self.downstream_start + self.length
