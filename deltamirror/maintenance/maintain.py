"""Apply retention, compaction, OPTIMIZE and VACUUM to the tables of a source cluster."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from deltamirror.backoff import wrap_unexpected_errors
from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.staging.segment_index import segment_tables
from deltamirror.staging.stager import SourceStager
from pipeline.maintenance.compaction import (
    SEQUENCES_PER_LEVEL,
    FileStats,
    check_unchanged,
    collect_stats,
    select_run,
    slot_mask,
    sort_by_partition,
)
from pipeline.maintenance.retention import (
    HELD_COLUMNS,
    HeldRange,
    IncarnationOrder,
    held_ranges,
    select_expired,
)
from resources.coordination.lease import Lease
from resources.delta.records_table import RecordsTable
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory, cast_to_row_schema, join_batches
from resources.delta.table import LakeTable
from resources.delta.table_maintenance import Vacuum, optimize
from resources.librdkafka.bindings import release_memory
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.lake import LakeError, StagedFileError
from schemas.kafka.partition import SLOT_COUNT, SourcePartition, TopicPartition
from schemas.staging.segment import RecordsFile, StagedFile
from schemas.tables import CLUSTER_TABLES, FLOW_TABLES, RECORDS

log = logging.getLogger(__name__)

Position = tuple[int, int]
"""Number of an incarnation, and an offset in it."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Numbers of files that a maintenance of one source cluster changed.

    Retention *removed* files of `records` with *removed_bytes*. Compaction replaced *joined* files
    of `records` with *joined_into* files. OPTIMIZE replaced *merged* small files of other tables.
    *deleted* replaced files were deleted.
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

    Staging and replay may run at the same time: no frontier is moved, and a reader of a replaced
    file continues with the file that replaced it. Raises StalePlanError, LakeError.
    """
    records = context.lake.records(alias)
    removed = apply_retention(context, alias, records) if records.exists() else []
    joined: list[tuple[int, int]] = []
    while records.exists() and (counts := compact(records, min_sequences=2)):
        joined.append(counts)
    tables = [table for table in maintained_tables(context, alias) if table.exists()]
    merged = sum(optimize(table) for table in tables if table.table is not RECORDS)
    for table in tables:
        table.checkpoint(1)
    deleted = sum(_vacuum(context, alias, Vacuum(table)) for table in tables)
    return MaintenanceResult(
        alias,
        removed=len(removed),
        removed_bytes=sum(file.size_bytes for file in removed),
        joined=sum(old for old, _ in joined),
        joined_into=sum(new for _, new in joined),
        merged=merged,
        deleted=deleted,
    )


def compact(
    records: RecordsTable,
    min_sequences: int = SEQUENCES_PER_LEVEL[0],
    damaged: Collection[str] = (),
) -> tuple[int, int] | None:
    """Join the small files of *records* that `select_run` selects, in one commit.

    Files of *damaged* paths are left out.

    Return the numbers of replaced and of new files, or None if there was nothing to join. A new
    file is read back and compared with the old ones before it is committed. Raises LakeError if it
    differs, with nothing committed.
    """
    records.refresh()
    files = select_run(records.files(), min_sequences, damaged)
    if not files:
        return None
    level = 1 + max(file.level for file in files)
    staged, directory = StageReader(records.path), RecordsDirectory(records.path)
    joined = list[StagedFile]()
    before, after = dict[SourcePartition, FileStats](), dict[SourcePartition, FileStats]()
    count, size_bytes = staged.measure([file.path for file in files])
    try:
        for slot, stats, rows in _rows_by_slot(staged, files, size_bytes):
            with directory.records_file(files[-1].sequence, level) as out:
                for batch in rows:
                    out.write(slot, batch)
                file = out.close()
            if file is None:
                raise LakeError(
                    f"{records.path}: compaction found no records of slot {slot}; nothing was "
                    "committed"
                )
            joined.append(file)
            before |= stats
            after |= collect_stats(StageReader(records.path).all_rows([joined[-1].path]))
        check_unchanged(before, after, count)
        records.replace(files, joined)
    except DeltamirrorError:
        # A commit that reported a failure may have been made. If that is unknown, the files stay.
        records.refresh()
        for file in joined:
            if file.path not in records.live:
                with suppress(OSError):
                    (records.path / file.path).unlink()
        raise
    log.info("%s: %d files compacted into %d", records.path, len(files), len(joined))
    return len(files), len(joined)


def _rows_by_slot(
    staged: StageReader, files: Sequence[RecordsFile], size_bytes: int
) -> Iterator[tuple[int, Mapping[SourcePartition, FileStats], Iterable[pa.RecordBatch]]]:
    """Yield each slot of *files*, the stats of its rows, and the rows by topic and partition."""
    paths = [file.path for file in files]
    if size_bytes <= SORTED_BYTES:
        found = dict(join_batches(staged.all_rows(paths)))
        by_slot = sorted(found, key=lambda source: source.slot)
        for slot, members in groupby(by_slot, key=lambda source: source.slot):
            of_slot = {source: found[source] for source in members}
            rows = sort_by_partition(of_slot.items())
            yield slot, collect_stats(of_slot.items()), (batch for _, batch in rows)
        return
    for slot in (i for i in range(SLOT_COUNT) if slot_mask(files) >> i & 1):
        own = [file.path for file in files if file.has_slot(slot)]
        stats = collect_stats(staged.all_rows(own, slot))
        yield slot, stats, _rows_by_partition(staged, slot, own)


def _rows_by_partition(
    staged: StageReader, slot: int, paths: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of *slot*, by topic and partition, in bounded memory."""
    if staged.measure(paths, slot)[1] <= SORTED_BYTES:
        rows = dict(join_batches(staged.all_rows(paths, slot)))
        yield from (batch for _, batch in sort_by_partition(rows.items()))
        return
    sources = staged.sources(paths, slot)
    for partition in sorted({source.topic_partition for source in sources}):
        for source in sources:  # of a re-created topic: its incarnations in the order of staging
            if source.topic_partition == partition:
                for _, batch in staged.rows(paths, {source: 0}):
                    yield cast_to_row_schema(batch)


