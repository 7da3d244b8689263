"""Frontiers of source partitions, their snapshots and their incarnations."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.kafka.partition import SourcePartition, Watermarks


@dataclass(frozen=True, slots=True)
class Frontier:
    """The next offset to stage of a partition's newest incarnation.

    *leader_epoch* is the epoch of the leader whose watermarks planned the last range. Every offset
    below the frontier, markers included, was written in this epoch or an earlier one; the epoch of
    the last record would not cover markers. *last_stable* is the last known stable offset.
    """

    source: SourcePartition
    next_offset: int
    leader_epoch: int | None
    last_stable: int


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """A source partition at one moment: its topic id and its watermarks."""

    topic_id: str
    watermarks: Watermarks


def base_id(incarnation: str) -> str:
    """Return the topic id of an incarnation; `<topic_id>+1` is one after a truncated log."""
    return incarnation.split("+", 1)[0]


def next_incarnation(incarnation: str) -> str:
    """Return the incarnation after a truncation of the log, with the same topic id."""
    base, _, count = incarnation.partition("+")
    return f"{base}+{int(count or 0) + 1}"
