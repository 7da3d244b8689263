"""Restage: replace damaged or missing files of `records`.

Each file is read and compared with the table `segments`. Records that are missing or changed are
taken from files that another program wrote to `records`, or else read from the source again. The
digest of their segment proves that they are the same records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from deltamirror.context import MirrorContext
from deltamirror.staging.segment_index import staged_segments
from pipeline.maintenance.restage import (
    SegmentLookup,
    group_segments,
    is_intact,
    join_contiguous,
    sort_for_file,
)
from resources.coordination.lease import Lease
from resources.delta.arrow_schema import ROW_SCHEMA
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory, cast_to_row_schema
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import PartitionError
from schemas.errors.lake import LakeError, SegmentLostError, StagedFileError
from schemas.kafka.partition import SLOT_COUNT, Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import FOREIGN_SEQUENCE, RecordsFile, Segment, StagedFile

log = logging.getLogger(__name__)

Parts = dict[Segment, list[pa.RecordBatch]]


@dataclass
class RestageResult:
    """Result of restaging one source cluster.

    *files* were unreadable, incomplete or written by another program, and were removed from the
    table. *segments* with *records* are in new files; *from_source* of these records were read from
    the source. *lost* has an error for each segment that could not be restored. Its slot, and slots
    that share a broken file with it, are not changed.
    """

    alias: str
    files: int = 0
    segments: int = 0
    records: int = 0
    from_source: int = 0
    lost: list[PartitionError] = field(default_factory=list)


def restage(context: MirrorContext, alias: str) -> RestageResult:
    """Restore the missing and changed records of source cluster *alias*; see the module.

    Raises LeaseHeldError if another process stages the cluster; LakeError.
    """
    context.lake.ensure_exists()
    with Lease(context.lake.root, f"stage {alias}"):
        return _Restager(context, alias).run()


@dataclass
class _Findings:
    """The files to replace, the readable ones of them, and the segments to restore.

    *kept* are the files that stay.
    """

    broken: list[RecordsFile] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    kept: list[RecordsFile] = field(default_factory=list)
    missing: list[Segment] = field(default_factory=list)


class _Restager:
    """Restage one source cluster; the caller holds its lease."""

    def __init__(self, context: MirrorContext, alias: str) -> None:
        self._records, self._segments = context.lake.records(alias), context.lake.segments(alias)
        self._directory = RecordsDirectory(self._records.path)
        self._stage_reader = StageReader(self._records.path)
        self._consumer = context.config.clusters[alias].consumer
        self._result = RestageResult(alias)

    def run(self) -> RestageResult:
        self._records.refresh()
        segments = staged_segments(self._segments)
        starts = {p: self._records.retained_from(p) or 0 for p in {s.source for s in segments}}
        retained = [s for s in segments if s.end > starts[s.source]]
        found = self._inspect_files(self._records.files(), retained)
        for slots in _connected_slots(found):
            self._repair_slots(slots, found)
        self._restore_versions(segments, self._segments.sealed_version)
        return self._result

    def _inspect_files(
        self, files: Sequence[RecordsFile], segments: Sequence[Segment]
    ) -> _Findings:
        """Read *files* and compare them with the *segments*."""
        lookup, found = SegmentLookup(segments), _Findings()
        whole: set[Segment] = set()
        for file in files:
            if file.sequence == FOREIGN_SEQUENCE:
                found.broken.append(file)
                found.readable.append(file.path)
                continue
            try:
                intact, damaged = lookup.take(self._stage_reader.all_rows([file.path]))
            except StagedFileError as error:
                log.warning("%s", error)
                found.broken.append(file)
                continue
            if damaged:
                found.broken.append(file)
                found.readable.append(file.path)  # its other segments may be intact
            else:
                found.kept.append(file)
                whole |= intact
        found.missing = [s for s in segments if s.count and s not in whole]
        return found

    def _repair_slots(self, slots: Collection[int], found: _Findings) -> None:
        """Replace the broken files of *slots* with new ones, in one commit."""
        broken = [f for f in found.broken if any(map(f.has_slot, slots))]
        missing = [s for s in found.missing if s.source.slot in slots]
        new_files: list[StagedFile] = []
        before = len(self._result.lost)
        try:
            for slot in slots:
                kept = [file.sequence for file in found.kept if file.has_slot(slot)]
                for group in group_segments([s for s in missing if s.source.slot == slot], kept):
                    parts = self._from_foreign_files(group, found.readable)
                    parts |= self._from_source([s for s in group if s not in parts])
                    if len(parts) == len(group):
                        new_files.append(self._write(slot, group, parts))
        except BaseException:
            self._delete_files(new_files)
            raise
        if len(self._result.lost) > before:
            self._delete_files(new_files)
            return
        self._records.replace(broken, new_files)
        self._result.files += len(broken)
        self._result.segments += len(missing)
        self._result.records += sum(segment.count for segment in missing)
        log.info("%s: %d files replaced", self._records.path, len(broken))

    def _from_foreign_files(self, group: Sequence[Segment], files: Sequence[str]) -> Parts:
        """Return the complete segments of *group* in *files* of other programs, in any order."""
        lookup, parts = SegmentLookup(group), Parts()
        for file in files:
            with suppress(StagedFileError):
                for source, rows in self._stage_reader.all_rows([file]):
                    for segment, part in lookup.split(source, rows):
                        parts.setdefault(segment, []).append(cast_to_row_schema(part))
        return _complete_segments(parts)

    def _from_source(self, segments: Sequence[Segment]) -> Parts:
        """Return the *segments* that the source still holds; record the others as lost."""
        lookup, parts = SegmentLookup(segments), Parts()
        reasons: dict[Segment, str] = {}

        def take(r: OffsetRange, rows: pa.RecordBatch) -> None:
            for segment, part in lookup.split(r.partition, rows):
                parts.setdefault(segment, []).append(part)

        with closing(RangeReader(self._consumer)) as reader:
            for run in join_contiguous(segments):
                first, last = run[0], run[-1]
                watermarks = Watermarks(first.low, last.stable, last.high)
                r = OffsetRange(first.source, first.start, last.end, first.start, None, watermarks)
                error = reader.read([r], 2 * sum(s.size_bytes for s in run) + 2**30, take)[r].error
                reason = str(error) if error else "the source holds other records"
                reasons |= dict.fromkeys(run, reason)
        whole = _complete_segments(parts)
        self._result.lost += [
            SegmentLostError(s.source, start=s.start, end=s.end, records=s.count, reason=reasons[s])
            for s in segments
            if s not in whole
        ]
        self._result.from_source += sum(segment.count for segment in whole)
        return whole

    def _write(
        self, slot: int, group: Sequence[Segment], parts: Mapping[Segment, list[pa.RecordBatch]]
    ) -> StagedFile:
        """Write *group* to one file, read it back and return it. Raises LakeError if it differs."""
        with self._directory.records_file(group[-1].sequence, level=1) as out:
            for segment in sort_for_file(group):
                for batch in parts[segment]:
                    out.write(slot, batch)
            written = out.close()
        rows = self._stage_reader.all_rows([written.path]) if written else ()
        intact, _ = SegmentLookup(group).take(rows)
        if written is None or intact != set(group):
            raise LakeError(
                f"{self._records.path}: the new file of slot {slot} differs from its segments"
            )
        return written

    def _delete_files(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            with suppress(OSError):
                (self._records.path / file.path).unlink()

    def _restore_versions(self, segments: Sequence[Segment], sealed: int) -> None:
        """Move frontiers that a lost commit had moved, and commit until version *sealed*."""
        ends = {s.source: s.end for s in segments}
        frontier = self._records.frontier
        behind = {p.app_id: end for p, end in ends.items() if (m := frontier(p)) is None or m < end}
        while behind or self._records.version < sealed:
            self._records.commit([], txn_versions=behind)
            behind = {}


def _connected_slots(found: _Findings) -> list[list[int]]:
    """Return the slots to repair, in groups: slots that share a broken file are in one group."""
    groups: list[set[int]] = [{slot} for slot in {s.source.slot for s in found.missing}]
    for file in found.broken:
        slots = {slot for slot in range(SLOT_COUNT) if file.has_slot(slot)}
        joined = [group for group in groups if group & slots]
        groups = [group for group in groups if not group & slots]
        groups.append(slots.union(*joined))
    return [sorted(group) for group in sorted(groups, key=min)]


def _complete_segments(parts: Parts) -> Parts:
    """Return the segments of *parts* that are complete, each sorted by offset."""
    whole = Parts()
    for segment, batches in parts.items():
        rows = pa.Table.from_batches(batches, ROW_SCHEMA).sort_by("offset").combine_chunks()
        if is_intact(segment, rows):
            whole[segment] = rows.to_batches()
    return whole
