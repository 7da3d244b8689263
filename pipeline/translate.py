"""Where a group resumes on the other side, from the offset runs of one partition.

upstream     10   11   14   15        committed 12
downstream    3    4    6    7     -> resumes at 6
runs         (10, 3, 2) (14, 6, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.offset_run import OffsetRun

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RunIndex:
    """The offset runs of one partition in one incarnation on both sides, for quick look-ups.

    Three int64 arrays of one length, sorted by *upstream*; runs rise on both sides and never
    overlap. Raises ValueError, with the numbers, where they do.
    """

    upstream: Offsets
    downstream: Offsets
    length: Offsets

    def __post_init__(self) -> None:
        for side, starts in (("upstream", self.upstream), ("downstream", self.downstream)):
            overlaps = np.flatnonzero(starts[1:] < starts[:-1] + self.length[:-1])
            if len(overlaps):
                at = int(overlaps[0])
                raise ValueError(
                    f"offset runs overlap: {side} {starts[at + 1]} comes after "
                    f"[{starts[at]}, {starts[at] + self.length[at]})"
                )

    @classmethod
    def of(cls, runs: Sequence[OffsetRun]) -> RunIndex:
        """Return the index of *runs*, in any order."""
        return cls.sorted(
            np.array([run.upstream_start for run in runs], dtype=np.int64),
            np.array([run.downstream_start for run in runs], dtype=np.int64),
            np.array([run.length for run in runs], dtype=np.int64),
        )

    @classmethod
    def sorted(cls, upstream: Offsets, downstream: Offsets, length: Offsets) -> RunIndex:
        """Return the index of the runs that the columns hold, in any order."""
        order = np.argsort(upstream, kind="stable")
        return cls(upstream[order], downstream[order], length[order])

    def __len__(self) -> int:
        return len(self.length)

    @property
    def upstream_end(self) -> int:
        """Return the upstream offset behind the last record that arrived; 0: none did."""
        return int(self.upstream[-1] + self.length[-1]) if len(self) else 0

    @property
    def downstream_end(self) -> int:
        """Return the downstream offset behind the last record that arrived; 0: none did."""
        return int(self.downstream[-1] + self.length[-1]) if len(self) else 0

    def arrived(self, start: int, end: int) -> int:
        """Return how many records lie at the downstream offsets `[start, end)`."""
        firsts = np.maximum(self.downstream, start)
        ends = np.minimum(self.downstream + self.length, end)
        return int(np.maximum(0, ends - firsts).sum())


def translate(committed: int, runs: RunIndex) -> int | None:
    """Return the downstream offset at which a group that committed *committed* resumes.

    A committed offset names the next record to read, so the answer is the first replicated
    record at or past it. A group that is ahead of replication gets the end of what has arrived:
    it may read a record twice, and it skips none. None: nothing has arrived yet.
    """
    return _translate(committed, runs.upstream, runs.downstream, runs.length)


def translate_back(downstream: int, runs: RunIndex) -> int | None:
    """Return the upstream offset at which a group that committed *downstream* resumes.

    The inverse of `translate`, for failback: the source of the first replicated record at or past
    *downstream*; at the end of what has arrived, the upstream end of it. None: nothing arrived.
    """
    return _translate(downstream, runs.downstream, runs.upstream, runs.length)


def _translate(offset: int, here: Offsets, there: Offsets, length: Offsets) -> int | None:
    if len(length) == 0:
        return None
    i = int(np.searchsorted(here + length, offset, side="right"))
    if i == len(length):
        return int(there[-1] + length[-1])
    return int(there[i]) + max(0, offset - int(here[i]))
