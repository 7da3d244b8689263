"""Parts of a comparison read on one side and summed up: what a process of `verify` does.

Reading takes nine tenths of a comparison's time, and Python reads with one core in a process. So
large comparisons have a process for each core; only sums come back from it.
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
from schemas.errors import LakeError, PartitionError
from schemas.kafka.partition import SourcePartition, Watermarks
from schemas.staging.read_range import OffsetRange
from schemas.verification import SOURCE, STAGED

UNLIMITED_BYTES = 2**62
"""Bytes: the whole range. Nothing of it is kept."""

MERGE_DISTANCE = 10_000
"""Places between two unknown records up to which they are told as one span."""

MAX_SPANS = 1_000
"""Spans of unknown records that a part tells at most; any more are told as one."""


@dataclass(frozen=True)
class SideSettings:
    """Where the sides are: both clusters' client settings, the folder of `records`."""

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    records: Path


@dataclass(frozen=True)
class SumTask:
    """Parts of one slot, each of another partition, to be summed up on one *side*.

    *paths* are the files of the stage that may hold them, in order.
    """

    side: str
    parts: tuple[Part, ...]
    paths: tuple[str, ...]


class PartSummer:
    """Sums of parts, with cached clients; *on_batch* gets the side and rows of each batch."""

    def __init__(self, side_settings: SideSettings, on_batch: Callable[[str, int], None]) -> None:
        self._side_settings, self._on_batch = side_settings, on_batch
        self._staged = StageReader(side_settings.records)
        self._readers: dict[str, RangeReader] = {}

    def sum_parts(self, task: SumTask) -> list[SideDigests]:
        """Return what the task's side holds of each of its parts. Raises only what ends all."""
        counting = [_PartSum(part) for part in task.parts]
        with gc_disabled():
            if task.side == STAGED:
                self._sum_stage(counting, task.paths)
            else:
                self._sum_cluster(task.side, counting)
        return [each.found() for each in counting]

    def close(self) -> None:
        """Let the clients go."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _sum_stage(self, counting: Sequence[_PartSum], paths: Sequence[str]) -> None:
        owners = {each.part.source: each for each in counting}
        wanted = {source: each.part.start for source, each in owners.items()}
        for path in paths:
            for source, rows in _readable_rows(self._staged, path, wanted):
                owners[source].staged(rows)
                self._on_batch(STAGED, rows.num_rows)
                # Rows are sorted: behind a part that is alone there is nothing for us.
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
    """One part while one side of it is read."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.error: PartitionError | None = None
        self._range_digests = RangeDigests([(each.start, each.end) for each in part.evidence])
        self._extras: list[Span] = []

    def range_on(self, side: str) -> OffsetRange | None:
        """Return what to read on a cluster; None: nothing."""
        place = self.part.on_target
        if side == SOURCE:
            source, span = self.part.source, self.part.on_source
        else:
            assert place is not None
            span = place.start, place.end
            source = SourcePartition(place.partition.topic, "", place.partition.partition)
        if span is None or span[0] >= span[1]:
            return None
        return OffsetRange(source, *span, None, None, Watermarks(span[0], span[1], span[1]))

    def staged(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the stage."""
        self._range_digests.add(rows, offsets_of(rows))

    def read(self, side: str, rows: pa.RecordBatch) -> None:
        """Take in records of a cluster."""
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
        """Return what the side holds."""
        digests = tuple(self._range_digests.digests())
        repeated = frozenset(self._range_digests.repeated)
        return SideDigests(digests, repeated, tuple(self._extras), self.error)

    def _add_unknown(self, side_settings: Offsets) -> None:
        """Remember where on the target records lie that no run tells of."""
        cuts = np.flatnonzero(np.diff(side_settings) > MERGE_DISTANCE) + 1
        for group in np.split(side_settings, cuts):
            start, end = int(group[0]), int(group[-1]) + 1
            if self._extras and (
                start - self._extras[-1][1] <= MERGE_DISTANCE or len(self._extras) == MAX_SPANS
            ):
                start = self._extras.pop()[0]
            self._extras.append((start, end))


def _readable_rows(
    staged: StageReader, path: str, wanted: Mapping[SourcePartition, int]
) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Yield the wanted rows of a file: of one that is damaged those before, and they will miss."""
    try:
        yield from staged.rows([path], wanted)
    except LakeError:
        return


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Keep the collector of cycles away from messages that come by the 20,000.

    They hold none, and looking through them again and again took half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
