"""How far a source partition is staged."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.kafka.partition import SourcePartition, Watermarks


@dataclass(frozen=True, slots=True)
class Frontier:
    """The next offset to stage of a partition's newest incarnation.

    *leader_epoch* is that of the leader whose watermarks the last range was planned from: every
    offset below the frontier was written under it or an earlier one, markers too, which the epoch
    of the last record would not say. *last_stable* is the last stable offset seen then.
    """

    source: SourcePartition
    next_offset: int
    leader_epoch: int | None
    last_stable: int


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """What a source partition looks like now: its topic's id and its watermarks."""

    topic_id: str
    watermarks: Watermarks


def base_id(incarnation: str) -> str:
    """Return the topic id of an incarnation: `<topic_id>+1` is one after a cut log."""
    return incarnation.split("+", 1)[0]


def next_incarnation(incarnation: str) -> str:
    """Return the incarnation that follows a cut of the log under the same topic id."""
    base, _, count = incarnation.partition("+")
    return f"{base}+{int(count or 0) + 1}"
