"""How a loop of a run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from schemas.errors import DeltamirrorError
from schemas.kafka.partition import SourcePartition, TopicPartition

STATES = ("starting", "waiting", "running", "paused", "failed")
"""Before its first tick; another process has its lease; ticking; so, with all of it paused by an
operator; its last tick failed, and it tries again."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """A loop, staging `source` or replaying `source->target`, at a moment.

    *target* is empty for staging. Times with *_at_s* are monotonic, in seconds; *began_at_s* and
    *last_sign_at_s* those of the last tick's beginning and of the last sign of life.
    *failing_since_s* is the first failure in a row; None: the last tick worked. *partition_errors*
    counts the partitions that are left out, by the error's type. *error* is the last one there was,
    however long ago.
    """

    loop: str
    source: str
    target: str
    last_sign_at_s: float
    began_at_s: float
    state: str = "starting"
    ticks: int = 0
    ticks_s: float = 0.0
    failures: int = 0
    failing_since_s: float | None = None
    error: DeltamirrorError | None = None
    error_at_ms: int | None = None
    partition_errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def name(self) -> str:
        """Return what the loop is called in bulletins, logs and leases."""
        return f"{self.loop} {self.source}" + (f"->{self.target}" if self.target else "")


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


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The staged offsets `[begin, staged)` of the newest incarnation, and those not replayed yet.

    *stable* is the source's last stable offset when it was staged; *replayed* the next offset to
    replay, 0 where that incarnation has not begun; *oldest_ms* the smallest timestamp (ms since
    1970) of what waits in the stage, None where nothing with a timestamp does.
    """

    source: SourcePartition
    target_topic: str
    begin: int
    staged: int
    stable: int
    replayed: int
    oldest_ms: int | None
    is_paused: bool

    @property
    def target(self) -> TopicPartition:
        """Return the target partition that it is replayed to."""
        return TopicPartition(self.target_topic, self.source.partition)
