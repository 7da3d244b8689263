"""What librdkafka 2.16.0 knows of a record's headers and does not tell: where their bytes lie.

Its interface ends header keys at a NUL byte; a cut key looks like any other. The list of headers
has all the bytes. The places here are those of one release on a 64-bit machine. `is_known` looks
once whether all is where it should be; where it is not, whoever asks refuses the record instead.
"""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from functools import cache

import confluent_kafka
import numpy as np
import numpy.typing as npt

from resources.c import header_add, headers_destroy, headers_new

Words = npt.NDArray[np.int64]

KNOWN = "2.16.0"
"""The release of librdkafka whose memory was looked at."""

WORD = 8

# The list: two 32-bit numbers, of which the second is the count, and where the elements lie.
_ELEMENTS = WORD
# A header: its size on the wire, that of its value, that of its name, the value, and the name.
HEADER_VALUE_SIZE = WORD
HEADER_NAME_SIZE = 2 * WORD
HEADER_VALUE = 3 * WORD
HEADER_NAME = 4 * WORD


@cache
def _memory() -> Words:
    """Return the memory of this process as words; the one at address 0 left out."""
    everything = (ctypes.c_int64 * (2**44 - 1)).from_address(WORD)
    return np.frombuffer(memoryview(everything), np.int64)


def words(addresses: Words) -> Words:
    """Return the words that lie at *addresses*, which are multiples of 8 and in use."""
    found: Words = _memory()[(addresses >> 3) - 1]
    return found


def header_addresses(lists: Words) -> tuple[Words, Words]:
    """Return where each header of librdkafka's *lists* lies, and how many each list has."""
    counts = words(lists) >> 32
    ends = counts.cumsum()
    places = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return words(np.repeat(words(lists + _ELEMENTS), counts) + places * WORD), counts


@cache
def is_known() -> bool:
    """Return whether headers lie in memory as this file says."""
    if confluent_kafka.libversion()[0] != KNOWN or ctypes.sizeof(c_void_p) != WORD:
        return False
    told = [(b"", b"v"), (b"name", b""), (b"a\0b\xff", None), (b"long" * 20, b"value" * 20)]
    made = headers_new(1)
    try:
        for name, value in told:
            header_add(made, name, len(name), value, len(value or b""))
        found, counts = header_addresses(np.array([made]))
        return counts.tolist() == [len(told)] and told == [_header(int(at)) for at in found]
    finally:
        headers_destroy(made)


def _header(at: int) -> tuple[bytes, bytes | None]:
    value_size, name_size, value = words(
        at + np.array([HEADER_VALUE_SIZE, HEADER_NAME_SIZE, HEADER_VALUE])
    ).tolist()
    name = ctypes.string_at(at + HEADER_NAME, name_size)
    return name, ctypes.string_at(value, value_size) if value else None
