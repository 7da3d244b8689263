"""Sample offset syncs for MirrorMaker 2's tools from offset runs.

MirrorMaker 2's OffsetSyncWriter writes a sync when either side skips an offset, when
`offset.lag.max` records have followed the last sync, and for the last record of a flush
(KAFKA-15906). A run ends where either side skips an offset. So the writer would have written: the
first record of each run, every record offset.lag.max + 1 later in the run, and the last record of
all. More syncs would not help: OffsetSyncStore keeps 64 at most and drops others by distance.

OffsetSyncStore translates to at most one offset after a sync. Each pair here belongs to one
record, so a group never skips a record that it has not read, even if few syncs are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.offset_map import OffsetRun


def sample_offset_syncs(runs: Sequence[OffsetRun], lag_max: int) -> list[tuple[int, int]]:
    """Return sampled (upstream, downstream) pairs of *runs*, which are in order.

    Within a run at most *lag_max* records lie between two pairs; 0 takes every record.
    """
    pairs = [
        (run.upstream_start + i, run.downstream_start + i)
        for run in runs
        for i in range(0, run.length, lag_max + 1)
    ]
    last = [(run.upstream_end - 1, run.downstream_end - 1) for run in runs[-1:]]
    return pairs if pairs[-1:] == last else pairs + last
