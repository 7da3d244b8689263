"""The headers of records read, with every byte of their keys, as columns of the lake.

librdkafka's interface ends a header's key at a NUL. The list of headers that it holds has all the
bytes, and is read in memory (see `resources.client_memory`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from resources.arrow import HEADERS, RAW_HEADER_KEYS
from resources.client_memory import (
    HEADER_NAME,
    HEADER_NAME_SIZE,
    HEADER_VALUE,
    HEADER_VALUE_SIZE,
    Words,
    header_addresses,
    words,
)
from resources.columns import binary, lists


def read_headers(of: Words) -> tuple[pa.Array, pa.Array]:
    """Return the columns `headers` and `raw_header_keys` of records.

    *of* are the addresses of their lists of headers, 0 where a record has none. The second column
    is null but where a record has a key that is not UTF-8, which the first one alters.
    """
    having = np.flatnonzero(of)
    if not len(having):
        return pa.nulls(len(of), HEADERS), pa.nulls(len(of), RAW_HEADER_KEYS)
    headers, counts = header_addresses(of[having])
    names = binary(headers + HEADER_NAME, words(headers + HEADER_NAME_SIZE))
    values = binary(words(headers + HEADER_VALUE), words(headers + HEADER_VALUE_SIZE))
    sizes = np.zeros(len(of), np.int64)
    sizes[having] = counts
    keys, raw = _texts(names), np.zeros(len(of), np.bool_)
    if keys is None:
        told = names.to_pylist()
        keys = pa.array([key.decode(errors="replace") for key in told], pa.string())
        odd = [not _is_text(key) for key in told]
        raw[np.repeat(np.arange(len(of)), sizes)[odd]] = True
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    found = lists(HEADERS, sizes, of != 0, pairs)
    if not raw.any():
        return found, pa.nulls(len(of), RAW_HEADER_KEYS)
    of_raw = names.filter(pa.array(np.repeat(raw, sizes)))
    return found, lists(RAW_HEADER_KEYS, np.where(raw, sizes, 0), raw, of_raw)


def _texts(names: pa.BinaryArray) -> pa.StringArray | None:
    """Return *names* as text, None where one is not UTF-8."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
