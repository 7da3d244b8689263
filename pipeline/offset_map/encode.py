"""Encode pairs of upstream and downstream offsets as offset runs.

    upstream     10   11   14   15        (12 and 13 hold no record)
    downstream    3    4    6    7        (5 is a transaction marker)
    runs         (10, 3, 2) (14, 6, 2)

Both sides increase within a partition: the source assigns offsets in order, and the target appends
records in the order in which they were sent. Offsets that do not increase are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from schemas.offset_map import OffsetRun

Offsets = npt.NDArray[np.int64]


def encode_runs(upstream: Offsets, downstream: Offsets) -> list[OffsetRun]:
    """Return one partition's pairs of offsets as offset runs, in order.

    Both arrays hold int64 offsets, one pair per record, in the order in which they were sent.
    Raises ValueError if lengths differ, if a side does not increase, or if an offset is negative.
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
    """Return *runs* of one partition, in order, with runs joined that are adjacent on both sides.

    Raises ValueError if a run begins before the end of the previous run, on either side.
    """
    joined: list[OffsetRun] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is None:
            joined.append(run)
            continue
        if run.upstream_start < last.upstream_end or run.downstream_start < last.downstream_end:
            raise ValueError(f"offset runs do not increase: {run} after {last}")
        if (run.upstream_start, run.downstream_start) == (last.upstream_end, last.downstream_end):
            length = last.length + run.length
            joined[-1] = OffsetRun(last.upstream_start, last.downstream_start, length)
        else:
            joined.append(run)
    return joined


def expand_runs(runs: Iterable[OffsetRun]) -> Iterator[tuple[int, int]]:
    """Yield the (upstream, downstream) pairs of *runs*."""
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
            f"{side} offsets do not increase: {offsets[at + 1]} after {offsets[at]} "
            f"(record {at + 1})"
        )
