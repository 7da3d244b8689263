"""The headers of records read, with every byte of their keys, as columns of the lake.

librdkafka's interface ends a header's key at a NUL. The list of headers that it holds has all the
bytes, and is read in memory (see `resources.librdkafka.headers`).
"""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from functools import cache

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.delta.arrow_schema import HEADERS, RAW_HEADER_KEYS
from resources.librdkafka.arrow_memory import binary_array, list_array
from resources.librdkafka.bindings import header_add, headers_destroy, headers_new


def read_headers(of: Int64Array) -> tuple[pa.Array, pa.Array]:
    """Return the columns `headers` and `raw_header_keys` of records.

    *of* are the addresses of their lists of headers, 0 where a record has none. The second column
    is null but where a record has a key that is not UTF-8, which the first one alters.
    """
    having = np.flatnonzero(of)
    if not len(having):
        return pa.nulls(len(of), HEADERS), pa.nulls(len(of), RAW_HEADER_KEYS)
    headers, counts = header_addresses(of[having])
    names = binary_array(headers + HEADER_NAME, read_words(headers + HEADER_NAME_SIZE))
    values = binary_array(
        read_words(headers + HEADER_VALUE), read_words(headers + HEADER_VALUE_SIZE)
    )
    sizes = np.zeros(len(of), np.int64)
    sizes[having] = counts
    keys, raw = _texts(names), np.zeros(len(of), np.bool_)
    if keys is None:
        told = names.to_pylist()
        keys = pa.array([key.decode(errors="replace") for key in told], pa.string())
        odd = [not _is_text(key) for key in told]
        raw[np.repeat(np.arange(len(of)), sizes)[odd]] = True
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    found = list_array(HEADERS, sizes, of != 0, pairs)
    if not raw.any():
        return found, pa.nulls(len(of), RAW_HEADER_KEYS)
    of_raw = names.filter(pa.array(np.repeat(raw, sizes)))
    return found, list_array(RAW_HEADER_KEYS, np.where(raw, sizes, 0), raw, of_raw)


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


Int64Array = npt.NDArray[np.int64]

KNOWN_VERSION = "2.16.0"
"""The release of librdkafka whose memory was looked at."""

WORD_SIZE = 8

# The list: two 32-bit numbers, of which the second is the count, and where the elements lie.
_ELEMENTS = WORD_SIZE
# A header: its size on the wire, that of its value, that of its name, the value, and the name.
HEADER_VALUE_SIZE = WORD_SIZE
HEADER_NAME_SIZE = 2 * WORD_SIZE
HEADER_VALUE = 3 * WORD_SIZE
HEADER_NAME = 4 * WORD_SIZE


@cache
def _memory() -> Int64Array:
    """Return the memory of this process as words; the one at address 0 left out."""
    everything = (ctypes.c_int64 * (2**44 - 1)).from_address(WORD_SIZE)
    return np.frombuffer(memoryview(everything), np.int64)


def read_words(addresses: Int64Array) -> Int64Array:
    """Return the words that lie at *addresses*, which are multiples of 8 and in use."""
    found: Int64Array = _memory()[(addresses >> 3) - 1]
    return found


def header_addresses(list_array: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return where each header of librdkafka's *list_array* lies, and how many each list has."""
    counts = read_words(list_array) >> 32
    ends = counts.cumsum()
    places = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return read_words(
        np.repeat(read_words(list_array + _ELEMENTS), counts) + places * WORD_SIZE
    ), counts


@cache
def is_layout_known() -> bool:
    """Return whether headers lie in memory as this file says."""
    if confluent_kafka.libversion()[0] != KNOWN_VERSION or ctypes.sizeof(c_void_p) != WORD_SIZE:
        return False
    told = [(b"", b"v"), (b"name", b""), (b"a\0b\xff", None), (b"long" * 20, b"value" * 20)]
    made = headers_new(1)
    try:
        for name, value in told:
            header_add(made, name, len(name), value, len(value or b""))
        found, counts = header_addresses(np.array([made]))
        return counts.tolist() == [len(told)] and told == [_read_header(int(at)) for at in found]
    finally:
        headers_destroy(made)


def _read_header(at: int) -> tuple[bytes, bytes | None]:
    value_size, name_size, value = read_words(
        at + np.array([HEADER_VALUE_SIZE, HEADER_NAME_SIZE, HEADER_VALUE])
    ).tolist()
    name = ctypes.string_at(at + HEADER_NAME, name_size)
    return name, ctypes.string_at(value, value_size) if value else None
