"""Which offsets of a group on the target may be set: those that move it forward, and no other.

MirrorMaker 2's rule (KIP-545): a group that has read further on the target than on the source has
a life of its own there.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.kafka.partition import TopicPartition

Commit = tuple[int, str]
"""An offset and the metadata beside it."""


def advances(
    wanted: Mapping[TopicPartition, Commit], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Commit]:
    """Return those of *wanted* that lie past what the group has *committed*, or are new to it."""
    return {
        partition: (offset, metadata)
        for partition, (offset, metadata) in wanted.items()
        if offset > committed.get(partition, -1)
    }
