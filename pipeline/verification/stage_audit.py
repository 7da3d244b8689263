"""Audit the stage against the source and against its own segments.

The stage is compared with the source record by record, and with the number and digest of records
in each segment. Records that the source deleted by retention or compaction are not a difference.
`target_audit` compares the stage with the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pipeline.arrays import Offsets, offsets_of
from pipeline.record_digest import Digest
from pipeline.verification.compare import RecordStream, align_windows, diff_windows
from schemas.verification import (
    ALTERED,
    DUPLICATED,
    EXPIRED_STAGED,
    GONE_UPSTREAM,
    LOST,
    SOURCE,
    STAGED,
    PartitionFindings,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A segment's staged range `[start, end)`, with the number and digest of its records.

    *is_accepted*: a gap that an operator accepted; the source is not read there. *is_missing*: no
    segment covers the range, so no side should have records there.
    """

    start: int
    end: int
    count: int
    digest: str
    is_accepted: bool = False
    is_missing: bool = False


class StageAudit:
    """Audit one staged incarnation of a partition against its source and its segments.

    *evidence* is in order of offset. *kept* is the first offset that retention kept in the stage.
    *source* is None if it is not compared, or if its topic was re-created. *is_counted*: also
    compare the stage with its segments. Call `add_rows` with the staged rows in order, then
    `finish`.
    """

    def __init__(
        self,
        found: PartitionFindings,
        evidence: Sequence[Evidence],
        kept: int,
        source: RecordStream | None,
        *,
        is_counted: bool,
    ) -> None:
        self._found, self._source, self._is_counted = found, source, is_counted
        self.records = 0
        expired = [each for each in evidence if each.start < kept]
        found.counts[EXPIRED_STAGED] += sum(each.count for each in expired)
        self._evidence = [each for each in evidence if each.start >= kept]
        self._ends = np.array([each.end for each in self._evidence], np.int64)
        self._seen = np.zeros(len(self._evidence), np.int64)
        self._lost = np.zeros(len(self._evidence), np.int64)
        self._wrong_digest: set[int] = set()
        self._segment, self._digest = 0, Digest()
        self._next = self._evidence[0].start if self._evidence else 0

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Compare staged *rows*, whose offsets increase. Raises errors of reading the source."""
        if not self._evidence:
            return
        offsets = offsets_of(rows)
        # Rows that were staged after the segments were read are ignored.
        known = int(np.searchsorted(offsets, self._ends[-1]))
        again = int(np.searchsorted(offsets[:known], self._next))
        self._add_duplicates(offsets[:again])
        rows, offsets = rows.slice(again, known - again), offsets[again:known]
        if not len(offsets):
            return
        self._next = int(offsets[-1]) + 1
        self.records += len(offsets)
        if self._is_counted:
            self._count(rows, offsets)
        if self._source is not None:
            for part, positions, other in align_windows(rows, offsets, self._source):
                self._compare(part, positions, other)

    def finish(self, damage: str = "") -> None:
        """Compare the source's records after the last staged row, and check every segment.

        *damage* is a text that names the files that could not be read.
        """
        if self._source is not None and self._evidence:
            for other in self._source.until(int(self._ends[-1])):
                self._add_lost(offsets_of(other))
        if not self._is_counted:
            return
        self._close_digest()
        for i, each in enumerate(self._evidence):
            self._check_segment(i, each, damage)

    def _add_duplicates(self, offsets: Offsets) -> None:
        """Add a difference for each row whose offset was read before."""
        first = self._evidence[0].start
        for offset in offsets[offsets >= first].tolist():
            text = "the stage holds this offset more than once"
            self._found.add(DUPLICATED, offset, (STAGED,), text)

    def _count(self, rows: pa.RecordBatch, offsets: Offsets) -> None:
        segments = np.searchsorted(self._ends, offsets, side="right")
        self._seen += np.bincount(segments, minlength=len(self._ends))
        edges = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(offsets)]
        for start, end in pairwise(edges):
            if int(segments[start]) != self._segment:
                self._close_digest()
                self._segment, self._digest = int(segments[start]), Digest()
            self._digest.add(rows.slice(start, end - start))

    def _close_digest(self) -> None:
        """Compare the digest of the segment that was read last."""
        i = self._segment
        was_read = bool(self._evidence) and self._seen[i] > 0
        if was_read and self._digest.hexdigest() != self._evidence[i].digest:
            self._wrong_digest.add(i)

    def _compare(
        self, rows: pa.RecordBatch, positions: Offsets, other: pa.RecordBatch | None
    ) -> None:
        window_diff = diff_windows(rows, positions, other)
        self._found.counts[GONE_UPSTREAM] += len(window_diff.missing)
        if other is not None and len(window_diff.extra):
            self._add_lost(offsets_of(other)[window_diff.extra])
        altered = positions[window_diff.altered[0]]
        _add_differences(
            self._found, ALTERED, altered, "the stage holds another content than the source"
        )

    def _add_lost(self, offsets: Offsets) -> None:
        """Add the source's *offsets* as lost in the stage, except those that retention deleted."""
        offsets = offsets[offsets >= self._evidence[0].start]
        np.add.at(self._lost, np.searchsorted(self._ends, offsets, side="right"), 1)
        _add_differences(self._found, LOST, offsets, "the source holds it, the stage does not")

    def _check_segment(self, i: int, each: Evidence, damage: str) -> None:
        """Compare a segment's evidence with its rows; records reported as lost do not count."""
        missing = each.count - int(self._seen[i])
        where = f"records staged in [{each.start}, {each.end})"
        unreported = missing - int(self._lost[i])
        if unreported > 0:
            why = f": {damage}" if damage else ""
            text = f"{missing} of {each.count} {where} are no longer in the stage{why}"
            self._found.add(LOST, each.start, (STAGED,), text, unreported)
        elif missing < 0:
            text = f"the stage holds {-missing} more than the {each.count} {where}"
            self._found.add(ALTERED, each.start, (STAGED,), text, -missing)
        elif missing == 0 and i in self._wrong_digest and not self._is_explained(each):
            text = f"the {each.count} {where} have another digest than when they were staged"
            self._found.add(ALTERED, each.start, (STAGED,), text)

    def _is_explained(self, each: Evidence) -> bool:
        """Return whether an altered record of the segment was already found."""
        return any(each.start <= offset < each.end for offset in self._found.altered)


def _add_differences(
    found: PartitionFindings, kind: str, offsets: Iterable[int], detail: str
) -> None:
    for offset in offsets:
        found.add(kind, int(offset), (SOURCE, STAGED), detail)
