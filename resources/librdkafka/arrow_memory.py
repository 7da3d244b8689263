"""What lies anywhere in memory, as Arrow's columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.librdkafka.compiled import gather

Words = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_BYTES = 2**31 - 1
"""What one column holds: Arrow's binary counts in 32 bits."""


def binary(addresses: Words, lengths: Words) -> pa.BinaryArray:
    """Return what lies at *addresses*; address 0 is null. Raises ValueError over `MOST_BYTES`."""
    ends = _ends(lengths)
    data = np.empty(int(ends[-1]), np.uint8)
    gather(addresses, lengths, data)
    buffers = [_validity(addresses != 0), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(addresses), buffers)


def lists(kind: pa.ListType, sizes: Words, there: Flags, values: pa.Array) -> pa.ListArray:
    """Return lists of the next *sizes* of *values* each, null where they are not *there*."""
    buffers = [_validity(there), pa.py_buffer(_ends(sizes))]
    return pa.Array.from_buffers(kind, len(sizes), buffers, children=[values])


def _ends(lengths: Words) -> npt.NDArray[np.int32]:
    ends = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=ends[1:])
    if ends[-1] > MOST_BYTES:
        raise ValueError(f"{ends[-1]:,} do not fit into a column")
    return ends.astype(np.int32)


def _validity(there: Flags) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
