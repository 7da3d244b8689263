"""Index the rows of an offset map by partition and incarnation, to look offsets up."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.offset_map.runs import Runs
from schemas.kafka.partition import TopicPartition
from schemas.staging.frontier import base_id

_TARGET_COLUMNS = ("target_topic", "target_topic_id", "target_partition")
_INCARNATION_COLUMNS = ["topic", "partition", "incarnation", *_TARGET_COLUMNS]
_RUN_COLUMNS = ("upstream_start", "downstream_start", "length")

MAP_COLUMNS = (*_INCARNATION_COLUMNS, *_RUN_COLUMNS, "committed_at")
"""The columns of `offset_map` that translation needs."""


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
        for mapped in reversed(incarnations):
            is_meant = incarnation in (None, mapped.incarnation, base_id(mapped.incarnation))
            if is_meant and mapped.target_topic_id == incarnations[-1].target_topic_id:
                return mapped
        return None

    def source_of(self, target: TopicPartition) -> TopicPartition | None:
        """Return the source partition that is mirrored to *target*, or None."""
        for partition, (*_, newest) in self._incarnations.items():
            if target == TopicPartition(newest.target_topic, newest.target_partition):
                return partition
        return None


def build_index(offset_map: pa.Table) -> MapIndex:
    """Return the index of *offset_map* (`MAP_COLUMNS`). Raises ValueError if runs overlap."""
    grouped = offset_map.group_by(_INCARNATION_COLUMNS).aggregate(
        [(name, "list") for name in _RUN_COLUMNS]
        + [("committed_at", "max"), ("downstream_start", "max")]
    )
    incarnations: dict[TopicPartition, list[MappedIncarnation]] = {}
    rows = grouped.drop_columns([f"{name}_list" for name in _RUN_COLUMNS]).to_pylist()
    for i in _by_age_of_incarnation(rows):
        row = rows[i]
        partition = TopicPartition(row["topic"], row["partition"])
        columns = (
            np.asarray(grouped.column(f"{name}_list")[i].values, np.int64) for name in _RUN_COLUMNS
        )
        try:
            runs = Runs(*columns).sort_by_upstream()
        except ValueError as error:
            raise ValueError(f"{partition}: {error}") from None
        ids = {name: row[name] for name in ("incarnation", *_TARGET_COLUMNS)}
        mapped = MappedIncarnation(**ids, runs=runs)
        incarnations.setdefault(partition, []).append(mapped)
    return MapIndex(incarnations)


def _by_age_of_incarnation(rows: list[dict[str, Any]]) -> list[int]:
    """Return the indexes of *rows* (one per incarnation), oldest first."""
    # By commit time of the target's incarnation, then by downstream offset: a rebuilt map commits
    # all incarnations of the source at once.
    target = itemgetter(*_TARGET_COLUMNS)
    written: dict[tuple[str, str, int], int] = {}
    for row in rows:
        written[target(row)] = max(written.get(target(row), 0), row["committed_at_max"])

    def age(i: int) -> tuple[int, int]:
        return written[target(rows[i])], rows[i]["downstream_start_max"]

    return sorted(range(len(rows)), key=age)
