"""Compare record by record the ranges whose digests differ.

Staged records are read once, and each cluster by one consumer at the same time. Partitions with
few records in these ranges are read together, the others one after another as a stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from deltamirror.verification.range_digests import SideSettings, gc_disabled
from deltamirror.verification.read_plan import MAX_PARTITIONS_TOGETHER, SMALL_RECORDS, PartitionPlan
from deltamirror.verification.record_streams import BackgroundReader, read_into_memory
from pipeline.arrays import offsets_of
from pipeline.verification.compare import RecordStream
from pipeline.verification.parts import with_missing_ranges
from pipeline.verification.stage_audit import Evidence, StageAudit
from pipeline.verification.suspects import Span, SuspectRanges, locate_on_target, select_evidence
from pipeline.verification.target_audit import TargetAudit
from resources.delta.file_index import FileIndex
from resources.delta.stage_reader import StageReader
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import DeltamirrorError
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.verification import SOURCE, STAGED

SMALL_STAGED_BYTES = 2**20
"""Bytes up to which a partition is read together with others. These are kept in memory."""


@dataclass
class _PartitionAudit:
    """One partition: its suspect ranges, the ranges to read on both clusters, and its audits."""

    plan: PartitionPlan
    suspects_of_partition: SuspectRanges
    evidence: dict[str, list[Evidence]] = field(init=False)
    on_source: list[OffsetRange] = field(init=False)
    on_target: list[OffsetRange] = field(init=False)
    stage_audits: dict[str, StageAudit] = field(default_factory=dict)
    target_audit: TargetAudit | None = None

    def __post_init__(self) -> None:
        plan, suspects_of_partition = self.plan, self.suspects_of_partition
        self.evidence = {
            incarnation: select_evidence(with_missing_ranges(plan.evidence(incarnation)), spans)
            for incarnation, spans in suspects_of_partition.suspects.items()
        }
        self.on_source, self.on_target = [], []
        newest = plan.incarnations[-1]
        if plan.source is not None:
            spans = [(e.start, e.end) for e in self.evidence.get(newest, ()) if not e.is_accepted]
            low, end = plan.source.low, plan.source.stable
            self.on_source = _ranges(plan.source_partition(newest), spans, low, end)
        if plan.target is not None:
            incarnations, view = plan.target
            at = SourcePartition(view.partition.topic, "", view.partition.partition)
            self.on_target = _ranges(
                at, locate_on_target(suspects_of_partition, incarnations, view), view.low, view.end
            )

    @property
    def is_small(self) -> bool:
        """Return whether both clusters' records fit into memory together with other partitions."""
        lengths = (sum(r.length for r in ranges) for ranges in (self.on_source, self.on_target))
        return max(lengths) <= SMALL_RECORDS and self.plan.size_bytes <= SMALL_STAGED_BYTES

    @property
    def span(self) -> Span:
        """Return the lowest start and the highest end of the partition's segments."""
        segments = self.plan.segments
        return segments["start"].to_numpy().min(), segments["end"].to_numpy().max()

    def starts(self, *, is_all: bool) -> dict[SourcePartition, int]:
        """Return the first offset to read of each suspect incarnation, or of all with *is_all*."""
        plan = self.plan
        if is_all:
            return {
                plan.source_partition(incarnation): kept for incarnation, kept in plan.kept.items()
            }
        return {
            plan.source_partition(incarnation): e[0].start
            for incarnation, e in self.evidence.items()
            if e
        }

    def begin(self, source: RecordStream, target: RecordStream, sides: Collection[str]) -> None:
        """Create the audits that *sides* require."""
        plan = self.plan
        if plan.is_asked:
            for incarnation, evidence in self.evidence.items():
                is_held = (
                    incarnation == plan.incarnations[-1]
                    and plan.source is not None
                    and SOURCE in sides
                )
                self.stage_audits[incarnation] = StageAudit(
                    plan.found,
                    evidence,
                    0,
                    source if is_held else None,
                    is_counted=STAGED in sides,
                )
        if plan.target is not None:
            self.target_audit = TargetAudit(
                plan.found, *plan.target, target, self.suspects_of_partition.first_match
            )

    def add_rows(self, incarnation: str, rows: pa.RecordBatch) -> None:
        """Add the staged *rows* in suspect ranges to the audits.

        If an audit fails, its error is added to the findings, and it is removed.
        """
        rows = _suspect_rows(rows, self.suspects_of_partition.suspects[incarnation])
        if not rows.num_rows:
            return
        if (audit := self.stage_audits.get(incarnation)) is not None:
            try:
                audit.add_rows(rows)
            except DeltamirrorError as error:
                self.plan.found.errors.append(error)
                del self.stage_audits[incarnation]
        if self.target_audit is not None:
            try:
                self.target_audit.add_rows(incarnation, rows)
            except DeltamirrorError as error:
                self._drop_target(error)

    def finish(self, damage: Sequence[LakeError], sides: Collection[str]) -> None:
        """Finish the audits. The target audit is kept to explain its extras."""
        found = self.plan.found
        if self.target_audit is not None:
            try:
                self.target_audit.finish()
            except DeltamirrorError as error:
                self._drop_target(error)
        of_stage = sum(audit.records for audit in self.stage_audits.values())
        of_target = self.target_audit.records if self.target_audit is not None else 0
        found.records += max(of_stage, of_target)
        # Stage audits finish last: differences of single records explain a different digest.
        for audit in self.stage_audits.values():
            try:
                audit.finish("; ".join(map(str, damage)))
            except DeltamirrorError as error:
                found.errors.append(error)
        if STAGED not in sides:
            found.errors += damage[:1]

    def _drop_target(self, error: DeltamirrorError) -> None:
        self.plan.found.errors.append(error)
        self.target_audit = None


