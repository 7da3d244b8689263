"""Encode pairs of upstream and downstream offsets as offset runs.

    upstream     10   11   14   15        (12 and 13 hold no record)
    downstream    3    4    6    7        (5 is a transaction marker)
    runs         (10, 3, 2) (14, 6, 2)

Both sides increase within a partition: the source assigns offsets in order, and the target appends
records in the order in which they were sent. Offsets that do not increase are rejected.
"""

from __future__ import annotations

import numpy as np

from pipeline.arrays import Offsets
from schemas.offset_map import OffsetRun


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
    return list(
        map(OffsetRun, upstream[starts].tolist(), downstream[starts].tolist(), lengths.tolist())
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
