"""Recover a target partition: find where replay resumes, and repair its offset map.

Committed progress is authoritative. The offset map may end before it; then the target's log decides
which records were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Protocol

import pyarrow as pa

from pipeline.pairing.pair import (
    OffsetFingerprint,
    PairedRuns,
    Pairing,
    StagedFingerprint,
    fingerprints,
)
from pipeline.pairing.pair_remains import RemainderPairing
from pipeline.replay.segment_chain import RowCounter, SegmentChain, cut_link
from schemas.errors.lake import StageIncompleteError
from schemas.errors.target import (
    MapUnpairedError,
    ProgressAheadError,
    ProgressBehindError,
    ProgressUnknownError,
    TargetChangedError,
    TargetTruncatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import CommittedBatch, MissingProgressPolicy, PartitionWork, Progress


class TargetLogReader(Protocol):
    """A target's log, as recovery needs it."""

    def read_back(
        self, partition: TopicPartition, start: int, take: Callable[[pa.RecordBatch], None]
    ) -> None:
        """Pass the committed records from *start* to the log's current end to *take*."""

    def log_start_offset(self, partition: TopicPartition) -> int:
        """Return the first offset that the log still holds; retention deletes from the start."""

    def is_compacted(self, partition: TopicPartition) -> bool:
        """Return whether compaction may delete records anywhere in the log."""