class RecordPass:
    """Compare suspect ranges record by record, and add the results to the plans' findings."""

    def __init__(
        self, side_settings: SideSettings, files: FileIndex, sides: Collection[str]
    ) -> None:
        self._files, self._sides = files, sides
        self._staged = StageReader(side_settings.records)
        self._source, self._target = (
            RangeReader(side_settings.source),
            RangeReader(side_settings.target),
        )
        self._damage: list[LakeError] = []

    def run(self, suspect_ranges: Sequence[tuple[PartitionPlan, SuspectRanges]]) -> None:
        """Compare all of *suspect_ranges*."""
        try:
            for bundle in _bundles(
                [
                    _PartitionAudit(plan, suspects_of_partition)
                    for plan, suspects_of_partition in suspect_ranges
                ]
            ):
                self._compare(bundle)
        finally:
            self._source.close()
            self._target.close()

    def _compare(self, jobs: Sequence[_PartitionAudit]) -> None:
        """Compare partitions of one slot in one pass over its files."""
        with ExitStack() as stack:
            sources = self._record_streams(
                self._source, {j.plan.partition: j.on_source for j in jobs}, stack
            )
            targets = self._record_streams(
                self._target, {j.plan.partition: j.on_target for j in jobs}, stack
            )
            for job in jobs:
                at = job.plan.partition
                job.begin(sources[at], targets[at], self._sides)
            with gc_disabled():
                owners = {job.plan.partition: job for job in jobs}
                for source, rows in self._rows(jobs, is_all=False):
                    owners[source.topic_partition].add_rows(source.topic_id, rows)
                for job in jobs:
                    job.finish(self._damage, self._sides)
        self._explain([job for job in jobs if job.target_audit and job.target_audit.extras])

    def _record_streams(
        self,
        reader: RangeReader,
        ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
        stack: ExitStack,
    ) -> dict[TopicPartition, RecordStream]:
        if len(ranges) > 1 or not any(ranges.values()):
            return {
                p: RecordStream(batches) for p, batches in read_into_memory(reader, ranges).items()
            }
        ((partition, wanted),) = ranges.items()
        stream = BackgroundReader(reader, wanted)
        stack.callback(stream.close)
        return {partition: RecordStream(iter(stream))}

    def _explain(self, jobs: Sequence[_PartitionAudit]) -> None:
        """Search all staged records for those that match the unexpected records on the target."""
        audits = {job.plan.partition: job.target_audit for job in jobs if job.target_audit}
        for source, rows in self._rows(jobs, is_all=True):
            audits[source.topic_partition].match_extras(rows)
        for audit in audits.values():
            audit.close()

    def _rows(
        self, jobs: Sequence[_PartitionAudit], *, is_all: bool
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield the staged rows file by file; skip unreadable files and record their errors."""
        self._damage = []
        wanted = {s: at for job in jobs for s, at in job.starts(is_all=is_all).items()}
        if not wanted:
            return
        spans = [job.span for job in jobs]
        first = min(wanted.values()) if not is_all else min(start for start, _ in spans)
        slot = jobs[0].plan.partition.slot
        paths = self._files.files_for(slot, first, max(end for _, end in spans))
        yield from self._staged.rows(paths, wanted, on_damage=self._damage.append)


def _ranges(at: SourcePartition, spans: Sequence[Span], low: int, end: int) -> list[OffsetRange]:
    """Return *spans*, which are sorted, merged if adjacent and clipped to `[low, end)`."""
    joined: list[Span] = []
    for start, stop in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    clipped = [(max(start, low), min(stop, end)) for start, stop in joined]
    marks = Watermarks(low, max(low, end), max(low, end))
    return [OffsetRange(at, a, b, None, None, marks) for a, b in clipped if a < b]


def _suspect_rows(rows: pa.RecordBatch, spans: Sequence[Span]) -> pa.RecordBatch:
    """Return the *rows* whose offsets are in *spans*, which are sorted."""
    offsets = offsets_of(rows)
    starts, ends = np.array(spans, np.int64).T
    at = np.searchsorted(ends, offsets, side="right")
    inside = at < len(ends)
    inside[inside] = offsets[inside] >= starts[at[inside]]
    return rows if inside.all() else rows.take(pa.array(np.flatnonzero(inside)))


def _bundles(jobs: Sequence[_PartitionAudit]) -> Iterator[list[_PartitionAudit]]:
    """Yield small partitions of a slot together, large ones alone."""
    small: dict[int, list[_PartitionAudit]] = {}
    for job in jobs:
        if not job.is_small:
            yield [job]
            continue
        held_back = small.setdefault(job.plan.partition.slot, [])
        held_back.append(job)
        if len(held_back) == MAX_PARTITIONS_TOGETHER:
            yield small.pop(job.plan.partition.slot)
    yield from small.values()
