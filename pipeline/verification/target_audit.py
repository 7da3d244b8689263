"""Audit the target: each staged record at its mapped offset, once and in order.

    staged       10   11   14   15
    map           3    4    6    7        each must be at its offset with equal content
    target        3    4    6    7    9   9: in no run; a duplicate of a staged record, or foreign

A record that is not at its downstream offset is searched among the target's unexpected records. If
it is found, it is reordered. If not, it is altered if its offset holds other content, else lost.
The audit does not depend on how replay works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pipeline.arrays import NO_OFFSETS, Offsets, offsets_of
from pipeline.offset_map.runs import RunOrderError, Runs, validate_runs
from pipeline.pairing.pair import Fingerprint, fingerprints
from pipeline.verification.compare import Mask, RecordStream, align_windows, diff_windows
from schemas.kafka.partition import TopicPartition
from schemas.verification import (
    ALTERED,
    DUPLICATED,
    EXPIRED_DOWNSTREAM,
    FOREIGN,
    LOST,
    NEVER_COPIED,
    REORDERED,
    STAGED,
    TARGET,
    PartitionFindings,
)

STAGED_AND_TARGET = (STAGED, TARGET)

MAX_PENDING = 50_000
"""Upper bound of pending staged records, and of unexpected target records, in memory."""

MAX_EXTRAS = 200_000
"""Unexpected records that are compared with the whole stage; more than these count as foreign."""


@dataclass(frozen=True)
class TargetView:
    """The state of a target partition, which is read in `[low, end)`.

    *is_compacted*: compaction may have deleted a record that has a later one of its key.
    *topic_id* is the id of the topic that is read. Records before downstream offset *since* were
    written by other producers.
    """

    partition: TopicPartition
    low: int
    end: int
    is_compacted: bool = False
    topic_id: str = ""
    since: int = 0


@dataclass(frozen=True)
class StagedIncarnation:
    """A staged incarnation: the *runs* of its map, in any order, and its bounds of arrival.

    Records below *due* must be on the target. Records below *reach* may have arrived during the
    audit. Of the records below *since* only those in a run were ever sent.
    """

    incarnation: str
    runs: Runs
    due: int
    reach: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class _PendingMatch:
    """A staged record that is not at its *downstream_offset*; None: no run contains it.

    *number* increases in the order of staging.
    """

    number: int
    offset: int
    downstream_offset: int | None
    is_due: bool
    fingerprint: Fingerprint


class TargetAudit:
    """Audit one partition's staged records against its target partition.

    *incarnations* are in the order of staging, oldest first. *first_match* is a pair (number of the
    incarnation, upstream offset); at least one record before it is on the target, so retention
    cannot have deleted later ones.

    Call `add_rows` with the staged rows in order, all of them or only suspect ranges; *target*
    holds the records around their downstream offsets. Then call `finish`. If there are `extras`,
    call `match_extras` with all staged rows. Then call `close`.
    """

    def __init__(
        self,
        found: PartitionFindings,
        incarnations: Sequence[StagedIncarnation],
        view: TargetView,
        target: RecordStream,
        first_match: tuple[int, int] | None = None,
    ) -> None:
        self._found, self._view, self._target = found, view, target
        self.records = 0
        self._incarnations = {staged.incarnation: staged for staged in incarnations}
        self._order = list(self._incarnations)
        self._runs, faults = monotonic_runs(incarnations)
        for fault in faults:
            found.add(fault.kind, fault.offset, STAGED_AND_TARGET, fault.detail, fault.length)
        runs = self._runs.values()
        self._starts = np.concatenate([NO_OFFSETS, *(each.downstream for each in runs)])
        self._ends = self._starts + np.concatenate([NO_OFFSETS, *(each.length for each in runs)])
        self._first_match = first_match
        self._next: dict[str, int] = {}
        self._pending: list[_PendingMatch] = []
        self._unclaimed: dict[int, Fingerprint] = {}
        self._numbers = 0
        self._first_match_number: float = float("inf")
        self._last = self._paired = -1
        self.extras: dict[Fingerprint, list[int]] = defaultdict(list)
        self._extra_count = 0

    def add_rows(self, incarnation: str, rows: pa.RecordBatch) -> None:
        """Compare staged *rows* of an incarnation. Raises the errors of reading the target."""
        staged = self._incarnations.get(incarnation)
        if staged is None:
            return
        runs, offsets = self._runs[incarnation], offsets_of(rows)
        again = int(np.searchsorted(offsets, self._next.get(incarnation, 0)))
        reach = int(np.searchsorted(offsets, max(staged.reach, runs.upstream_end)))
        rows, offsets = rows.slice(again, max(0, reach - again)), offsets[again:reach]
        if not len(offsets):
            return
        if self._first_match is not None and self._first_match <= (
            self._order.index(incarnation),
            offsets[0],
        ):
            self._first_match_number = min(self._first_match_number, self._numbers)
        self._next[incarnation] = int(offsets[-1]) + 1
        self.records += len(offsets)
        downstream_offsets, due = runs.downstream_offsets(offsets), offsets < staged.due
        is_mapped = downstream_offsets >= 0
        if is_mapped.all():
            self._compare_mapped(rows, downstream_offsets, due)
            return
        # Split into mapped and unmapped stretches, and compare them in order.
        edges = [0, *(np.flatnonzero(np.diff(is_mapped)) + 1).tolist(), len(offsets)]
        for start, stop in pairwise(edges):
            part = rows.slice(start, stop - start)
            if is_mapped[start]:
                self._compare_mapped(part, downstream_offsets[start:stop], due[start:stop])
            else:
                never = int(np.searchsorted(offsets[start:stop], staged.since))
                self._found.counts[NEVER_COPIED] += never
                self._match_unmapped(part.slice(never), due[start:stop][never:])

    def finish(self) -> None:
        """Read the rest of the target, and report the records that are still pending."""
        for other in self._target.until(self._view.end):
            self._add_unexpected(other)
        self._match_pending()
        self._trim(0)

    def match_extras(self, rows: pa.RecordBatch) -> None:
        """Count the extras that equal a staged record as its duplicates."""
        for offset, fingerprint in zip(offsets_of(rows).tolist(), fingerprints(rows), strict=True):
            for downstream_offset in self.extras.pop(fingerprint, ()):
                text = f"once more at {self._view.partition}@{downstream_offset}"
                self._found.add(DUPLICATED, offset, STAGED_AND_TARGET, text)

    def close(self) -> None:
        """Count the extras that equal no staged record as records of other producers."""
        self._found.counts[FOREIGN] += sum(map(len, self.extras.values()))
        self.extras.clear()

    def _compare_mapped(self, rows: pa.RecordBatch, downstream_offsets: Offsets, due: Mask) -> None:
        """Compare mapped records with the target's records at their downstream offsets."""
        # Offsets past the view's end were written during the audit. If they were due before it,
        # the target's log was truncated.
        visible = int(np.searchsorted(downstream_offsets, self._view.end))
        self._add_pending(
            rows.slice(visible), downstream_offsets[visible:], due[visible:], due[visible:]
        )
        below = int(np.searchsorted(downstream_offsets[:visible], self._view.low))
        self._found.counts[EXPIRED_DOWNSTREAM] += below
        rows, downstream_offsets, due = (
            rows.slice(below, visible - below),
            downstream_offsets[below:visible],
            due,
        )
        if not len(downstream_offsets):
            return
        for part, at, other in align_windows(rows, downstream_offsets, self._target):
            window_diff = diff_windows(part, at, other)
            everything = np.ones(len(at), np.bool_)
            if len(window_diff.missing) < len(at):
                self._first_match_number = min(self._first_match_number, self._numbers)
            for rows_of in (window_diff.missing, window_diff.altered[0]):
                chosen = np.zeros(len(at), np.bool_)
                chosen[rows_of] = True
                self._add_pending(part, at, everything, chosen)
            if other is not None and len(window_diff.extra) + len(window_diff.altered[1]):
                self._add_unexpected(other.take(pa.array(window_diff.extra)))
                self._add_unclaimed(other.take(pa.array(window_diff.altered[1])))
        self._last = int(downstream_offsets[-1])
        if len(self._pending) > MAX_PENDING or len(self._unclaimed) > MAX_PENDING:
            self._match_pending()
            self._trim(MAX_PENDING // 2)

    def _match_unmapped(self, rows: pa.RecordBatch, due: Mask) -> None:
        """Search the target for records that are in no run, up to the next run."""
        self._add_pending(rows, None, due, np.ones(rows.num_rows, np.bool_))
        ahead = self._starts[self._starts > self._last]
        end = min(self._view.end, int(ahead[0])) if len(ahead) else self._view.end
        self._match_pending()
        while self._pending and len(self._unclaimed) < MAX_PENDING:
            other = next(self._target.until(end), None)
            if other is None:
                break
            self._add_unexpected(other)
            self._match_pending()
        self._trim(MAX_PENDING // 2)

    def _add_pending(
        self, rows: pa.RecordBatch, downstream_offsets: Offsets | None, due: Mask, chosen: Mask
    ) -> None:
        """Add the *chosen* rows to the pending records."""
        which = np.flatnonzero(chosen)
        if not len(which):
            return
        rows = rows.take(pa.array(which))
        row_fingerprints = fingerprints(rows)
        for i, offset, fingerprint in zip(
            which.tolist(), offsets_of(rows).tolist(), row_fingerprints, strict=True
        ):
            downstream_offset = None if downstream_offsets is None else int(downstream_offsets[i])
            self._pending.append(
                _PendingMatch(self._numbers, offset, downstream_offset, bool(due[i]), fingerprint)
            )
            self._numbers += 1

    def _add_unexpected(self, other: pa.RecordBatch) -> None:
        """Add the target's records that are outside of all runs to the unexpected records."""
        if len(self._starts):
            # A record in a run that is missing in the stage is a difference of the stage.
            offsets = offsets_of(other)
            run = np.searchsorted(self._starts, offsets, side="right") - 1
            outside = (run < 0) | (offsets >= self._ends[run])
            other = other.take(pa.array(np.flatnonzero(outside)))
        self._add_unclaimed(other)

    def _add_unclaimed(self, other: pa.RecordBatch) -> None:
        self._unclaimed.update(zip(offsets_of(other).tolist(), fingerprints(other), strict=True))

    def _match_pending(self) -> None:
        """Match pending records with unexpected records by fingerprint."""
        downstream_offsets: dict[Fingerprint, list[int]] = defaultdict(list)
        for downstream_offset in sorted(self._unclaimed):
            downstream_offsets[self._unclaimed[downstream_offset]].append(downstream_offset)
        left = []
        for each in self._pending:
            found = downstream_offsets.get(each.fingerprint)
            if not found:
                left.append(each)
                continue
            downstream_offset = next((p for p in found if p > self._paired), found[0])
            found.remove(downstream_offset)
            del self._unclaimed[downstream_offset]
            self._first_match_number = min(self._first_match_number, each.number)
            if each.downstream_offset is not None or downstream_offset < self._paired:
                text = f"out of order: found at {self._view.partition}@{downstream_offset}"
                self._found.add(REORDERED, each.offset, STAGED_AND_TARGET, text)
            else:
                self._paired = downstream_offset
        self._pending = left

    def _trim(self, keep: int) -> None:
        """Keep the newest *keep* pending and unexpected records; report the others."""
        given_up = self._pending[: max(0, len(self._pending) - keep)]
        self._pending = self._pending[len(given_up) :]
        for each in given_up:
            self._resolve_missing(each)
        wanted = {each.downstream_offset for each in self._pending}
        for downstream_offset in sorted(self._unclaimed)[: max(0, len(self._unclaimed) - keep)]:
            if downstream_offset not in wanted:
                self._add_extra(downstream_offset, self._unclaimed.pop(downstream_offset))

    def _resolve_missing(self, each: _PendingMatch) -> None:
        """Report a record that was not found as altered, expired or lost, if it is due."""
        offset = "?" if each.downstream_offset is None else each.downstream_offset
        where = f"{self._view.partition}@{offset}"
        if (
            each.downstream_offset is not None
            and self._unclaimed.pop(each.downstream_offset, None) is not None
        ):
            text = f"{where} has another content than the stage"
            self._found.add(ALTERED, each.offset, STAGED_AND_TARGET, text)
        elif not each.is_due:
            return
        elif self._view.is_compacted or (each.downstream_offset is None and self._is_expired(each)):
            self._found.counts[EXPIRED_DOWNSTREAM] += 1
        else:
            text = f"not on the target, expected at {where}"
            self._found.add(LOST, each.offset, STAGED_AND_TARGET, text)

    def _is_expired(self, each: _PendingMatch) -> bool:
        """Return whether the target may have deleted a record of which no run knows the offset."""
        return each.number < self._first_match_number and self._view.low > 0

    def _add_extra(self, downstream_offset: int, fingerprint: Fingerprint) -> None:
        """Keep an unexpected record to compare it with the whole stage."""
        self._extra_count += 1
        if self._extra_count <= MAX_EXTRAS and downstream_offset >= self._view.since:
            self.extras[fingerprint].append(downstream_offset)
        else:
            self._found.counts[FOREIGN] += 1


def monotonic_runs(
    incarnations: Sequence[StagedIncarnation],
) -> tuple[dict[str, Runs], list[RunOrderError]]:
    """Return the valid runs of each incarnation, in the log's order, and errors of other runs."""
    found: dict[str, Runs] = {}
    faults: list[RunOrderError] = []
    end = 0
    for staged in incarnations:
        found[staged.incarnation], wrong = validate_runs(staged.runs, end)
        end = max(end, found[staged.incarnation].downstream_end)
        faults += wrong
    return found, faults


def arrival_bounds(
    order: Sequence[str], due: tuple[str, int] | None, reach: tuple[str, int] | None
) -> Mapping[str, tuple[int, int]]:
    """Return (due, reach) of each incarnation: it must, and may, have arrived below these offsets.

    *due* and *reach* are progress (incarnation, next offset) before and after the target was read;
    None: replay had not begun. Incarnations are replayed one after another.
    """
    return {
        name: (_arrival_bound(order, name, due), _arrival_bound(order, name, reach))
        for name in order
    }


def _arrival_bound(order: Sequence[str], name: str, progress: tuple[str, int] | None) -> int:
    if progress is None or progress[0] not in order:
        return 0
    at, here = order.index(progress[0]), order.index(name)
    return 2**62 if here < at else progress[1] if here == at else 0
