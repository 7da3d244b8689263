"""Convert staged rows to addresses and lengths, the input of `compiled.produce_rows`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.delta.arrow_schema import ROW_SCHEMA
from resources.librdkafka.compiled import Column

PRODUCE_SCHEMA = pa.schema([field.with_nullable(True) for field in ROW_SCHEMA])
"""Schema of rows to send: the columns of `records`, each of them nullable."""

_NOTHING = np.zeros(1, np.uint8)  # memory of values that are empty but not null


class ProduceColumns(NamedTuple):
    """Rows to send: row i's headers are *pairs*[i] to *pairs*[i + 1] of *names* and *contents*."""

    keys: Column
    values: Column
    stamps: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int32]
    names: Column
    contents: Column


@dataclass(frozen=True)
class ProduceBatch:
    """Rows to send, and the objects that own the memory of *columns*."""

    columns: ProduceColumns
    buffers: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.columns.stamps)


def to_produce_batch(rows: pa.RecordBatch) -> ProduceBatch:
    """Return *rows*, which have columns of `records`, as a batch to send."""
    headers, raw = rows.column("headers"), rows.column("raw_header_keys")
    stamps = rows.column("timestamp_ms").to_numpy(zero_copy_only=False).astype(np.int64)
    if headers.null_count == len(headers):
        names = contents = pa.array([], pa.binary())
        pairs = np.zeros(len(headers) + 1, np.int32)
    else:
        flat, edges = headers.flatten(), np.asarray(headers.offsets)
        names = flat.field("key") if raw.null_count == len(raw) else _exact_keys(headers, raw)
        contents = flat.field("value")
        pairs = (edges - edges[0]).astype(np.int32)
    keys, values = column(rows.column("key")), column(rows.column("value"))
    columns = ProduceColumns(keys, values, stamps, pairs, column(names), column(contents))
    return ProduceBatch(columns, (rows, names, contents))


def column(array: pa.Array) -> Column:
    """Return the memory of the values of *array*, which is binary or text."""
    _, ends, data = array.buffers()
    there = np.ones(len(array), np.bool_)
    if array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False)
    if ends is None:
        return Column(_NOTHING.ctypes.data, np.zeros(1, np.int32), there)
    counted = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    address = data.address if data is not None and data.size else _NOTHING.ctypes.data
    return Column(address, counted, there)


def _exact_keys(headers: pa.ListArray, raw: pa.ListArray) -> pa.Array:
    """Return the keys of all *headers* as bytes; keys in *raw* replace those in *headers*."""
    rows = zip(headers.to_pylist(), raw.to_pylist(), strict=True)
    keys = (exact or [pair["key"].encode() for pair in pairs or ()] for pairs, exact in rows)
    return cast(pa.Array, pa.array(chain.from_iterable(keys), pa.binary()))
