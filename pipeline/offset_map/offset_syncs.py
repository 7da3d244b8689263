"""Which pairs of offsets MirrorMaker 2 gets to see of the offset runs: a sample, its offset syncs.

MirrorMaker 2's own writer syncs a record where either side skips an offset, `offset.lag.max`
records behind the last sync, and the last one when it flushes (OffsetSyncWriter, KAFKA-15906). Runs
say all that: one ends where either side skips. So the first record of each run, one each
offset.lag.max + 1 records on, and the last record of all are what it would have written, and its
store, which keeps 64 at most and thins them out by distance, can do no more with others.

A store translates to one offset behind a sync at most. As each pair here is of one record, no
sample, however thin, leads a group past a record that it has not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.offset_map import OffsetRun


def sample_offset_syncs(runs: Sequence[OffsetRun], lag_max: int) -> list[tuple[int, int]]:
    """Return pairs (upstream, downstream) of *runs*, which are in order, at most *lag_max* apart.

    Records between two of a run are at most *lag_max*; 0 takes every record.
    """
    pairs = [
        (run.upstream_start + i, run.downstream_start + i)
        for run in runs
        for i in range(0, run.length, lag_max + 1)
    ]
    if runs:
        last = (runs[-1].upstream_end - 1, runs[-1].downstream_end - 1)
        if pairs[-1] != last:
            pairs.append(last)
    return pairs
