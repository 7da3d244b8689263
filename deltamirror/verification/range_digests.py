"""Read parts of a comparison on one side and compute their digests, in a process of `verify`.

Reading takes 90 % of a comparison's time, and a Python process reads with one core. So large
comparisons use a process for each core, which returns only digests.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.arrays import Offsets, offsets_of
from pipeline.verification.parts import Part
from pipeline.verification.range_sums import RangeDigests
from pipeline.verification.suspects import SideDigests, Span
from resources.delta.stage_reader import StageReader
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import PartitionError
from schemas.kafka.partition import SourcePartition, Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.verification import SOURCE, STAGED

UNLIMITED_BYTES = 2**62
"""No limit of bytes: a range is read completely. Its records are not kept in memory."""

MERGE_DISTANCE = 10_000
"""Downstream offsets between two unknown records up to which they are in one span."""

MAX_SPANS = 1_000
"""Spans of unknown records that a part returns at most; the rest is merged into the last."""


@dataclass(frozen=True)
class SideSettings:
    """Client settings of both clusters, and the directory of `records`."""

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    records: Path


@dataclass(frozen=True)
class SumTask:
    """Parts of one slot, each of another partition, to compute digests of on one *side*.

    *paths* are the files of `records` that may hold them, in order.
    """

    side: str
    parts: tuple[Part, ...]
    paths: tuple[str, ...]


class PartSummer:
    """Compute digests of parts, with cached clients.

    *on_batch* is called with the side and the number of rows of each batch.
    """

    def __init__(self, side_settings: SideSettings, on_batch: Callable[[str, int], None]) -> None:
        self._side_settings, self._on_batch = side_settings, on_batch
        self._staged = StageReader(side_settings.records)
        self._readers: dict[str, RangeReader] = {}

    def sum_parts(self, task: SumTask) -> list[SideDigests]:
        """Return the digests of each part of *task*.

        An error of one cluster partition is in its part's digests. Raises other errors.
        """
        counting = [_PartSum(part) for part in task.parts]
        with gc_disabled():
            if task.side == STAGED:
                self._sum_stage(counting, task.paths)
            else:
                self._sum_cluster(task.side, counting)
        return [each.found() for each in counting]

    def close(self) -> None:
        """Close the clients."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _sum_stage(self, counting: Sequence[_PartSum], paths: Sequence[str]) -> None:
        owners = {each.part.source: each for each in counting}
        wanted = {source: each.part.start for source, each in owners.items()}
        # If a file is damaged, its rows are missing, so the digests will differ.
        for source, rows in self._staged.rows(paths, wanted, on_damage=lambda _: None):
            owners[source].staged(rows)
            self._on_batch(STAGED, rows.num_rows)
            # Rows are sorted: if there is only one part, no row after its end is needed.
            if len(owners) == 1 and offsets_of(rows)[-1] >= owners[source].part.end:
                break

    def _sum_cluster(self, side: str, counting: Sequence[_PartSum]) -> None:
        owners = {r: each for each in counting if (r := each.range_on(side)) is not None}
        reader = self._readers.get(side)
        if reader is None:
            side_settings = self._side_settings
            settings = side_settings.source if side == SOURCE else side_settings.target
            reader = self._readers[side] = RangeReader(settings)

        def take(r: OffsetRange, rows: pa.RecordBatch) -> None:
            owners[r].read(side, rows)
            self._on_batch(side, rows.num_rows)

        for r, reached in reader.read(list(owners), UNLIMITED_BYTES, take).items():
            owners[r].error = reached.error


class _PartSum:
    """Accumulate the digests of one part on one side."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.error: PartitionError | None = None
        self._range_digests = RangeDigests([(each.start, each.end) for each in part.evidence])
        self._extras: list[Span] = []

    def range_on(self, side: str) -> OffsetRange | None:
        """Return the range to read on the cluster of *side*; None if it is empty."""
        target_range = self.part.on_target
        if side == SOURCE:
            source, span = self.part.source, self.part.on_source
        else:
            assert target_range is not None
            span = target_range.start, target_range.end
            source = SourcePartition(
                target_range.partition.topic, "", target_range.partition.partition
            )
        if span is None or span[0] >= span[1]:
            return None
        return OffsetRange(source, *span, None, None, Watermarks(span[0], span[1], span[1]))

    def staged(self, rows: pa.RecordBatch) -> None:
        """Add staged rows."""
        self._range_digests.add(rows, offsets_of(rows))

    def read(self, side: str, rows: pa.RecordBatch) -> None:
        """Add records of a cluster. Target records without an upstream offset become extras."""
        offsets = offsets_of(rows)
        if side == SOURCE or self.part.on_target is None:
            self._range_digests.add(rows, offsets)
            return
        upstream = self.part.on_target.runs.upstream_offsets(offsets)
        known = upstream >= 0
        if not known.all():
            self._add_unknown(offsets[~known])
            rows, upstream = rows.take(pa.array(np.flatnonzero(known))), upstream[known]
        self._range_digests.add(rows, upstream)

    def found(self) -> SideDigests:
        """Return the side's digests, repeated offsets, extra spans and error."""
        digests = tuple(self._range_digests.digests())
        repeated = frozenset(self._range_digests.repeated)
        return SideDigests(digests, repeated, tuple(self._extras), self.error)

    def _add_unknown(self, side_settings: Offsets) -> None:
        """Add spans of target offsets that are in no offset run."""
        cuts = np.flatnonzero(np.diff(side_settings) > MERGE_DISTANCE) + 1
        for group in np.split(side_settings, cuts):
            start, end = int(group[0]), int(group[-1]) + 1
            if self._extras and (
                start - self._extras[-1][1] <= MERGE_DISTANCE or len(self._extras) == MAX_SPANS
            ):
                start = self._extras.pop()[0]
            self._extras.append((start, end))


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector of cycles while messages are read in batches of 20,000.

    Messages have no cycles, and scanning them again and again took half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
