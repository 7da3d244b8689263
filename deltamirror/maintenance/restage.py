"""The stage made whole again: what its files no longer hold is put back (DESIGN 2.1).

Every file is read and compared with the ledger. Records that a file no longer holds as they were
staged come from files that another program wrote, if they are there, or from the source, if it
still has them; the digest of their segment proves that they are the same.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from deltamirror.context import Site
from deltamirror.staging.committer import SEALED
from deltamirror.staging.segment_index import staged_segments
from pipeline.maintenance.restage import Census, groups, in_file_order, is_whole, joined
from resources.coordination.lease import Lease
from resources.delta.records_table import FOREIGN, RecordsFile
from resources.delta.stage_reader import StagedLog
from resources.delta.stage_writer import SCHEMA, RecordsFolder, plain
from resources.kafka.range_reader import RangeReader
from schemas.errors import LakeError, PartitionError, SegmentLostError, StagedFileError
from schemas.kafka.partition import Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import Segment, StagedFile

log = logging.getLogger(__name__)

Parts = dict[Segment, list[pa.RecordBatch]]


@dataclass
class Restaged:
    """What was done to the stage of one source cluster.

    *files* were missing, torn or not ours and are out of the table; *segments* of theirs with
    *records* are in new ones, *from_source* of these records read from the source. *lost*: why the
    rest is not; of a slot with such a segment nothing was changed.
    """

    alias: str
    files: int = 0
    segments: int = 0
    records: int = 0
    from_source: int = 0
    lost: list[PartitionError] = field(default_factory=list)


def restage(site: Site, alias: str) -> Restaged:
    """Put back what the stage of source cluster *alias* no longer holds; see the module.

    Raises LeaseHeldError where another process stages it, LakeError.
    """
    site.lake.make()
    with Lease(site.lake.root, f"stage {alias}"):
        return _Restaging(site, alias).run()


@dataclass
class _Slot:
    """What was found in a slot: files to replace, which of them can be read, what is missing."""

    broken: list[RecordsFile] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    sound: list[int] = field(default_factory=list)
    missing: list[Segment] = field(default_factory=list)


class _Restaging:
    """The restaging of one source cluster; its lease is held."""

    def __init__(self, site: Site, alias: str) -> None:
        self._records, self._ledger = site.lake.records(alias), site.lake.segments(alias)
        self._folder = RecordsFolder(self._records.path)
        self._log = StagedLog(self._records.path)
        self._consumer = site.config.clusters[alias].consumer
        self._done = Restaged(alias)

    def run(self) -> Restaged:
        self._records.refresh()
        known = staged_segments(self._ledger)
        sealed = self._ledger.mark(SEALED) or 0
        unsealed = [s for _, found in self._records.sealed_since(sealed) for s in found]
        segments = [*known, *unsealed]
        kept_from = {p: self._records.kept_from(p) or 0 for p in {s.source for s in segments}}
        held = [s for s in segments if s.end > kept_from[s.source]]
        files = self._records.files()
        for slot in sorted({s.source.slot for s in segments} | {f.slot for f in files}):
            self._mend(
                slot,
                [file for file in files if file.slot == slot],
                [s for s in held if s.source.slot == slot],
            )
        self._catch_up(segments, sealed)
        return self._done

    def _mend(self, slot: int, files: Sequence[RecordsFile], segments: Sequence[Segment]) -> None:
        """Put new files in place of broken ones, in one commit."""
        found = self._look(files, segments)
        if not found.broken and not found.missing:
            return
        made: list[StagedFile] = []
        before = len(self._done.lost)
        try:
            for group in groups(found.missing, found.sound):
                parts = self._salvaged(group, found.readable)
                parts |= self._read_again([s for s in group if s not in parts])
                if len(parts) == len(group):
                    made.append(self._write(slot, group, parts))
        except BaseException:
            self._forget(made)
            raise
        if len(self._done.lost) > before:
            self._forget(made)
            return
        self._records.replace(found.broken, made)
        self._done.files += len(found.broken)
        self._done.segments += len(found.missing)
        self._done.records += sum(segment.count for segment in found.missing)
        log.info("slot %d of %s: %d files replaced", slot, self._records.path, len(found.broken))

    def _look(self, files: Sequence[RecordsFile], segments: Sequence[Segment]) -> _Slot:
        """Read *files* of a slot and compare them with its *segments*."""
        census, found = Census(segments), _Slot()
        whole: set[Segment] = set()
        for file in files:
            if file.sequence == FOREIGN:
                found.broken.append(file)
                found.readable.append(file.path)
                continue
            try:
                held, torn = census.take(self._log.all_rows([file.path]))
            except StagedFileError as error:
                log.warning("%s", error)
                found.broken.append(file)
                continue
            if torn:
                found.broken.append(file)
            else:
                insort(found.sound, file.sequence)
                whole |= held
        found.missing = [s for s in segments if s.count and s not in whole]
        return found

    def _salvaged(self, group: Sequence[Segment], files: Sequence[str]) -> Parts:
        """Return the segments of *group* that *files* of other programs hold, in any order."""
        census, parts = Census(group), Parts()
        for file in files:
            with suppress(StagedFileError):
                for source, rows in self._log.all_rows([file]):
                    for segment, part in census.split(source, rows):
                        parts.setdefault(segment, []).append(plain(part))
        return _whole(parts)

    def _read_again(self, segments: Sequence[Segment]) -> Parts:
        """Return those of *segments* that the source still holds; note the others as lost."""
        census, parts = Census(segments), Parts()
        whys: dict[Segment, str] = {}
        reader = RangeReader(self._consumer)

        def take(r: OffsetRange, rows: pa.RecordBatch) -> None:
            for segment, part in census.split(r.partition, rows):
                parts.setdefault(segment, []).append(part)

        try:
            for run in joined(segments):
                first, last = run[0], run[-1]
                marks = Watermarks(first.low, last.stable, last.high)
                r = OffsetRange(first.source, first.start, last.end, first.start, None, marks)
                error = reader.read([r], 2 * sum(s.size_bytes for s in run) + 2**30, take)[r].error
                whys |= dict.fromkeys(run, str(error) if error else "the source holds other ones")
        finally:
            reader.close()
        whole = _whole(parts)
        lost = [segment for segment in segments if segment not in whole]
        self._done.lost += [
            SegmentLostError(s.source, start=s.start, end=s.end, records=s.count, why=whys[s])
            for s in lost
        ]
        self._done.from_source += sum(segment.count for segment in whole)
        return whole

    def _write(
        self, slot: int, group: Sequence[Segment], parts: Mapping[Segment, list[pa.RecordBatch]]
    ) -> StagedFile:
        """Write *group* into a file of its own, and read it back."""
        with self._folder.slot_file(slot, group[-1].sequence) as out:
            for segment in in_file_order(group):
                for batch in parts[segment]:
                    out.write(batch)
            made = out.close()
        if made is None or Census(group).take(self._log.all_rows([made.path]))[0] != set(group):
            raise LakeError(f"{self._records.path}: slot {slot} was not written as it was staged")
        return made

    def _forget(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            with suppress(OSError):
                (self._records.path / file.path).unlink()

    def _catch_up(self, segments: Sequence[Segment], sealed: int) -> None:
        """Move frontiers that a lost commit had moved, and pass the versions that it had."""
        ends = {s.source: s.end for s in segments}
        marks = {p: self._records.frontier(p) for p in ends}
        behind = {p.app_id: end for p, end in ends.items() if (m := marks[p]) is None or m < end}
        while behind or self._records.version < sealed:
            self._records.commit([], marks=behind)
            behind = {}


def _whole(parts: Parts) -> Parts:
    """Return the segments of *parts* that are complete, each as one batch in order of offset."""
    whole = Parts()
    for segment, batches in parts.items():
        rows = pa.Table.from_batches(batches, SCHEMA).sort_by("offset").combine_chunks()
        if is_whole(segment, rows):
            whole[segment] = rows.to_batches()
    return whole