def _vacuum(context: MirrorContext, alias: str, vacuum: Vacuum) -> int:
    """Delete the files of a table that are not needed; return how many. Raises LakeError."""
    segments = context.lake.segments(alias)
    sealed = None
    if vacuum.table.table is RECORDS:
        sealed = segments.sealed_version if segments.exists() else 0
    return vacuum.run(context.config.vacuum_retention_ms / 1000, sealed)


def apply_retention(context: MirrorContext, alias: str, records: RecordsTable) -> list[RecordsFile]:
    """Remove the files of *records* that are expired and replayed by all flows; return them."""
    age_ms, max_bytes = context.config.stage_retention_ms, context.config.stage_retention_bytes
    if age_ms is None and max_bytes is None:
        return []
    records.refresh()
    before_ms = None if age_ms is None else int(time.time() * 1000) - age_ms
    files, order = records.files(), IncarnationOrder()
    tables = segment_tables(context.lake.segments(alias), HELD_COLUMNS)
    ranges = held_ranges(files, order.watch(tables))
    is_replayed = _replayed_by_all(context, alias, order)
    expired, kept = select_expired(
        files, ranges, is_replayed, before_ms=before_ms, max_bytes=max_bytes
    )
    if expired:
        records.drop(expired, kept)
        log.info("%d expired files of %s removed", len(expired), records.path)
    return expired


def _replayed_by_all(
    context: MirrorContext, alias: str, order: IncarnationOrder
) -> Callable[[HeldRange], bool]:
    """Return a function: is a range mapped by each flow that replicates its topic?

    The offset map decides, not progress: if its last runs are lost, they are rebuilt from the
    staged records, which must still be there.
    """
    flows = [flow for flow in context.config.flows if flow.flow.source == alias]
    reached = [(flow, _mapped_positions(context, flow, order)) for flow in flows]

    def is_replayed(held: HeldRange) -> bool:
        partition = held.source.topic_partition
        position = (order.of(partition).index(held.source.topic_id), held.end)
        return all(
            position <= found.get(partition, (-1, 0))
            for flow, found in reached
            if flow.replicates(held.source.topic)
        )

    return is_replayed


def _mapped_positions(
    context: MirrorContext, flow: FlowConfig, order: IncarnationOrder
) -> dict[TopicPartition, Position]:
    """Return how far the map of *flow* is in the newest incarnation of each target topic."""
    table = context.lake.offset_map(flow.flow)
    if not table.exists():
        return {}
    offset_map = OffsetMap(table, "")
    offset_map.load_ends()
    reached: dict[TopicPartition, Position] = {}
    for partition in order.partitions():
        target = TopicPartition(flow.remote_topic(partition.topic), partition.partition)
        target_topic_id = offset_map.newest_topic_id(target)
        if target_topic_id is None:
            continue
        incarnations = order.of(partition)
        mapped = offset_map.end(target, target_topic_id, incarnations)
        if mapped is not None:
            progress = mapped.progress
            reached[partition] = incarnations.index(progress.incarnation), progress.next_offset
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

