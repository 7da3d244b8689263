"""Offset runs of a partition as columns, and lookups of offsets on either side.

A partition can have millions of runs, so runs are columns and lookups take many offsets at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import NO_OFFSETS, Offsets
from schemas.offset_map import OffsetRun
from schemas.verification import DUPLICATED, REORDERED


@dataclass(frozen=True, eq=False)
class Runs:
    """Offset runs as columns of equal length; see `schemas.offset_map`.

    All methods except `of` and `sort_by_upstream` require runs that increase on both sides and do
    not overlap.
    """

    upstream: Offsets
    downstream: Offsets
    length: Offsets

    @classmethod
    def of(cls, runs: Iterable[OffsetRun]) -> Runs:
        """Return *runs* as columns, in their order."""
        rows = [(run.upstream_start, run.downstream_start, run.length) for run in runs]
        columns = np.array(rows, np.int64).reshape(-1, 3)
        return cls(*columns.T)

    def __len__(self) -> int:
        return len(self.upstream)

    def sort_by_upstream(self) -> Runs:
        """Return the runs sorted by upstream offset. Raises ValueError if runs overlap."""
        runs = self.take(np.argsort(self.upstream, kind="stable"))
        for side, starts in (("upstream", runs.upstream), ("downstream", runs.downstream)):
            overlaps = np.flatnonzero(starts[1:] < starts[:-1] + runs.length[:-1])
            if len(overlaps):
                at = int(overlaps[0])
                raise ValueError(
                    f"offset runs overlap: {side} {starts[at + 1]} comes after "
                    f"[{starts[at]}, {starts[at] + runs.length[at]})"
                )
        return runs

    @property
    def upstream_end(self) -> int:
        """Return the upstream offset after the last run, 0 without runs."""
        return int(self.upstream[-1] + self.length[-1]) if len(self) else 0

    @property
    def downstream_end(self) -> int:
        """Return the downstream offset after the last run, 0 without runs."""
        return int(self.downstream[-1] + self.length[-1]) if len(self) else 0

    @property
    def inverse(self) -> Runs:
        """Return the runs with the sides exchanged."""
        return Runs(self.downstream, self.upstream, self.length)

    def downstream_offsets(self, offsets: Offsets) -> Offsets:
        """Return the downstream offset of each upstream offset; -1: no run contains it."""
        if not len(self):
            return np.full(len(offsets), -1, np.int64)
        run = np.searchsorted(self.upstream, offsets, side="right") - 1
        behind = offsets - self.upstream[run]
        return np.where((run >= 0) & (behind < self.length[run]), self.downstream[run] + behind, -1)

    def upstream_offsets(self, downstream_offsets: Offsets) -> Offsets:
        """Return the upstream offset of each downstream offset; -1: no run contains it."""
        return self.inverse.downstream_offsets(downstream_offsets)

    def downstream_end_below(self, upstream: int) -> int:
        """Return the downstream offset after the last record below *upstream*, 0 without any."""
        run = int(np.searchsorted(self.upstream, upstream)) - 1
        if run < 0:
            return 0
        length = min(int(self.length[run]), upstream - int(self.upstream[run]))
        return int(self.downstream[run]) + length

    def upstream_end_below(self, downstream_offset: int) -> int:
        """Return the upstream offset after the last record below *downstream_offset*, or 0."""
        return self.inverse.downstream_end_below(downstream_offset)

    def downstream_at_or_after(self, upstream: int) -> int | None:
        """Return the downstream offset of the first record at or after *upstream*, or None."""
        run = int(np.searchsorted(self.upstream + self.length, upstream, side="right"))
        if run == len(self):
            return None
        return int(self.downstream[run]) + max(0, upstream - int(self.upstream[run]))

    def upstream_at_or_after(self, downstream_offset: int) -> int | None:
        """Return the upstream offset of the first record at or after *downstream_offset*."""
        return self.inverse.downstream_at_or_after(downstream_offset)

    def overlapping(self, start: int, end: int) -> Runs:
        """Return the runs that contain any upstream offset of `[start, end)`."""
        first = int(np.searchsorted(self.upstream + self.length, start, side="right"))
        last = int(np.searchsorted(self.upstream, end))
        return self.take(slice(first, max(first, last)))

    def count_between(self, start: int, end: int) -> int:
        """Return how many records lie at the downstream offsets `[start, end)`."""
        firsts = np.maximum(self.downstream, start)
        ends = np.minimum(self.downstream + self.length, end)
        return int(np.maximum(0, ends - firsts).sum())

    def take(self, chosen: slice | Sequence[int] | Offsets) -> Runs:
        """Return the *chosen* runs, in that order."""
        return Runs(self.upstream[chosen], self.downstream[chosen], self.length[chosen])


NO_RUNS = Runs(NO_OFFSETS, NO_OFFSETS, NO_OFFSETS)


@dataclass(frozen=True)
class RunOrderError:
    """An invalid run: the *kind* of difference, its upstream *offset*, and *length* in records."""

    kind: str
    offset: int
    length: int
    detail: str


def validate_runs(runs: Runs, above: int) -> tuple[Runs, list[RunOrderError]]:
    """Return the valid *runs* in order, and an error for each other run.

    Valid runs increase on both sides, and the first begins at or after downstream offset *above*.
    """
    runs = runs.take(np.lexsort((runs.downstream, runs.upstream)))
    upstream_ends, downstream_ends = runs.upstream + runs.length, runs.downstream + runs.length
    if (
        (runs.upstream[1:] >= upstream_ends[:-1]).all()
        and (runs.downstream[1:] >= downstream_ends[:-1]).all()
        and (not len(runs) or runs.downstream[0] >= above)
    ):
        return runs, []
    return _split_valid(runs, above)


def _split_valid(runs: Runs, above: int) -> tuple[Runs, list[RunOrderError]]:
    kept: list[int] = []
    faults: list[RunOrderError] = []
    upstream_end, downstream_end = 0, above
    columns = (runs.upstream.tolist(), runs.downstream.tolist(), runs.length.tolist())
    for i, (upstream, downstream, length) in enumerate(zip(*columns, strict=True)):
        run = OffsetRun(upstream, downstream, length)
        if upstream < upstream_end:
            text = f"the offset map contains this offset more than once: {run}"
            faults.append(RunOrderError(DUPLICATED, upstream, length, text))
        elif downstream < downstream_end:
            text = f"the offset map is not increasing: {run} begins below {downstream_end}"
            faults.append(RunOrderError(REORDERED, upstream, length, text))
        else:
            kept.append(i)
            upstream_end, downstream_end = run.upstream_end, run.downstream_end
    return runs.take(np.array(kept, np.int64)), faults
