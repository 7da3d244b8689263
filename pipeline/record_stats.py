"""Columns of records in; the bytes of their values and the spread of their timestamps out.

A few passes over whole columns: some 0.1 ms for 50,000 records, nothing per record in Python.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.monitoring.stats import EMPTY, RecordStats, ValueStats


def measure_records(rows: pa.RecordBatch) -> RecordStats:
    """Return what the records of *rows* (columns as in `records`) weigh."""
    value_bytes = pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0
    return RecordStats(value_bytes, timestamp_stats(rows.column("timestamp_ms")))


def timestamp_stats(timestamps: pa.Array) -> ValueStats:
    """Return how *timestamps* (int64, ms since 1970) spread; Kafka's -1 is none."""
    known = (timestamps.drop_null() if timestamps.null_count else timestamps).to_numpy()
    if not len(known):
        return EMPTY
    low = int(known.min())
    if low < 0:
        return timestamp_stats(pa.array(known[known >= 0]))
    # A chunk's timestamps may sum up to more than 64 bits hold; what they are above the least
    # one is small, and exact as a float.
    above = int((known - low).sum(dtype=np.float64))
    return ValueStats(len(known), len(known) * low + above, low, int(known.max()), int(known[-1]))
