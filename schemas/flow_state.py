"""How a flow and its partitions are at a time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How far a partition is; offsets are the next ones, *lag* in offsets, *age_ms* None: unknown.

    *held_back* offsets behind *source_end* wait for an open transaction of the source.
    """

    topic: str
    partition: int
    target_topic: str
    source_end: int
    staged: int
    replayed: int
    lag: int
    age_ms: int | None
    error: str | None = None
    is_paused: bool = False
    held_back: int = 0
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class FlowState:
    """How a flow is: *state* is running, stopped, paused, failed or unreachable.

    *metrics* is where the process that replays it serves its metrics, if it does.
    """

    flow: str
    state: str
    error: str | None
    hint: str | None = None
    partitions: tuple[PartitionState, ...] = ()
    metrics: str | None = None

    @property
    def lag(self) -> int:
        """Return the lag of all partitions together, in offsets."""
        return sum(each.lag for each in self.partitions)

    @property
    def age_ms(self) -> int | None:
        """Return the age of the oldest record on its way; None: not known."""
        ages = [each.age_ms for each in self.partitions if each.age_ms is not None]
        return max(ages, default=0 if self.lag == 0 else None)

    def to_json(self) -> dict[str, Any]:
        """Return what `status --format json` prints for the flow."""
        return {**asdict(self), "partitions": [asdict(each) for each in self.partitions]}
