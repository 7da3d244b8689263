"""Digest of records that does not depend on their offsets or on how they were batched.

Each column of the content has its own streaming hash: timestamps, the lengths of keys, values and
headers (-1: null), and their bytes. A stream does not see the borders of batches, so the same
records give the same digest for every batching. Offsets are not hashed because they differ
downstream. XXH3 with 128 bits detects accidental damage; it does not resist an adversary.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import xxhash

STREAMS = (
    "timestamps",
    "key_lengths",
    "keys",
    "value_lengths",
    "values",
    "header_counts",
    "header_key_lengths",
    "header_keys",
    "header_value_lengths",
    "header_values",
)


class Digest:
    """The digest of a sequence of records: `add` the batches in order, then call `hexdigest`."""

    def __init__(self) -> None:
        self._streams = {name: xxhash.xxh3_128() for name in STREAMS}

    def add(self, batch: pa.RecordBatch) -> int:
        """Hash *batch* (columns of `records`); return the bytes of its keys, values, headers."""
        timestamps = batch.column("timestamp_ms").fill_null(-1).to_numpy(zero_copy_only=False)
        self._streams["timestamps"].update(np.ascontiguousarray(timestamps, np.int64).data)
        size = self._binary("key", batch.column("key"))
        size += self._binary("value", batch.column("value"))
        return size + self._headers(batch)

    def hexdigest(self) -> str:
        """Return the digest of all added records as 32 hexadecimal digits."""
        whole = xxhash.xxh3_128()
        for name in STREAMS:
            whole.update(self._streams[name].digest())
        return whole.hexdigest()

    def _binary(self, name: str, array: pa.Array) -> int:
        """Hash a binary or string column; return the number of its bytes."""
        lengths, data = _lengths_and_bytes(array)
        self._streams[f"{name}_lengths"].update(lengths.data)
        self._streams[f"{name}s"].update(data)
        return len(data)

    def _headers(self, batch: pa.RecordBatch) -> int:
        """Hash the headers; return their bytes. Kafka encodes null and an empty list alike."""
        headers = cast(pa.ListArray, batch.column("headers"))
        counts = np.diff(np.asarray(headers.offsets)).astype(np.int32)
        self._streams["header_counts"].update(counts.data)
        pairs = headers.flatten()
        raw = batch.column("raw_header_keys")
        keys = pairs.field("key") if raw.null_count == len(raw) else _exact_keys(headers, raw)
        size = self._binary("header_key", keys)
        return size + self._binary("header_value", pairs.field("value"))


def _exact_keys(headers: pa.ListArray, raw: pa.Array) -> pa.Array:
    """Return the keys of all *headers* as bytes, from *raw* for each row that has raw keys."""
    rows = zip(headers.to_pylist(), raw.to_pylist(), strict=True)
    return pa.array(
        [k for pairs, raw in rows for k in raw or [h["key"].encode() for h in pairs or ()]],
        pa.binary(),
    )


def _lengths_and_bytes(
    array: pa.Array,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], memoryview]:
    """Return the length of every item (-1: null) and the bytes of all items, without a copy."""
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        return np.empty(0, np.int32), memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths, memoryview(data_buffer or b"")[offsets[0] : offsets[-1]]
