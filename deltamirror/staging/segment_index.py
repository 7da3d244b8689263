"""Index the staged ranges of a source cluster, from its segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow.compute as pc

from resources.delta.records_table import RecordsTable
from resources.delta.segments_table import SegmentsTable
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink
from schemas.staging.frontier import Frontier
from schemas.staging.segment import Segment

INDEX_COLUMNS = (
    "topic",
    "topic_id",
    "partition",
    "start",
    "end",
    "count",
    "leader_epoch",
    "stable",
    "staged_at_ms",
    "min_timestamp_ms",
    "sequence",
    "version",
)


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """A link of a partition's chain, with the sequence of its file and its times.

    *staged_at_ms* is when it was staged. *oldest_ms* is the smallest timestamp of its records;
    None if it holds no record. Both are in ms since 1970.
    """

    link: ChainLink
    sequence: int
    staged_at_ms: int
    oldest_ms: int | None


@dataclass
class SegmentChains:
    """Each partition's links and incarnations in the order of staging, and its frontier."""

    links: dict[TopicPartition, list[IndexedSegment]] = field(default_factory=dict)
    frontiers: dict[TopicPartition, Frontier] = field(default_factory=dict)
    incarnations: dict[TopicPartition, dict[str, None]] = field(default_factory=dict)


class SegmentIndex:
    """A reader of the segments that keeps them in memory and reads only what is new."""

    def __init__(self, segments: SegmentsTable) -> None:
        self._segments = segments
        self._version = 0
        self._table_version = -1
        self._known_files: set[str] = set()
        self.chains = SegmentChains()

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
        return self.chains.links.get(partition, [])

    def incarnations(self, partition: TopicPartition) -> list[str]:
        """Return all incarnations of *partition*, in the order of staging.

        `drop_links` does not remove incarnations.
        """
        return list(self.chains.incarnations.get(partition, {}))

    def first_sequence(self, partition: TopicPartition, link: ChainLink) -> int:
        """Return the lowest sequence of the files that hold *link* and later links."""
        return next(s.sequence for s in self.links(partition) if s.link == link)

    def drop_links(self, partition: TopicPartition, before: int) -> None:
        """Drop the first *before* links of *partition*, which are replayed, to free memory."""
        del self.chains.links[partition][:before]

    def partitions(self) -> Iterator[TopicPartition]:
        """Return an iterator over all partitions that have ever been staged."""
        return iter(list(self.chains.links))

    def retained_links(
        self, partition: TopicPartition, records: RecordsTable
    ) -> list[IndexedSegment]:
        """Return the links of *partition* whose *records* retention has not removed."""
        links = self.links(partition)
        retained_from = {
            incarnation: records.retained_from(
                SourcePartition(partition.topic, incarnation, partition.partition)
            )
            for incarnation in {staged.link.incarnation for staged in links}
        }
        return [s for s in links if s.link.end > (retained_from[s.link.incarnation] or -1)]

    def _add_row(self, row: dict[str, int | str | None]) -> None:
        source = SourcePartition(row["topic"], row["topic_id"], row["partition"])  # type: ignore[arg-type]
        link = ChainLink(source.topic_id, row["start"], row["end"], row["count"])  # type: ignore[arg-type]
        oldest_ms: int | None = row["min_timestamp_ms"]  # type: ignore[assignment]
        staged = IndexedSegment(link, row["sequence"], row["staged_at_ms"], oldest_ms)  # type: ignore[arg-type]
        self.chains.links.setdefault(source.topic_partition, []).append(staged)
        self.chains.incarnations.setdefault(source.topic_partition, {})[source.topic_id] = None
        self.chains.frontiers[source.topic_partition] = Frontier(
            source,
            row["end"],  # type: ignore[arg-type]
            row["leader_epoch"],  # type: ignore[arg-type]
            row["stable"],  # type: ignore[arg-type]
        )


def staged_segments(table: SegmentsTable, topic: str | None = None) -> list[Segment]:
    """Return the segments of the cluster of *table*, or of one *topic*, in the order of staging."""
    if table.exists():
        table.refresh()
    where = None if topic is None else pc.field("topic") == topic
    columns = [field.name for field in fields(Segment)]
    rows = table.rows([*columns, "version"], where=where)
    ordered = rows.sort_by([("version", "ascending"), ("start", "ascending")])
    return [Segment.from_dict(row) for row in ordered.to_pylist()]
