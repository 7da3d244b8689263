"""The rows of an offset map become indexes to look offsets up in, one per partition and life."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.translate import RunIndex
from schemas.frontier import base_id
from schemas.topic_partition import TopicPartition

MAP_COLUMNS = (
    "topic",
    "incarnation",
    "partition",
    "upstream_start",
    "target_topic",
    "target_topic_id",
    "target_partition",
    "downstream_start",
    "length",
    "committed_at",
)
"""The columns of `offset_map` that translating needs."""

_LIFE = ["topic", "partition", "incarnation", "target_topic", "target_topic_id", "target_partition"]


@dataclass(frozen=True)
class MappedLife:
    """The runs of a partition in one incarnation on the source and one life of its target."""

    incarnation: str
    target_topic: str
    target_topic_id: str
    target_partition: int
    runs: RunIndex


class MapIndex:
    """An offset map by partition. Where a topic lived more than once, the newest life counts."""

    def __init__(self, lives: dict[TopicPartition, list[MappedLife]]) -> None:
        self._lives = lives

    def life(self, partition: TopicPartition, incarnation: str | None = None) -> MappedLife | None:
        """Return what arrived of the source's *partition*, or None: nothing did.

        *incarnation* is a topic id, which means its newest incarnation on record, or one in full
        (`<topic_id>+1`); None: the newest. Of the target's lives it is the present one.
        """
        lives = self._lives.get(partition, [])
        if not lives:
            return None
        target_topic_id = lives[-1].target_topic_id
        for life in reversed(lives):
            is_meant = incarnation in (None, life.incarnation, base_id(life.incarnation))
            if is_meant and life.target_topic_id == target_topic_id:
                return life
        return None

    def source_of(self, target: TopicPartition) -> TopicPartition | None:
        """Return the source partition that is mirrored to *target*. None: none is."""
        for partition, lives in self._lives.items():
            if TopicPartition(lives[-1].target_topic, lives[-1].target_partition) == target:
                return partition
        return None


def index(offset_map: pa.Table) -> MapIndex:
    """Return the index of the rows of an offset map (`MAP_COLUMNS`), in any order.

    Raises ValueError, with the partition and the numbers, where runs overlap.
    """
    grouped = offset_map.group_by(_LIFE).aggregate(
        [(name, "list") for name in ("upstream_start", "downstream_start", "length")]
        + [("committed_at", "max")]
    )
    grouped = grouped.sort_by("committed_at_max").combine_chunks()
    lives: dict[TopicPartition, list[MappedLife]] = {}
    for i, row in enumerate(grouped.select(_LIFE).to_pylist()):
        partition = TopicPartition(row["topic"], row["partition"])
        columns = (
            np.asarray(grouped.column(f"{name}_list")[i].values, dtype=np.int64)
            for name in ("upstream_start", "downstream_start", "length")
        )
        try:
            runs = RunIndex.sorted(*columns)
        except ValueError as error:
            raise ValueError(f"{partition}: {error}") from None
        lives.setdefault(partition, []).append(
            MappedLife(
                row["incarnation"],
                row["target_topic"],
                row["target_topic_id"],
                row["target_partition"],
                runs,
            )
        )
    return MapIndex(lives)
