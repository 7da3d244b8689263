"""Index the staged ranges of a source cluster, from its segments."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import dropwhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrays import group_rows
from resources.delta.arrow_schema import arrow_schema
from resources.delta.records_table import RecordsTable
from resources.delta.segments_table import SealedPartition, SegmentsTable
from resources.delta.table import UNORDERED
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink
from schemas.staging.frontier import Frontier
from schemas.staging.segment import Segment

_LINK_COLUMNS = ("topic", "topic_id", "partition", "start", "end", "count", "sequence")
INDEX_COLUMNS = (*_LINK_COLUMNS, "leader_epoch", "stable", "min_timestamp_ms", "version")
_POSITION_COLUMNS = ("topic", "topic_id", "partition", "start", "version")
_STAGING_ORDER = [("version", "ascending"), ("start", "ascending")]
_BY_PARTITION = [("topic", "ascending"), ("partition", "ascending"), *_STAGING_ORDER]


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """A chain link, the sequence of its file, and its smallest timestamp (ms; None: no record)."""

    link: ChainLink
    sequence: int
    oldest_ms: int | None


Reached = Callable[[SourcePartition], int | None]
"""Returns the offset that a reader has reached in an incarnation; None: it begins there."""


def last_only(_: SourcePartition) -> int:
    """Return an offset after all: for a reader that needs only frontiers and incarnations."""
    return sys.maxsize


def recent_segments(table: SegmentsTable, columns: Sequence[str], reached: Reached) -> pa.Table:
    """Return the *columns* of the segments after what *reached* returns, and of some before it.

    Each partition has the segment in which *reached* lies or that ends there, and all later ones. A
    partition without records after it may have an empty segment at its end instead. Files are read
    from the newest one on, and no more of them than that needs. So neither time nor memory depends
    on how long the mirror has existed. Raises TableDamagedError.
    """
    if not table.exists():
        return table.rows(columns)
    table.refresh()
    rows, _ = _sealed_segments(table, columns, reached)
    return pa.concat_tables([rows, table.unsealed_rows().select(rows.column_names)])


def _sealed_segments(
    table: SegmentsTable, columns: Sequence[str], reached: Reached | None, after: int = -1
) -> tuple[pa.Table, set[TopicPartition]]:
    """Return the sealed rows as `recent_segments` does, without those up to version *after*.

    *reached* None: all of them. Also return the partitions of which earlier rows were left out.
    """
    needed = list(dict.fromkeys((*_POSITION_COLUMNS, *columns)))
    found = [arrow_schema(table.table).empty_table().select(needed)]
    cut: set[TopicPartition] = set()
    partitions: dict[TopicPartition, list[SealedPartition]] = {}
    sealed = table.sealed_partitions() if reached is not None else None
    if sealed is None or reached is None:
        reached = None
    else:
        for each in sealed:
            partitions.setdefault(each.source.topic_partition, []).append(each)
        done = [m[0] for m in partitions.values() if len(m) == 1 and _is_done(m[0], reached)]
        cut = {each.source.topic_partition for each in done}
        rows = pa.Table.from_pylist([_last_row(each) for each in done], arrow_schema(table.table))
        found.append(rows.select(needed))
        if len(cut) == len(partitions):
            return pa.concat_tables(found), cut
    for order, rows in table.newest_first(needed, after):
        new = rows.filter(pc.field("version") > after)
        if reached is None or order == UNORDERED:
            found.append(new)
            continue
        for key, members in group_rows(new.sort_by(_BY_PARTITION), ("topic", "partition")):
            partition = TopicPartition(*key)
            if partition in cut:
                continue
            first = _first_needed(partition, members, reached)
            if first is not None:
                cut.add(partition)
            found.append(members.slice(first or 0))
        if partitions.keys() <= cut:
            break
    return pa.concat_tables(found), cut


def _is_done(sealed: SealedPartition, reached: Reached) -> bool:
    at = reached(sealed.source)
    return sealed.count == 0 or (at is not None and at >= sealed.end)


def _last_row(sealed: SealedPartition) -> dict[str, Any]:
    """Return an empty segment at the end of *sealed*."""
    source, end = sealed.source, sealed.end
    return {
        "topic": source.topic, "topic_id": source.topic_id, "partition": source.partition,
        "start": end, "end": end, "count": 0, "sequence": 0, "stable": sealed.stable,
        "leader_epoch": sealed.leader_epoch, "version": 0,
    }  # fmt: skip


def _first_needed(partition: TopicPartition, rows: pa.Table, reached: Reached) -> int | None:
    """Return the index of the row that holds what *reached* returns; None: it is further back.

    *rows* are those of one partition, in the order of staging.
    """
    for topic_id in reversed(pc.unique(rows["topic_id"]).to_pylist()):
        at = reached(SourcePartition(partition.topic, topic_id, partition.partition))
        if at is not None:
            ids, starts = rows["topic_id"], rows["start"]
            is_before = pc.and_(pc.equal(ids, topic_id), pc.less_equal(starts, at))
            before = np.flatnonzero(is_before.to_numpy())
            return int(before[-1]) if len(before) else None
    return None


class SegmentIndex:
    """A reader of the segments that keeps them in memory and reads only what is new.

    With *reached*, the segments before are not read, see `recent_segments`, until `read_all`.
    """

    def __init__(self, segments: SegmentsTable, reached: Reached | None = None) -> None:
        self._segments, self._reached = segments, reached
        self._forget()

    def _forget(self) -> None:
        self._version, self._table_version = 0, -1
        self._cut: set[TopicPartition] = set()
        self._links: dict[TopicPartition, list[IndexedSegment]] = {}
        self._incarnations: dict[TopicPartition, dict[str, None]] = defaultdict(dict)
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
            reached = self._reached if self._table_version < 0 else None
            # Others were read before: from commits of `records`, or from files merged since.
            sealed, cut = _sealed_segments(self._segments, INDEX_COLUMNS, reached, self._version)
            self._cut |= cut
            for known in self._segments.sealed_partitions() or () if cut else ():
                source = known.source
                self._incarnations[source.topic_partition][source.topic_id] = None
            rows += sealed.to_pylist()
            self._table_version = table_version
        for row in sorted(rows, key=lambda row: (row["version"], row["start"])):
            self._add_row(row)
            version = max(version, row["version"])
        self._version = max([version, *(number for number, _ in commits[-1:])])
        return bool(rows)

    def read_all(self) -> None:
        """Read all segments again, also those before what *reached* returns."""
        self._reached = None
        self._forget()
        self.refresh()

    def is_cut(self, partition: TopicPartition) -> bool:
        """Return whether earlier segments of *partition* were not read."""
        return partition in self._cut

    def links(self, partition: TopicPartition) -> list[IndexedSegment]:
        """Return the links of *partition*; empty if nothing of it is staged."""
        return self._links.get(partition, [])

    def incarnations(self, partition: TopicPartition) -> list[str]:
        """Return all incarnations of *partition*, also of dropped links, in order of staging."""
        return list(self._incarnations.get(partition, {}))

    def first_sequence(self, partition: TopicPartition, link: ChainLink) -> int:
        """Return the lowest sequence of the files that hold records of *link* and later links.

        It is higher than any sequence if they have no records.
        """
        links = dropwhile(lambda staged: staged.link != link, self.links(partition))
        return next((staged.sequence for staged in links if staged.link.count), sys.maxsize)

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
        known, incarnations = self.frontiers.get(partition), self._incarnations[partition]
        if known is None or known.source != source:
            # Incarnations whose segments were not read stay before the others, in any order.
            incarnations.pop(source.topic_id, None)
            incarnations[source.topic_id] = None
        self.frontiers[partition] = Frontier(source, row["end"], row["leader_epoch"], row["stable"])


def segment_tables(table: SegmentsTable, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the *columns* of all segments, a part at a time, the newest first.

    Raises TableDamagedError.
    """
    if table.exists():
        table.refresh()
        yield table.unsealed_rows().select(columns)
        yield from (rows for _, rows in table.newest_first(columns))


def staged_segments(table: SegmentsTable, topic: str | None = None) -> list[Segment]:
    """Return the segments of the cluster of *table*, or of one *topic*, in the order of staging."""
    if table.exists():
        table.refresh()
    where = None if topic is None else pc.field("topic") == topic
    rows = table.rows([*(field.name for field in fields(Segment)), "version"], where=where)
    return [Segment.from_dict(row) for row in rows.sort_by(_STAGING_ORDER).to_pylist()]
