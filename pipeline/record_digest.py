"""A digest over records that does not depend on where they lie or how they were batched.

Each column of the content goes through its own hash as a stream: timestamps, the lengths of keys,
values and headers (-1: null), and their bytes. Streams know no batches, so two readings of the
same records give the same digest however they were cut. Offsets are left out: they differ
downstream. XXH3 with 128 bits: it finds accidents, it is not meant against an adversary.
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
    """The digest of records in order; `add` batches, then ask `hexdigest`."""

    def __init__(self) -> None:
        self._streams = {name: xxhash.xxh3_128() for name in STREAMS}

    def add(self, batch: pa.RecordBatch) -> int:
        """Take in *batch* (columns of `records`); return the bytes of its keys, values, headers."""
        timestamps = batch.column("timestamp_ms").fill_null(-1)
        self._streams["timestamps"].update(_fixed(timestamps, np.int64).data)
        size = self._binary("key", batch.column("key"))
        size += self._binary("value", batch.column("value"))
        return size + self._headers(batch)

    def hexdigest(self) -> str:
        """Return 32 hexadecimal digits over everything taken in."""
        whole = xxhash.xxh3_128()
        for name in STREAMS:
            whole.update(self._streams[name].digest())
        return whole.hexdigest()

    def _binary(self, name: str, array: pa.Array) -> int:
        """Take in a binary or string column; return its bytes."""
        lengths, data = _lengths_and_bytes(array)
        self._streams[f"{name}_lengths"].update(lengths.data)
        self._streams[f"{name}s"].update(data)
        return len(data)

    def _headers(self, batch: pa.RecordBatch) -> int:
        """Take in the headers; return the bytes of their keys and values.

        No headers and an empty list are one thing on the wire, and so here.
        """
        headers = cast(pa.ListArray, batch.column("headers"))
        counts = np.diff(np.asarray(headers.offsets)).astype(np.int32)
        self._streams["header_counts"].update(counts.data)
        pairs = headers.flatten()
        raw = batch.column("raw_header_keys")
        keys = pairs.field("key") if raw.null_count == len(raw) else _exact_keys(headers, raw)
        size = self._binary("header_key", keys)
        return size + self._binary("header_value", pairs.field("value"))


def _exact_keys(headers: pa.ListArray, raw: pa.Array) -> pa.Array:
    """Return the keys of all *headers* as bytes, those of *raw* where it has them."""
    rows = zip(headers.to_pylist(), raw.to_pylist(), strict=True)
    return pa.array(
        [k for pairs, raw in rows for k in raw or [h["key"].encode() for h in pairs or ()]],
        pa.binary(),
    )


def _fixed(array: pa.Array, dtype: type[np.int64]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype(dtype, copy=False))


def _lengths_and_bytes(
    array: pa.Array,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], memoryview]:
    """Return the length of every item (-1: null) and the bytes of all, without copying them."""
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        return np.empty(0, np.int32), memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    data = memoryview(data_buffer) if data_buffer is not None else memoryview(b"")
    return lengths, data[offsets[0] : offsets[-1]]
