"""Translate a group's committed offset to the other side, with one partition's offset runs.

upstream     10   11   14   15        committed 12
downstream    3    4    6    7     -> resumes at 6
runs         (10, 3, 2) (14, 6, 2)
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.offset_map.runs import Runs
from schemas.kafka.partition import TopicPartition


def translate(committed: int, runs: Runs) -> int | None:
    """Return the downstream offset at which a group that committed *committed* resumes.

    A committed offset names the next record to read, so the result is the first replicated record
    at or after it. A group that is ahead of replication gets the end of the replicated records: it
    may read a record twice, but it skips none. Return None if nothing has arrived.
    """
    if not len(runs):
        return None
    downstream_offset = runs.downstream_at_or_after(committed)
    return runs.downstream_end if downstream_offset is None else downstream_offset


def translate_back(downstream: int, runs: Runs) -> int | None:
    """Return the upstream offset at which a group that committed *downstream* resumes.

    The inverse of `translate`, for failback.
    """
    if not len(runs):
        return None
    offset = runs.upstream_at_or_after(downstream)
    return runs.upstream_end if offset is None else offset


OffsetAndMetadata = tuple[int, str]
"""A committed offset and its metadata."""


def forward_commits(
    wanted: Mapping[TopicPartition, OffsetAndMetadata], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the *wanted* offsets that are above the group's *committed* ones, or have none."""
    return {p: wish for p, wish in wanted.items() if wish[0] > committed.get(p, -1)}
