"""Stage offset ranges: write their records to one file, and return the segments.

A Spark task runs `stage_ranges`. An error of one partition is returned with its range and the
offset up to which it was read; it is not raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.record_digest import Digest
from pipeline.record_stats import timestamp_stats
from schemas.errors.base import PartitionError
from schemas.monitoring.stats import EMPTY, ValueStats
from schemas.staging.read_range import OffsetRange, ReadResult
from schemas.staging.segment import ANY, Segment, StagedFile

SMALL_RANGE_OFFSETS = 4_096
"""Ranges of at most this length are read together: one fetch for many quiet partitions."""

SMALL_TOTAL_OFFSETS = 65_536
"""Upper bound of the offsets that are read together, and so are in memory at the same time."""


BatchHandler = Callable[[OffsetRange, pa.RecordBatch], None]
"""Callback for records of one range, in offset order; columns as in `records`, without `slot`."""


class Source(Protocol):
    """A source cluster, as staging needs it."""

    def read(
        self, ranges: Sequence[OffsetRange], max_bytes: int, handle_batch: BatchHandler
    ) -> Mapping[OffsetRange, ReadResult]:
        """Read *ranges* concurrently, pass records to *handle_batch*, return how far each was read.

        A range may end at a record boundary before its planned end: after about *max_bytes* were
        read in total, or with an error.
        """


class RecordsFileWriter(Protocol):
    """One file of the lake, being written."""

    def write(self, slot: int, batch: pa.RecordBatch) -> None:
        """Append *batch* of *slot*; rows come sorted by slot, topic, partition and offset."""

    def close(self) -> StagedFile | None:
        """Close the file and return its Delta `add` data, or None if it has no rows."""


class Lake(Protocol):
    """The lake, as staging needs it."""

    def records_file(self, sequence: int) -> AbstractContextManager[RecordsFileWriter]:
        """Open a new file, planned for version *sequence*; readers see it after a commit.

        Leaving the context without `close` deletes the file.
        """


@dataclass(frozen=True, slots=True)
class StageResult:
    """A task's file, its segments, the timestamp stats of each (*stamps*), and errors of ranges.

    *cpu_s* is the CPU time of the task in s.
    """

    file: StagedFile | None
    segments: tuple[Segment, ...]
    stamps: tuple[ValueStats, ...]
    planned: tuple[OffsetRange, ...]
    errors: tuple[tuple[OffsetRange, PartitionError], ...]
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StageTask:
    """The ranges of a file, its sequence, and the bound of bytes to read."""

    ranges: tuple[OffsetRange, ...]
    sequence: int
    max_bytes: int


@dataclass
class StageCounts:
    """Counts, bounds and digest of the records of a range that were read so far."""

    range: OffsetRange
    count: int = 0
    size_bytes: int = 0
    first: int | None = None
    last: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    stamps: ValueStats = EMPTY
    digest: Digest = field(default_factory=Digest)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add *batch*. Raises ValueError if an offset is outside the range or out of order."""
        offsets = batch.column("offset").to_numpy()
        low = self.range.start if self.last is None else self.last + 1
        if offsets[0] < low or offsets[-1] >= self.range.end or (offsets[1:] <= offsets[:-1]).any():
            raise ValueError(
                f"{self.range.partition}: offsets {offsets[0]}..{offsets[-1]} do not increase "
                f"within [{low}, {self.range.end})"
            )
        self.size_bytes += self.digest.add(batch)
        self.count += len(offsets)
        self.first = int(offsets[0]) if self.first is None else self.first
        self.last = int(offsets[-1])
        spread = pc.min_max(batch.column("timestamp_ms"))
        low_ms, high_ms = spread["min"].as_py(), spread["max"].as_py()
        known = self.min_timestamp_ms is not None
        self.min_timestamp_ms = min(self.min_timestamp_ms, low_ms) if known else low_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, high_ms) if known else high_ms
        self.stamps += timestamp_stats(batch.column("timestamp_ms"))

    def segment(self, end: int, staged_at_ms: int, sequence: int) -> Segment:
        """Return the segment of the range, read up to *end*."""
        r, watermarks = self.range, self.range.watermarks
        gaps = end - r.start - self.count
        return Segment(
            topic=r.partition.topic,
            topic_id=r.partition.topic_id,
            partition=r.partition.partition,
            start=r.start,
            end=end,
            count=self.count,
            size_bytes=self.size_bytes,
            first=self.first,
            last=self.last,
            min_timestamp_ms=self.min_timestamp_ms,
            max_timestamp_ms=self.max_timestamp_ms,
            leader_epoch=watermarks.leader_epoch,
            low=watermarks.low,
            stable=watermarks.stable,
            high=watermarks.high,
            gap_cause=ANY if gaps else "",
            digest=self.digest.hexdigest(),
            staged_at_ms=staged_at_ms,
            sequence=sequence,
        )


def stage_ranges(task: StageTask, source: Source, lake: Lake, now_ms: int) -> StageResult:
    """Read the ranges of *task* and write one file.

    Large ranges are streamed one by one: the backlog does not determine the needed memory.
    """
    together = _small_ranges(task.ranges)
    held: dict[OffsetRange, list[pa.RecordBatch]] = {r: [] for r in together}
    reached: dict[OffsetRange, ReadResult] = {}
    if together:
        reached.update(
            source.read(together, task.max_bytes, lambda r, batch: held[r].append(batch))
        )
    budget = max(1, task.max_bytes // max(1, len(task.ranges) - len(together)))
    counts = {
        r: StageCounts(r)
        for r in sorted(task.ranges, key=lambda r: (r.partition.slot, r.partition))
    }
    with lake.records_file(task.sequence) as file:

        def handle_batch(r: OffsetRange, batch: pa.RecordBatch) -> None:
            counts[r].add(batch)
            file.write(r.partition.slot, batch)

        for r in counts:
            if r in reached:
                for batch in held.pop(r):
                    handle_batch(r, batch)
            else:
                reached.update(source.read([r], budget, handle_batch))
        found = [(counts[r], reached[r]) for r in counts]
        return _result(file.close(), found, now_ms, task.sequence)


def _small_ranges(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that are small enough to be read together."""
    small, total = [], 0
    for r in sorted(ranges, key=lambda r: r.length):
        total += r.length
        if r.length > SMALL_RANGE_OFFSETS or total > SMALL_TOTAL_OFFSETS:
            break
        small.append(r)
    return small


def _result(
    file: StagedFile | None,
    ranges: Sequence[tuple[StageCounts, ReadResult]],
    now_ms: int,
    sequence: int,
) -> StageResult:
    """Return the result of *ranges*; those of which nothing was read make no segment."""
    # A partition's first range makes an empty one, to record where staging began.
    found = [
        (counts, reached.end)
        for counts, reached in ranges
        if reached.end > counts.range.start
        or (counts.range.planned_start is None and reached.error is None)
    ]
    return StageResult(
        file,
        tuple(counts.segment(end, now_ms, sequence) for counts, end in found),
        tuple(counts.stamps for counts, _ in found),
        tuple(counts.range for counts, _ in found),
        tuple((r.range, r.error) for _, r in ranges if r.error is not None),
    )
