"""Staged rows as a producer takes them, and which of them need the exact one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def is_odd(rows: pa.RecordBatch) -> bool:
    """Return whether confluent-kafka's producer would alter any of *rows*.

    It takes timestamp 0 for "not set", ends header keys at a NUL and takes none that is not UTF-8.
    """
    stamps, raw = rows.column("timestamp_ms"), rows.column("raw_header_keys")
    if raw.null_count < len(raw) or pc.index(stamps, 0).as_py() >= 0:
        return True
    headers = rows.column("headers")
    if headers.null_count == len(headers):
        return False
    return bool(pc.any(pc.match_substring(headers.flatten().field("key"), "\0")).as_py())


def columns_of(rows: pa.RecordBatch) -> Iterable[tuple[Any, Any, int, list[Any] | None]]:
    """Return key, value, timestamp and headers of each row; headers decoded once per batch."""
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    stamps = rows.column("timestamp_ms").to_pylist()
    headers, raw = rows.column("headers"), rows.column("raw_header_keys")
    if headers.null_count == len(headers):
        return zip(keys, values, stamps, [None] * len(keys), strict=True)
    pairs = headers.flatten()
    flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
    edges = (np.asarray(headers.offsets) - headers.offsets[0].as_py()).tolist()
    lists: list[list[Any] | None] = [flat[a:b] or None for a, b in pairwise(edges)]
    for i in np.flatnonzero(raw.is_valid()).tolist():
        values_of = [value for _, value in lists[i] or ()]
        lists[i] = list(zip(raw[i].as_py(), values_of, strict=True))
    return zip(keys, values, stamps, lists, strict=True)
