"""How far a partition of a flow is, as the loop that replays it knows without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.kafka.partition import SourcePartition, TopicPartition


@dataclass(frozen=True, slots=True)
class Standing:
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
