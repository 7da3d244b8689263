"""Index the staged ranges of a source cluster, from its segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow.compute as pc

from resources.delta.records_table import RecordsTable
from resources.delta.segments_table import SegmentsTable
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink
from schemas.staging.frontier import Frontier
from schemas.staging.segment import Segment

_LINK_COLUMNS = ("topic", "topic_id", "partition", "start", "end", "count", "sequence")
INDEX_COLUMNS = (*_LINK_COLUMNS, "leader_epoch", "stable", "min_timestamp_ms", "version")
_STAGING_ORDER = [("version", "ascending"), ("start", "ascending")]


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """A chain link, the sequence of its file, and its smallest timestamp (ms; None: no record)."""

    link: ChainLink
    sequence: int
    oldest_ms: int | None


class SegmentIndex:
    """A reader of the segments that keeps them in memory and reads only what is new."""

    def __init__(self, segments: SegmentsTable) -> None:
        self._segments = segments
        self._version, self._table_version = 0, -1
        self._known_files: set[str] = set()
        self._links: dict[TopicPartition, list[IndexedSegment]] = {}
        self._incarnations: dict[TopicPartition, dict[str, None]] = {}
        self.frontiers: dict[TopicPartition, Frontier] = {}

    def refresh(self) -> bool:
        """Read the segments committed since the last call; return whether there were any."""
        if not self._segments.exists():
            return False
        table_version = self._segments.refresh()
        version = max(self._version, self._segments.sealed_version)
        commits = self._segments.commits_after(version)
        rows: list[dict[str, Any]] = [row for _, segments in commits for row in segments]
        if table_version != self._table_version:
            sealed = self._segments.rows_of_new_files(INDEX_COLUMNS, self._known_files)
            # Others were read before: from commits of `records`, or from files merged since.
            rows += sealed.filter(pc.field("version") > self._version).to_pylist()
            self._table_version = table_version
        for row in sorted(rows, key=lambda row: (row["version"], row["start"])):
            self._add_row(row)
            version = max(version, row["version"])
        self._version = max([version, *(number for number, _ in commits[-1:])])
        return bool(rows)

    def links(self, partition: TopicPartition) -> list[IndexedSegment]:
        """Return the links of *partition*; empty if nothing of it is staged."""
        return self._links.get(partition, [])

    def incarnations(self, partition: TopicPartition) -> list[str]:
        """Return all incarnations of *partition*, also of dropped links, in order of staging."""
        return list(self._incarnations.get(partition, {}))

    def first_sequence(self, partition: TopicPartition, link: ChainLink) -> int:
        """Return the lowest sequence of the files that hold *link* and later links."""
        return next(s.sequence for s in self.links(partition) if s.link == link)

    def drop_links(self, partition: TopicPartition, before: int) -> None:
        """Drop the first *before* links of *partition*, which are replayed, to free memory."""
        del self._links[partition][:before]

    def partitions(self) -> Iterator[TopicPartition]:
        """Return an iterator over all partitions that have ever been staged."""
        return iter(list(self._links))

    def retained_links(
        self, partition: TopicPartition, records: RecordsTable
    ) -> list[IndexedSegment]:
        """Return the links of *partition* whose *records* retention has not removed."""
        links, (topic, number) = self.links(partition), (partition.topic, partition.partition)
        retained_from = {
            incarnation: records.retained_from(SourcePartition(topic, incarnation, number)) or -1
            for incarnation in {staged.link.incarnation for staged in links}
        }
        return [s for s in links if s.link.end > retained_from[s.link.incarnation]]

    def _add_row(self, row: dict[str, Any]) -> None:
        source = SourcePartition(row["topic"], row["topic_id"], row["partition"])
        partition = source.topic_partition
        link = ChainLink(source.topic_id, row["start"], row["end"], row["count"])
        staged = IndexedSegment(link, row["sequence"], row["min_timestamp_ms"])
        self._links.setdefault(partition, []).append(staged)
        self._incarnations.setdefault(partition, {})[source.topic_id] = None
        self.frontiers[partition] = Frontier(source, row["end"], row["leader_epoch"], row["stable"])


def staged_segments(table: SegmentsTable, topic: str | None = None) -> list[Segment]:
    """Return the segments of the cluster of *table*, or of one *topic*, in the order of staging."""
    if table.exists():
        table.refresh()
    where = None if topic is None else pc.field("topic") == topic
    rows = table.rows([*(field.name for field in fields(Segment)), "version"], where=where)
    return [Segment.from_dict(row) for row in rows.sort_by(_STAGING_ORDER).to_pylist()]
