"""Columns of records in; the bytes of their values and the spread of their timestamps out.

A few passes over whole columns: some 0.1 ms for 50,000 records, nothing per record in Python.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.monitoring.stats import NOTHING, Load, Spread


def weigh(rows: pa.RecordBatch) -> Load:
    """Return what the records of *rows* (columns as in `records`) weigh."""
    value_bytes = pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0
    return Load(value_bytes, stamps_of(rows.column("timestamp_ms")))


def stamps_of(timestamps: pa.Array) -> Spread:
    """Return how *timestamps* (int64, ms since 1970) spread; Kafka's -1 is none."""
    known = (timestamps.drop_null() if timestamps.null_count else timestamps).to_numpy()
    if not len(known):
        return NOTHING
    low = int(known.min())
    if low < 0:
        return stamps_of(pa.array(known[known >= 0]))
    # A chunk's timestamps may sum up to more than 64 bits hold; what they are above the least
    # one is small, and exact as a float.
    above = int((known - low).sum(dtype=np.float64))
    return Spread(len(known), len(known) * low + above, low, int(known.max()), int(known[-1]))
