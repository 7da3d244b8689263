"""Index the rows of an offset map by partition and incarnation, to look offsets up."""

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
"""The columns of `offset_map` that translation needs."""

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
    """The runs of a partition for one incarnation of its topic and one of the target topic."""

    incarnation: str
    target_topic: str
    target_topic_id: str
    target_partition: int
    runs: Runs


class MapIndex:
    """An offset map by partition. If a topic was re-created, its newest incarnation counts."""

    def __init__(self, incarnations: dict[TopicPartition, list[MappedIncarnation]]) -> None:
        self._incarnations = incarnations

    def mapped_incarnation(
        self, partition: TopicPartition, incarnation: str | None = None
    ) -> MappedIncarnation | None:
        """Return the mapped runs of the source's *partition*; None: nothing has arrived.

        *incarnation* is a topic id, for its newest recorded incarnation, or an incarnation in full
        (`<topic_id>+1`). None: the newest one. Only the target topic's newest incarnation counts.
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
        """Return the source partition that is mirrored to *target*, or None."""
        for partition, incarnations in self._incarnations.items():
            if (
                TopicPartition(incarnations[-1].target_topic, incarnations[-1].target_partition)
                == target
            ):
                return partition
        return None


def build_index(offset_map: pa.Table) -> MapIndex:
    """Return the index of *offset_map* (columns `MAP_COLUMNS`, rows in any order).

    Raises ValueError, with the partition and the offsets, if runs overlap.
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
    """Return the indexes of *rows* (one row per incarnation), oldest first.

    Incarnations of the target are ordered by commit time. Incarnations of the source are ordered
    by downstream offset, because they follow one another in the target's log. Their commit times
    do not show the order: a rebuilt map commits all of them at once.
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
