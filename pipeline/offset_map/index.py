"""The rows of an offset map become indexes to look offsets up in, one per partition and life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.offset_map.runs import Runs
from schemas.kafka.partition import TopicPartition
from schemas.staging.frontier import base_id

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

_INCARNATION_COLUMNS = [
    "topic",
    "partition",
    "incarnation",
    "target_topic",
    "target_topic_id",
    "target_partition",
]


@dataclass(frozen=True)
class MappedIncarnation:
    """The runs of a partition in one incarnation on the source and one life of its target."""

    incarnation: str
    target_topic: str
    target_topic_id: str
    target_partition: int
    runs: Runs


class MapIndex:
    """An offset map by partition. Where a topic lived more than once, the newest life counts."""

    def __init__(self, incarnations: dict[TopicPartition, list[MappedIncarnation]]) -> None:
        self._incarnations = incarnations

    def mapped_incarnation(
        self, partition: TopicPartition, incarnation: str | None = None
    ) -> MappedIncarnation | None:
        """Return what arrived of the source's *partition*, or None: nothing did.

        *incarnation* is a topic id, which means its newest incarnation on record, or one in full
        (`<topic_id>+1`); None: the newest. Of the target's lives it is the present one.
        """
        incarnations = self._incarnations.get(partition, [])
        if not incarnations:
            return None
        target_topic_id = incarnations[-1].target_topic_id
        for mapped_incarnation in reversed(incarnations):
            is_meant = incarnation in (
                None,
                mapped_incarnation.incarnation,
                base_id(mapped_incarnation.incarnation),
            )
            if is_meant and mapped_incarnation.target_topic_id == target_topic_id:
                return mapped_incarnation
        return None

    def source_of(self, target: TopicPartition) -> TopicPartition | None:
        """Return the source partition that is mirrored to *target*. None: none is."""
        for partition, incarnations in self._incarnations.items():
            if (
                TopicPartition(incarnations[-1].target_topic, incarnations[-1].target_partition)
                == target
            ):
                return partition
        return None


def build_index(offset_map: pa.Table) -> MapIndex:
    """Return the index of the rows of an offset map (`MAP_COLUMNS`), in any order.

    Raises ValueError, with the partition and the numbers, where runs overlap.
    """
    grouped = offset_map.group_by(_INCARNATION_COLUMNS).aggregate(
        [(name, "list") for name in ("upstream_start", "downstream_start", "length")]
        + [("committed_at", "max"), ("downstream_start", "max")]
    )
    incarnations: dict[TopicPartition, list[MappedIncarnation]] = {}
    rows = grouped.select(
        [*_INCARNATION_COLUMNS, "committed_at_max", "downstream_start_max"]
    ).to_pylist()
    for i in _by_age_of_incarnation(rows):
        row = rows[i]
        partition = TopicPartition(row["topic"], row["partition"])
        columns = (
            np.asarray(grouped.column(f"{name}_list")[i].values, dtype=np.int64)
            for name in ("upstream_start", "downstream_start", "length")
        )
        try:
            runs = Runs(*columns).sort_by_upstream()
        except ValueError as error:
            raise ValueError(f"{partition}: {error}") from None
        incarnations.setdefault(partition, []).append(
            MappedIncarnation(
                row["incarnation"],
                row["target_topic"],
                row["target_topic_id"],
                row["target_partition"],
                runs,
            )
        )
    return MapIndex(incarnations)


def _by_age_of_incarnation(rows: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of *rows*, one a life: lives of the target by time, then by its offsets.

    Lives of a source topic lie one behind the other in the target's log, whenever the map told
    of them: a map that was rebuilt told of all at once.
    """
    written: dict[tuple[str, str, int], int] = {}
    for row in rows:
        target = (row["target_topic"], row["target_topic_id"], row["target_partition"])
        written[target] = max(written.get(target, 0), row["committed_at_max"])

    def age(i: int) -> tuple[int, int]:
        row = rows[i]
        target = (row["target_topic"], row["target_topic_id"], row["target_partition"])
        return written[target], row["downstream_start_max"]

    return sorted(range(len(rows)), key=age)
