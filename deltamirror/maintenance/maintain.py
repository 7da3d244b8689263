"""Apply retention, compaction, OPTIMIZE and VACUUM to the tables of a source cluster."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.staging.segment_index import staged_segments
from pipeline.maintenance.compaction import (
    CompactionInput,
    check_unchanged,
    collect_stats,
    select_groups,
    sort_by_partition,
)
from pipeline.maintenance.retention import select_expired
from resources.coordination.lease import Lease
from resources.delta.records_table import RecordsFile, RecordsTable
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory, cast_to_file_schema
from resources.delta.table import LakeTable
from resources.delta.table_maintenance import optimize, vacuum
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.lake import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.staging.segment import Segment
from schemas.tables import CLUSTER_TABLES, FLOW_TABLES, RECORDS

log = logging.getLogger(__name__)

Numbers = dict[TopicPartition, dict[str, int]]
"""The number of each incarnation of a partition, in the order of staging."""

Position = tuple[int, int]
"""Number of an incarnation, and an offset in it."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Numbers of files that a maintenance of one source cluster changed.

    Retention *removed* files of `records` with *removed_bytes*. Compaction replaced *joined* files
    of `records` with *joined_into* files. OPTIMIZE replaced *merged* small files of other tables.
    VACUUM *deleted* files that no retained version of a table needs.
    """

    alias: str
    removed: int
    removed_bytes: int
    joined: int
    joined_into: int
    merged: int
    deleted: int


def maintain(context: MirrorContext, alias: str | None = None) -> list[MaintenanceResult]:
    """Maintain the tables of source cluster *alias*, or of all source clusters.

    Raises LeaseHeldError if another process stages the cluster and so maintains it; LakeError.
    """
    done = []
    for each in [alias] if alias else context.config.sources():
        context.lake.ensure_exists()
        with Lease(context.lake.root, f"stage {each}"):
            done.append(maintain_cluster(context, each))
    return done


def maintain_cluster(context: MirrorContext, alias: str) -> MaintenanceResult:
    """Maintain source cluster *alias*; the caller holds its staging lease.

    Staging and replay may run at the same time: no frontier is moved, and a replaced file can be
    read for another day. Raises StalePlanError, LakeError.
    """
    records = context.lake.records(alias)
    removed = apply_retention(context, alias, records) if records.exists() else []
    joined = list(compact(records)) if records.exists() else []
    tables = [table for table in maintained_tables(context, alias) if table.exists()]
    merged = sum(optimize(table) for table in tables if table.table is not RECORDS)
    segments = context.lake.segments(alias)
    sealed = segments.sealed_version if segments.exists() else 0
    deleted = sum(vacuum(t, sealed if t.table is RECORDS else None) for t in tables)
    return MaintenanceResult(
        alias,
        removed=len(removed),
        removed_bytes=sum(file.size_bytes for file in removed),
        joined=sum(joined),
        joined_into=len(joined),
        merged=merged,
        deleted=deleted,
    )


def compact(records: RecordsTable) -> Iterator[int]:
    """Compact small files of *records*, one commit for each group; yield each group's file count.

    A new file is read back and compared with the old ones before it is committed. Raises LakeError
    if it differs, with nothing committed.
    """
    staged = StageReader(records.path)
    records.refresh()
    for slot, members in groupby(records.files(), key=attrgetter("slot")):
        files = {file.path: file for file in members}
        parts = [
            CompactionInput(f.path, f.sequence, f.size_bytes, staged.memory_bytes(f.path))
            for f in files.values()
        ]
        for group in select_groups(parts):
            _compact_group(records, staged, slot, [files[part.path] for part in group])
            yield len(group)


def _compact_group(
    records: RecordsTable, staged: StageReader, slot: int, parts: Sequence[RecordsFile]
) -> None:
    rows = list(staged.all_rows([part.path for part in parts]))
    before = collect_stats(rows)
    with RecordsDirectory(records.path).slot_file(slot, parts[-1].sequence) as out:
        for _, batch in sort_by_partition(rows):
            out.write(cast_to_file_schema(batch))
        joined = out.close()
    if joined is None:
        raise LakeError(f"{records.path}: files of slot {slot} hold no records")
    try:
        check_unchanged(before, collect_stats(staged.all_rows([joined.path])))
    except LakeError:
        with suppress(OSError):
            (records.path / joined.path).unlink()
        raise
    records.replace(parts, [joined])
    log.info("slot %d of %s: %d files compacted into one", slot, records.path, len(parts))


def apply_retention(context: MirrorContext, alias: str, records: RecordsTable) -> list[RecordsFile]:
    """Remove the files of *records* that are expired and replayed by all flows; return them."""
    age_ms, max_bytes = context.config.stage_retention_ms, context.config.stage_retention_bytes
    if age_ms is None and max_bytes is None:
        return []
    records.refresh()
    before_ms = None if age_ms is None else int(time.time() * 1000) - age_ms
    segments = staged_segments(context.lake.segments(alias))
    is_replayed = _replayed_by_all(context, alias, segments)
    files = records.files()
    expired, kept = select_expired(
        files, segments, is_replayed, before_ms=before_ms, max_bytes=max_bytes
    )
    if expired:
        records.drop(expired, kept)
        log.info("%d expired files of %s removed", len(expired), records.path)
    return expired


def _replayed_by_all(
    context: MirrorContext, alias: str, segments: Sequence[Segment]
) -> Callable[[Segment], bool]:
    """Return a function: is a segment mapped by each flow that replicates its topic?

    The offset map decides, not progress: if its last runs are lost, they are rebuilt from the
    staged records, which must still be there.
    """
    numbers: Numbers = defaultdict(dict)
    for segment in segments:
        known = numbers[segment.source.topic_partition]
        known.setdefault(segment.topic_id, len(known))
    flows = [flow for flow in context.config.flows if flow.flow.source == alias]
    reached = [(flow, _mapped_positions(context, flow, numbers)) for flow in flows]

    def is_replayed(segment: Segment) -> bool:
        partition = segment.source.topic_partition
        position = (numbers[partition][segment.topic_id], segment.end)
        return all(
            position <= found.get(partition, (-1, 0))
            for flow, found in reached
            if flow.replicates(segment.topic)
        )

    return is_replayed


def _mapped_positions(
    context: MirrorContext, flow: FlowConfig, numbers: Numbers
) -> dict[TopicPartition, Position]:
    """Return how far the map of *flow* is in the newest incarnation of each target topic."""
    table = context.lake.offset_map(flow.flow)
    if not table.exists():
        return {}
    table.refresh()
    keys = ["topic", "partition", "target_topic", "target_partition", "target_topic_id"]
    newest = table.rows([*keys, "committed_at"]).group_by(keys).aggregate([("committed_at", "max")])
    offset_map = OffsetMap(table, "")
    reached: dict[TopicPartition, Position] = {}
    for row in newest.sort_by("committed_at_max").to_pylist():
        partition = TopicPartition(row["topic"], row["partition"])
        target = TopicPartition(row["target_topic"], row["target_partition"])
        known = numbers.get(partition, {})
        mapped = offset_map.end(target, row["target_topic_id"], list(known))
        if mapped is not None:
            progress = mapped.progress
            reached[partition] = (known[progress.incarnation], progress.next_offset)
    return reached


def maintained_tables(context: MirrorContext, alias: str) -> list[LakeTable]:
    """Return the tables of a source cluster and of its flows."""
    lake = context.lake
    flows = [flow.flow for flow in context.config.flows if flow.flow.source == alias]
    own = [
        lake.records(alias) if t is RECORDS else lake.cluster_table(alias, t)
        for t in CLUSTER_TABLES
    ]
    return [*own, *(lake.flow_table(flow, table) for flow in flows for table in FLOW_TABLES)]


COMMITS_PER_CHECKPOINT = 100
"""Commits between checkpoints. Opening a table reads each commit after the last one: 0.3 ms."""


class MaintenanceLoop:
    """Maintain, in a thread, the source clusters whose staging *leases* this process holds."""

    def __init__(
        self, context: MirrorContext, leases: Mapping[str, Lease], done: threading.Event
    ) -> None:
        self._context, self._leases, self._done = context, leases, done
        self._maintained_tables = {alias: maintained_tables(context, alias) for alias in leases}

    def run(self) -> None:
        """Maintain until *done* is set; a failure is logged and retried after the interval."""
        timings = self._context.timings
        next_turn = time.monotonic() + timings.maintain_interval_s
        while not self._done.wait(min(timings.optimize_interval_s, timings.maintain_interval_s)):
            self.optimize_tables()
            if time.monotonic() >= next_turn:
                self.maintain_clusters()
                next_turn = time.monotonic() + timings.maintain_interval_s

    def optimize_tables(self) -> None:
        """Merge small files and write due checkpoints, in the clusters staged by this process.

        The loops do not merge files, because that would delay their ticks.
        """
        for alias in self._staged_aliases():
            for table in self._maintained_tables[alias]:
                try:
                    if table.table is not RECORDS and table.exists():
                        optimize(table)
                    table.checkpoint(COMMITS_PER_CHECKPOINT)
                except DeltamirrorError as error:  # continue with the other tables
                    log.warning("%s was not optimized: %s", table.path, error)

    def maintain_clusters(self) -> None:
        """Maintain each cluster that this process stages now."""
        for alias in self._staged_aliases():
            try:
                done = maintain_cluster(self._context, alias)
                if done.joined or done.removed or done.deleted:
                    log.info("%s", done)
            except DeltamirrorError as error:
                log.warning("the tables of %s were not maintained: %s", alias, error)

    def _staged_aliases(self) -> Iterator[str]:
        return (alias for alias, lease in self._leases.items() if lease.is_held)
