"""States of loops, flows and partitions, as `status` and the metrics report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import SourcePartition, TopicPartition

STATES = ("starting", "waiting", "running", "paused", "failed")
"""starting: before the first tick. waiting: another process has the lease. running: ticking.
paused: ticking, but an operator paused everything. failed: the last tick failed; it is retried."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """The state at one moment of a loop that stages `source` or replays `source->target`.

    *target* is empty for staging. Times that end in *_s* are monotonic, in seconds. *began_at_s*
    is the start of the last tick, *last_sign_at_s* the last report of the loop. *failing_since_s*
    is the first of the failures in a row; None: the last tick succeeded. *partition_errors* are the
    numbers of excluded partitions by type of error. *error* is the last error since the start.
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
        """Return the loop's name in status files, logs and leases."""
        return f"{self.loop} {self.source}" + (f"->{self.target}" if self.target else "")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's lag. Offsets are the next ones; *lag* is in offsets; *age_ms* None: unknown.

    *held_back* is the number of offsets after *source_end*, above the last stable offset.
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
    """The state of a flow: *state* is running, stopped, paused, failed or unreachable.

    *metrics* is the address of the metrics of the process that replays it, if it serves them.
    """

    flow: str
    state: str
    error: str | None
    hint: str | None = None
    partitions: tuple[PartitionState, ...] = ()
    metrics: str | None = None

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)

    @property
    def age_ms(self) -> int | None:
        """Return the age in ms of the oldest record that waits for replay; None: unknown."""
        ages = [each.age_ms for each in self.partitions if each.age_ms is not None]
        return max(ages, default=0 if self.lag == 0 else None)

    def to_json(self) -> dict[str, Any]:
        """Return the flow's entry in the output of `status --format json`."""
        return {**asdict(self), "partitions": [asdict(each) for each in self.partitions]}


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The staged offsets `[begin, staged)` of the newest incarnation, and those not replayed yet.

    *stable* is the source's last stable offset at the last staging. *replayed* is the next offset
    to replay, 0 if replay of that incarnation has not begun. *oldest_ms* is the smallest timestamp
    (ms since 1970) of the staged records that wait for replay; None without such a timestamp.
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
        return TopicPartition(self.target_topic, self.source.partition)