class StageReader(Protocol):
    """The lake's staged records, as replay needs them."""

    def rows(
        self, files: Sequence[str], wanted: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Return the records at or past each wanted offset, in order per partition."""

    def count(
        self, files: Sequence[str], source: SourcePartition, edges: Sequence[int], total: int
    ) -> list[int]:
        """Return the number of records between each two neighbours of *edges*."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The progress at which a partition resumes, and the repairs of its map by incarnation."""

    at: Progress
    repairs: tuple[CommittedBatch, ...] = ()


def recover(
    work: PartitionWork,
    files: Sequence[str],
    progress: Progress | None,
    end: int,
    staged: StageReader,
    log: TargetLogReader,
) -> ResumePoint:
    """Return where *work* resumes; *end* is the log's high watermark, read after fencing.

    - Progress is at the map's end: resume there.
    - Progress is past the map's end: pair the staged records between both with the target's log.
    - The map has an end, but there is no progress: pair as far as the log holds staged records.
    - Neither: search the log for staged records; begin if it has none.

    Records that the target has deleted cannot be paired. The repairs are then marked with
    `complete_from`. Raises TargetChangedError, TargetTruncatedError, ProgressBehindError,
    ProgressAheadError, ProgressUnknownError, StageIncompleteError, MapUnpairedError,
    MapAmbiguousError.
    """
    map_end = work.map_end
    for known in (progress, map_end.progress if map_end else None):
        if known is not None and known.target_topic_id != work.target_topic_id:
            if (
                map_end is not None
                or work.missing_progress is not MissingProgressPolicy.SEARCH_OR_BEGIN
            ):
                raise TargetChangedError(
                    work.target, was=known.target_topic_id, now=work.target_topic_id
                )
            progress = None  # of a previous incarnation; an operator requested a restart
    if map_end is not None and end < map_end.downstream_end:
        raise TargetTruncatedError(work.target, end=end, map_end=map_end.downstream_end)
    start, recovery = start_of(work), _Recovery(work, files, staged, log)
    if map_end is None and progress is None:
        if end == 0 or work.missing_progress is MissingProgressPolicy.BEGIN:
            return ResumePoint(start)
        return recovery.search_log(start, end)
    if progress == start:
        return ResumePoint(start)
    if progress is not None:
        check_progress(work, progress, start)
    return recovery.pair_with_log(start, progress)


def start_of(work: PartitionWork) -> Progress:
    """Return where *work* resumes if nothing was committed after the end of its map."""
    if work.map_end is not None:
        return work.map_end.progress
    return Progress(work.links[0].start, work.links[0].incarnation, work.target_topic_id)


def check_progress(work: PartitionWork, progress: Progress, map_end: Progress) -> None:
    """Raise ProgressBehindError if *progress* is before *map_end* in the order of staging."""
    order = [link.incarnation for link in work.links]

    def position(at: Progress) -> tuple[int, int]:
        return order.index(at.incarnation) if at.incarnation in order else -1, at.next_offset

    if position(progress) < position(map_end):
        raise ProgressBehindError(
            work.target, progress=progress.next_offset, map_end=map_end.next_offset
        )


@dataclass(frozen=True, slots=True)
class _Recovery:
    """Recovery of *work* from the staged *files* and the target's *log*."""

    work: PartitionWork
    files: Sequence[str]
    staged: StageReader
    log: TargetLogReader

    def search_log(self, beginning: Progress, end: int) -> ResumePoint:
        """Return where replay resumes according to the target's log alone."""
        # A complete log holds the staged records from the first one on, or none. If it lost its
        # head or is compacted, replay resumes after the last staged record that it still holds.
        work, target = self.work, self.work.target
        low, has_holes = self.log.log_start_offset(target), self.log.is_compacted(target)
        if low == 0 and not has_holes:
            found = self.pair_with_log(beginning, None)
            return found if any(batch.runs for batch in found.repairs) else ResumePoint(beginning)
        remainder = RemainderPairing(target)
        self._read_back(low, remainder)
        last = remainder.last(self._staged_records(beginning, None))
        if last is None:
            if work.missing_progress is MissingProgressPolicy.SEARCH_OR_BEGIN:
                return ResumePoint(beginning)
            raise ProgressUnknownError(target, low=low, high=end)
        incarnation, offset = last
        progress = Progress(offset + 1, incarnation, work.target_topic_id)
        paired = remainder.pair(self._staged_records(beginning, progress), has_holes=has_holes)
        return _resume_point(work, progress, paired)

    def pair_with_log(self, start: Progress, progress: Progress | None) -> ResumePoint:
        """Pair the staged records from *start* to *progress* (None: as far as found)."""
        work, target = self.work, self.work.target
        after = work.map_end.downstream_end if work.map_end else 0
        pairing = Pairing(target, self._staged_records(start, progress))
        if not pairing.is_empty:
            self._read_back(after, pairing)
        if progress is None:
            paired, progress = pairing.leading_pairs(), start
            if paired.runs:
                incarnation, runs = list(paired.runs.items())[-1]
                progress = Progress(runs[-1].upstream_end, incarnation, start.target_topic_id)
            return _resume_point(work, progress, paired)
        try:
            paired = pairing.all_pairs()
        except MapUnpairedError:
            has_holes = self.log.is_compacted(target)
            if not has_holes and self.log.log_start_offset(target) <= after:
                raise
            remainder = RemainderPairing(target)
            self._read_back(after, remainder)
            paired = remainder.pair(self._staged_records(start, progress), has_holes=has_holes)
        return _resume_point(work, progress, paired)

    def _read_back(self, start: int, pairing: Pairing | RemainderPairing) -> None:
        self.log.read_back(
            self.work.target, start, lambda rows: pairing.take(_with_fingerprints(rows))
        )

    def _staged_records(self, start: Progress, end: Progress | None) -> Iterator[StagedFingerprint]:
        """Yield the staged records from *start* to *end*. Raises StageIncompleteError."""
        count = partial(self.staged.count, self.files)
        work = _clip_links(self.work, end, count) if end else self.work
        chain = SegmentChain(work, start, count)
        for source, batch in self.staged.rows(self.files, chain.starts()):
            for offset, fingerprint in _with_fingerprints(chain.follow(source, batch)):
                yield source.topic_id, offset, fingerprint
        chain.finish()


def _resume_point(work: PartitionWork, end: Progress, paired: PairedRuns) -> ResumePoint:
    """Return *end* with the *paired* records as committed batches, one per incarnation."""
    repairs: list[CommittedBatch] = []
    before = work.map_end.progress if work.map_end else None
    order = list(dict.fromkeys(link.incarnation for link in work.links))
    for incarnation in dict.fromkeys([*paired.runs, end.incarnation]):
        runs = tuple(paired.runs.get(incarnation, ()))
        reached = end.next_offset if incarnation == end.incarnation else runs[-1].upstream_end
        after = Progress(reached, incarnation, end.target_topic_id)
        complete_from = None
        if paired.complete_from is not None:
            from_incarnation, offset = paired.complete_from
            if incarnation == from_incarnation:
                complete_from = offset
            elif order.index(incarnation) < order.index(from_incarnation):
                complete_from = reached
        records = sum(run.length for run in runs)
        found = CommittedBatch(work.partition, work.target, before, after, runs, records)
        repairs.append(replace(found, rebuilt=True, complete_from=complete_from))
        before = after
    return ResumePoint(end, tuple(repairs))


def _clip_links(work: PartitionWork, end: Progress, count: RowCounter) -> PartitionWork:
    """Return *work* with links up to *end*. Raises ProgressAheadError, StageIncompleteError."""
    at = end.next_offset
    last = [
        cut_link(link, work.partition, link.start, at, count)
        for link in work.links
        if link.incarnation == end.incarnation and link.start <= at
    ]
    if not last:
        raise StageIncompleteError(work.partition, wanted=at, found=None)
    if last[-1].end < at:
        map_end = start_of(work).next_offset
        raise ProgressAheadError(work.target, progress=at, staged=last[-1].end, map_end=map_end)
    former = takewhile(lambda link: link.incarnation != end.incarnation, work.links)
    return replace(work, links=(*former, *last))


def _with_fingerprints(rows: pa.RecordBatch) -> Iterator[OffsetFingerprint]:
    return zip(rows.column("offset").to_pylist(), fingerprints(rows), strict=True)