SORTED_BYTES = 64 * 2**20
"""Bytes of rows that compaction holds in memory. If there are more, it reads each slot for itself,
and each partition of a larger slot."""

MAX_BUDGET_S = 5.0
"""CPU time that compaction may save up."""

COMPACTION_SHARE = 0.1
"""Largest share of the CPU time of staging that compaction takes."""

IDLE_SHARE = 0.01
"""Share of one core that compaction may take while nothing is staged."""


class MaintenanceLoop:
    """Maintain, in a thread, the source clusters that the *stagers* of this process stage."""

    def __init__(
        self, context: MirrorContext, stagers: Mapping[str, SourceStager], done: threading.Event
    ) -> None:
        self._context, self._stagers, self._done = context, stagers, done
        self._records = {alias: context.lake.records(alias) for alias in stagers}
        self._vacuums = {
            alias: [Vacuum(table) for table in maintained_tables(context, alias)]
            for alias in stagers
        }
        self._budgets = dict.fromkeys(stagers, 0.0)
        self._damaged: dict[str, set[str]] = {alias: set() for alias in stagers}
        self._accounted = {alias: (time.monotonic(), 0.0) for alias in stagers}

    def run(self) -> None:
        """Maintain until *done* is set; a failure is logged and retried after the interval."""
        timings = self._context.timings
        optimized_at = maintained_at = time.monotonic()
        while not self._done.wait(timings.compact_interval_s):
            self.compact_records()
            if time.monotonic() >= optimized_at + timings.optimize_interval_s:
                self.optimize_tables()
                optimized_at = time.monotonic()
            if time.monotonic() >= maintained_at + timings.maintain_interval_s:
                self.apply_retention()
                maintained_at = time.monotonic()

    def compact_records(self) -> None:
        """Join small files of `records` while the budget of CPU time lasts."""
        for alias, stager in self._staged():
            if not self._records[alias].exists():
                continue
            now, staged_s = time.monotonic(), stager.cpu_s
            then, staged_before_s = self._accounted[alias]
            self._accounted[alias] = now, staged_s
            earned_s = COMPACTION_SHARE * (staged_s - staged_before_s) + IDLE_SHARE * (now - then)
            self._budgets[alias] = min(self._budgets[alias] + earned_s, MAX_BUDGET_S)
            with self._warn("compacted", alias):
                while self._budgets[alias] > 0 and not self._done.is_set():
                    begun = time.thread_time()
                    try:
                        if compact(self._records[alias], damaged=self._damaged[alias]) is None:
                            break
                    except StagedFileError as error:  # it must not keep others from being joined
                        self._damaged[alias].add(Path(str(error.file)).name)
                        raise
                    finally:
                        self._budgets[alias] -= time.thread_time() - begun
                    release_memory()

    def optimize_tables(self) -> None:
        """Merge small files, write due checkpoints, and delete what was replaced.

        The loops do not merge files, because that would delay their ticks.
        """
        for alias, _ in self._staged():
            for vacuum in self._vacuums[alias]:
                table = vacuum.table
                if not table.exists():
                    continue
                with self._warn("optimized", table.path):
                    if table.table is not RECORDS:
                        optimize(table)
                    table.checkpoint(COMMITS_PER_CHECKPOINT)
                    _vacuum(self._context, alias, vacuum)
        release_memory()

    def apply_retention(self) -> None:
        """Apply retention to each cluster that this process stages now."""
        for alias, _ in self._staged():
            with self._warn("maintained", alias):
                if self._records[alias].exists():
                    apply_retention(self._context, alias, self._records[alias])

    @contextmanager
    def _warn(self, action: str, name: object) -> Iterator[None]:
        """Log an error of one table as a warning; the others continue."""
        try:
            with wrap_unexpected_errors():
                yield
        except DeltamirrorError as error:
            log.warning("%s was not %s: %s", name, action, error)

    def _staged(self) -> list[tuple[str, SourceStager]]:
        return [(alias, s) for alias, s in self._stagers.items() if s.lease.is_held]
