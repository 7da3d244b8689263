"""Build Arrow arrays from raw memory addresses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.librdkafka.compiled import Int64Array, copy_bytes

BoolArray = npt.NDArray[np.bool_]

MAX_COLUMN_BYTES = 2**31 - 1  # Arrow's binary type has 32-bit offsets


def binary_array(addresses: Int64Array, lengths: Int64Array) -> pa.BinaryArray:
    """Return a column with a copy of *lengths* bytes at each of *addresses*; address 0 is null.

    Raises ValueError if the column exceeds `MAX_COLUMN_BYTES`.
    """
    ends = _end_positions(lengths)
    data = np.empty(int(ends[-1]), np.uint8)
    copy_bytes(addresses, lengths, data)
    buffers = [_validity(addresses != 0), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(addresses), buffers)


def list_array(
    kind: pa.ListType, sizes: Int64Array, there: BoolArray, values: pa.Array
) -> pa.ListArray:
    """Return lists of the next *sizes* of *values* each; rows that are not *there* are null."""
    buffers = [_validity(there), pa.py_buffer(_end_positions(sizes))]
    return pa.Array.from_buffers(kind, len(sizes), buffers, children=[values])


def _end_positions(lengths: Int64Array) -> npt.NDArray[np.int32]:
    ends = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=ends[1:])
    if ends[-1] > MAX_COLUMN_BYTES:
        raise ValueError(f"{ends[-1]:,} bytes do not fit into a column")
    return ends.astype(np.int32)


def _validity(there: BoolArray) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
