"""Read the headers of fetched records into columns of the lake.

librdkafka's interface ends a header's key at a NUL. For the release whose memory layout is known,
the size of a key is read from memory, so that every byte of the key is kept.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.delta.arrow_schema import HEADERS, RAW_HEADER_KEYS
from resources.librdkafka.arrow_memory import binary_array, list_array
from resources.librdkafka.bindings import NAME_SIZE, is_layout_known
from resources.librdkafka.compiled import Int64Array, find_headers


def read_headers(of: Int64Array) -> tuple[pa.Array, pa.Array]:
    """Return the columns `headers` and `raw_header_keys` of records.

    *of* has the addresses of their header lists, 0 for a record without headers. The second column
    is null unless a record has a key that is not UTF-8. The first column alters such a key.
    """
    if not of.any():
        return pa.nulls(len(of), HEADERS), pa.nulls(len(of), RAW_HEADER_KEYS)
    sizes, found = find_headers(of, NAME_SIZE if is_layout_known() else 0)
    names, values = binary_array(found[0], found[1]), binary_array(found[2], found[3])
    raw = np.zeros(len(of), np.bool_)
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:  # a key is not UTF-8
        keys = pa.array([key.decode(errors="replace") for key in names.to_pylist()], pa.string())
        is_altered = np.asarray(pc.not_equal(keys.cast(pa.binary()), names))
        raw[np.repeat(np.arange(len(of)), sizes)[is_altered]] = True
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    headers = list_array(HEADERS, sizes, of != 0, pairs)
    if not raw.any():
        return headers, pa.nulls(len(of), RAW_HEADER_KEYS)
    of_raw = names.filter(pa.array(np.repeat(raw, sizes)))
    return headers, list_array(RAW_HEADER_KEYS, np.where(raw, sizes, 0), raw, of_raw)
