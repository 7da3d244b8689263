"""What confluent-kafka 2.16.1 knows of a record's headers and does not tell: where they lie.

Its interface cuts header keys at a NUL byte and fails on keys that are not UTF-8; a cut key looks
like any other. The list of headers that it got from librdkafka has all the bytes. The places here
are those of one release on a 64-bit machine. `is_known` looks once whether all is where it should
be; where it is not, whoever asks refuses the record instead.
"""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from functools import cache

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message

from resources.c import header_add, headers_destroy, headers_new

Words = npt.NDArray[np.int64]

KNOWN = ("2.16.1", "2.16.0")
"""The releases of confluent-kafka and of librdkafka in it whose memory was looked at."""

WORD = 8

# Behind the two words that begin every Python object: topic, value, key, headers that were asked
# for, and librdkafka's own list of headers as long as nobody has asked.
MESSAGE_HEADERS = 6 * WORD
_MESSAGE_FIELDS = ("topic", "value", "key", "headers")

# The list: two 32-bit numbers, of which the second is the count, and where the elements lie.
_ELEMENTS = WORD
# A header: its size on the wire, that of its value, that of its name, the value, and the name.
NAME_SIZE = 2 * WORD
NAME = 4 * WORD


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
    """Return whether records and headers lie in memory as this file says."""
    if (str(confluent_kafka.__version__), str(confluent_kafka.libversion()[0])) != KNOWN:
        return False
    return ctypes.sizeof(c_void_p) == WORD and _message_fits() and _headers_fit()


def _message_fits() -> bool:
    error = KafkaError(KafkaError._FAIL)
    message = Message(topic="t", value=b"value", key=b"key", headers=[("h", b"")], error=error)
    fields = [id(getattr(message, name)()) for name in _MESSAGE_FIELDS]
    start = id(message) + 2 * WORD
    found = words(np.arange(start, start + (len(fields) + 2) * WORD, WORD)).tolist()
    return found == [*fields, 0, id(error)] and start + len(fields) * WORD == (
        id(message) + MESSAGE_HEADERS
    )


def _headers_fit() -> bool:
    names = [b"", b"name", b"a\0b\xff", b"long" * 20]
    made = headers_new(1)
    try:
        for name in names:
            header_add(made, name, len(name), b"v", 1)
        found, counts = header_addresses(np.array([made]))
        sizes = words(found + NAME_SIZE).tolist()
        return counts.tolist() == [len(names)] and names == [
            ctypes.string_at(int(at) + NAME, size) for at, size in zip(found, sizes, strict=True)
        ]
    finally:
        headers_destroy(made)
