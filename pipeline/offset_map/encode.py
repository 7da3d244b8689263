"""What the target answered, record by record, becomes offset runs.

    upstream     10   11   14   15        (12 and 13 hold no record)
    downstream    3    4    6    7        (5 is a transaction marker)
    runs         (10, 3, 2) (14, 6, 2)

Within a partition both sides rise: the source gives offsets in order, and the target appends in
the order in which it was sent. Offsets that do not rise are a defect and never become a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from schemas.offset_map import OffsetRun

Offsets = npt.NDArray[np.int64]


def encode_runs(upstream: Offsets, downstream: Offsets) -> list[OffsetRun]:
    """Return the runs that pairs of offsets of one partition make, in order.

    Both arrays hold int64 offsets, one pair per record, in the order they were sent. Raises
    ValueError, with the numbers, where lengths differ, one side does not rise, or one is negative.
    """
    if len(upstream) != len(downstream):
        raise ValueError(f"{len(upstream)} upstream offsets, {len(downstream)} downstream ones")
    if len(upstream) == 0:
        return []
    _check_monotonic("upstream", upstream)
    _check_monotonic("downstream", downstream)
    breaks = np.flatnonzero((np.diff(upstream) != 1) | (np.diff(downstream) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(upstream)])))
    return [
        OffsetRun(up, down, length)
        for up, down, length in zip(
            upstream[starts].tolist(), downstream[starts].tolist(), lengths.tolist(), strict=True
        )
    ]


def join_runs(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Return *runs* of one partition, in order, with those that touch on both sides made one.

    Raises ValueError where a run does not begin at or past the former one's end on both sides.
    """
    joined: list[OffsetRun] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is None:
            joined.append(run)
            continue
        if run.upstream_start < last.upstream_end or run.downstream_start < last.downstream_end:
            raise ValueError(f"offset runs do not rise: {run} after {last}")
        if (run.upstream_start, run.downstream_start) == (last.upstream_end, last.downstream_end):
            length = last.length + run.length
            joined[-1] = OffsetRun(last.upstream_start, last.downstream_start, length)
        else:
            joined.append(run)
    return joined


def expand_runs(runs: Iterable[OffsetRun]) -> Iterator[tuple[int, int]]:
    """Yield the (upstream, downstream) pairs that *runs* stand for."""
    for run in runs:
        yield from zip(
            range(run.upstream_start, run.upstream_end),
            range(run.downstream_start, run.downstream_end),
            strict=True,
        )


def _check_monotonic(side: str, offsets: Offsets) -> None:
    if offsets[0] < 0:
        raise ValueError(f"{side} offset {offsets[0]} is negative")
    falls = np.flatnonzero(np.diff(offsets) <= 0)
    if len(falls):
        at = int(falls[0])
        raise ValueError(
            f"{side} offsets do not rise: {offsets[at + 1]} after {offsets[at]} (record {at + 1})"
        )
