"""Restage: replace damaged or missing files of `records`.

Each file is read and compared with the table `segments`. Records that are missing or changed are
taken from other files in the folder of `records`, or else read from the source again. The digest of
their segment proves that they are the same records.
"""

from __future__ import annotations

import logging
import sys
from bisect import bisect_right
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
from resources.delta.file_names import parse_name
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory, cast_to_row_schema
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import PartitionError
from schemas.errors.lake import LakeError, SegmentLostError, StagedFileError
from schemas.kafka.partition import SLOT_COUNT, SourcePartition, Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import FOREIGN_SEQUENCE, RecordsFile, Segment, StagedFile

log = logging.getLogger(__name__)

Parts = dict[Segment, list[pa.RecordBatch]]


@dataclass
class RestageResult:
    """Result of restaging one source cluster.

    *files* were unreadable, incomplete or written by another program, and were removed from the
    table. *segments* with *records* are in new files; *from_source* of these records were read from
    the source. *lost* has an error for each segment that could not be restored. The removed files
    that may hold some of its records are in the folder DAMAGED_FOLDER. If no record of a file could
    be restored, it was not removed.
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
    """The files to replace, the files that stay, and the segments to restore.

    *kept* has the segments of each file that stays. *readable* are the paths of files in which
    segments may be found.
    """

    broken: list[RecordsFile] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    kept: dict[RecordsFile, set[Segment]] = field(default_factory=dict)
    missing: set[Segment] = field(default_factory=set)

    def replace_files_out_of_order(self) -> None:
        """Move files from *kept* to *broken* that would come after earlier records of a partition.

        A file that was written while a segment was lost may hold records before and after it.
        """
        firsts: dict[RecordsFile, dict[SourcePartition, int]] = {}
        for file, held in self.kept.items():
            starts = firsts.setdefault(file, {})
            for segment in held:
                starts[segment.source] = min(segment.start, starts.get(segment.source, sys.maxsize))
        while True:
            missing: dict[SourcePartition, list[tuple[int, int]]] = {}
            for segment in self.missing:
                place = segment.sequence, segment.start
                missing.setdefault(segment.source, []).append(place)
            for places in missing.values():
                places.sort()
            moved = [f for f in self.kept if _is_out_of_order(f, firsts[f], missing)]
            if not moved:
                return
            for file in moved:
                self.missing |= self.kept.pop(file)
                self.broken.append(file)
                self.readable.append(file.path)


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
        found.replace_files_out_of_order()
        if found.missing:
            found.readable += self._directory.unlisted_files(self._records.live)
        for slots in _connected_slots(found):
            self._repair_slots(slots, found)
        self._restore_versions(segments, self._segments.sealed_version)
        if not self._result.lost:
            self._directory.delete_damaged()
        return self._result

    def _inspect_files(
        self, files: Sequence[RecordsFile], segments: Sequence[Segment]
    ) -> _Findings:
        """Read *files* and compare them with the *segments*."""
        lookup, found = SegmentLookup(segments), _Findings()
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
                found.kept[file] = intact
        whole = set().union(*found.kept.values())
        found.missing = {s for s in segments if s.count and s not in whole}
        return found

    def _repair_slots(self, slots: Collection[int], found: _Findings) -> None:
        """Replace the broken files of *slots* with new ones, in one commit."""
        broken = [f for f in found.broken if any(map(f.has_slot, slots))]
        missing = [s for s in found.missing if s.source.slot in slots]
        new_files: list[StagedFile] = []
        restored: set[Segment] = set()
        try:
            for slot in slots:
                kept = sorted(file.sequence for file in found.kept if file.has_slot(slot))
                for group in group_segments([s for s in missing if s.source.slot == slot], kept):
                    parts = self._from_files(group, found.readable)
                    parts |= self._from_source([s for s in group if s not in parts])
                    if parts:
                        new_files.append(self._write(slot, parts))
                        restored |= parts.keys()
        except BaseException:
            self._delete_files(new_files)
            raise
        if not new_files and (missing or not broken):
            return  # a damaged file stays in its place, so that a copy can replace it
        lost_slots = {s.source.slot for s in missing if s not in restored}
        for file in broken:
            if any(map(file.has_slot, lost_slots)):
                self._directory.keep_damaged(file.path)
        self._records.replace(broken, new_files)
        self._result.files += len(broken)
        self._result.segments += len(restored)
        self._result.records += sum(segment.count for segment in restored)
        log.info("%s: %d files replaced", self._records.path, len(broken))

    def _from_files(self, group: Sequence[Segment], files: Sequence[str]) -> Parts:
        """Return the segments of *group* that are complete in one of *files*, or in all of them."""
        whole, pieces = Parts(), Parts()
        slot, first, last = group[0].source.slot, group[0].sequence, group[-1].sequence
        for file in files:
            if len(whole) == len(group):
                break
            name = parse_name(file)
            if not name.slots >> slot & 1 or FOREIGN_SEQUENCE < name.sequence < first:
                continue
            if name.level == 0 and name.sequence > last:  # it was never joined with earlier files
                continue
            lookup, found = SegmentLookup(s for s in group if s not in whole), Parts()
            with suppress(StagedFileError):
                for source, rows in self._stage_reader.all_rows([file]):
                    for segment, part in lookup.split(source, rows):
                        found.setdefault(segment, []).append(cast_to_row_schema(part))
            whole |= _complete_segments(found)
            for segment, parts in found.items():
                pieces.setdefault(segment, []).extend(parts)
        return whole | _complete_segments({s: p for s, p in pieces.items() if s not in whole})

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

    def _write(self, slot: int, parts: Mapping[Segment, list[pa.RecordBatch]]) -> StagedFile:
        """Write *parts* to one file, read it back and return it. Raises LakeError if it differs."""
        sequence = max(segment.sequence for segment in parts)
        with self._directory.records_file(sequence, level=1) as out:
            for segment in sort_for_file(parts):
                for batch in parts[segment]:
                    out.write(slot, batch)
            written = out.close()
        rows = self._stage_reader.all_rows([written.path]) if written else ()
        intact, _ = SegmentLookup(parts).take(rows)
        if written is None or intact != parts.keys():
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


def _is_out_of_order(
    file: RecordsFile,
    firsts: Mapping[SourcePartition, int],
    missing: Mapping[SourcePartition, Sequence[tuple[int, int]]],
) -> bool:
    """Return whether *file* comes after a file with *missing* segments, but holds earlier offsets.

    *firsts* are the first offsets in *file*. *missing* has sequences and starts, sorted; both rise
    with the order of staging. The file with a missing segment will have its sequence or a higher
    one, up to that of the next file.
    """
    for source, first in firsts.items():
        places = missing.get(source, ())
        before = bisect_right(places, (file.sequence, sys.maxsize))
        if before and places[before - 1][1] > first:
            return True
    return False


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
