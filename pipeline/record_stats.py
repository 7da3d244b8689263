"""Measure a batch of records: the bytes of its values and the statistics of its timestamps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.monitoring.stats import EMPTY, RecordStats, ValueStats


def measure_records(rows: pa.RecordBatch) -> RecordStats:
    """Return the value bytes and timestamp statistics of *rows* (columns as in `records`)."""
    value_bytes = pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0
    return RecordStats(value_bytes, timestamp_stats(rows.column("timestamp_ms")))


def timestamp_stats(timestamps: pa.Array) -> ValueStats:
    """Return the stats of *timestamps* (ms since 1970). Nulls and Kafka's -1 are not counted."""
    known = (timestamps.drop_null() if timestamps.null_count else timestamps).to_numpy()
    if not len(known):
        return EMPTY
    low = int(known.min())
    if low < 0:
        return timestamp_stats(pa.array(known[known >= 0]))
    # The sum of a batch's timestamps can exceed 64 bits. The sum of their distances from the
    # minimum is small, and exact as a float.
    above = int((known - low).sum(dtype=np.float64))
    return ValueStats(len(known), len(known) * low + above, low, int(known.max()), int(known[-1]))
