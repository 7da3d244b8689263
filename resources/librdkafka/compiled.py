"""Compiled loops over librdkafka's records. In Python each call of a C function takes 1 µs.

Compiled code refers to a C function by its symbol name, not by its address. So numba can keep the
compiled code on disk for the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba import carray, cfunc, njit, typeof, types  # type: ignore[attr-defined]

from resources.librdkafka.bindings import address_of

Int64Array = npt.NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

MESSAGE = np.dtype(
    [
        ("err", np.int32),
        ("topic", np.int64),
        ("partition", np.int32),
        ("payload", np.int64),
        ("len", np.int64),
        ("key", np.int64),
        ("key_len", np.int64),
        ("offset", np.int64),
        ("private", np.int64),
    ],
    align=True,
)
"""rd_kafka_message_t, with addresses as numbers."""

_MESSAGE_SIZE = MESSAGE.itemsize

# Index and type (rd_kafka_vtype_t) of a record's properties. The flags are 0, so librdkafka neither
# copies nor frees values. A property (rd_kafka_vu_t) has 9 words of 64 bits: its type and 64 bytes.
VU_WORDS = 9
TOPIC, PARTITION, FLAGS, VALUE, KEY, OPAQUE, TIMESTAMP, HEADERS = range(8)
PROPERTIES = (2, 3, 7, 4, 5, 6, 8, 10)

# State of `on_send`: placeholder for timestamp 0, number of those replaced, word to compare.
TIMESTAMP_PLACEHOLDER, PLACEHOLDER_COUNT, TIMESTAMP_POSITION = 0, 1, 2

# Results of `read_reports`: reports, errors, and the first record stamped by the broker.
REPORTED, ERRORS, FIRST_RESTAMPED = 0, 1, 2

TIMESTAMP_NOT_SET = -1  # error of `produce_rows` if a timestamp could not be set to 0

_DELIVERY_REPORT, _LOG_APPEND_TIME = 1, 2  # RD_KAFKA_EVENT_DR, RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME


def _compile_lazily(function: F) -> F:
    """Compile *function* at its first call; keep the code on disk if a folder is writable."""
    try:
        return cast(F, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba finds no writable folder
        return cast(F, njit(nogil=True)(function))


class Column(NamedTuple):
    """Values at *address*: the i-th is at *ends*[i] to *ends*[i + 1], null if not *is_valid*[i]."""

    address: int
    ends: npt.NDArray[np.int32]
    is_valid: npt.NDArray[np.bool_]


def _function(name: str, signature: Any, prefix: str = "rd_kafka_") -> Any:  # noqa: ANN401 - numba's types
    binding.add_symbol(prefix + name, address_of(prefix + name))
    return types.ExternalFunction(prefix + name, signature)


_int, _long, _address = types.int32, types.int64, types.intp

_timestamp = _function("message_timestamp", _long(_address, _address))
_leader_epoch = _function("message_leader_epoch", _int(_address))
_headers = _function("message_headers", _int(_address, _address))
_destroy = _function("message_destroy", types.void(_address))
_produce = _function("produceva", _address(_address, _address, _long))
_headers_new = _function("headers_new", _address(_long))
_headers_destroy = _function("headers_destroy", types.void(_address))
_header_add = _function("header_add", _int(_address, _address, _long, _address, _long))
_header_count = _function("header_cnt", _long(_address))
_header_get = _function("header_get_all", _int(_address, _long, _address, _address, _address))
_poll = _function("queue_poll", _address(_address, _int))
_event_type = _function("event_type", _int(_address))
_event_messages = _function("event_message_array", _long(_address, _address, _long))
_event_destroy = _function("event_destroy", types.void(_address))
_copy = _function("memcpy", _address(_address, _address, _long), prefix="")
_length = _function("strlen", _long(_address), prefix="")


@_compile_lazily
def read_messages(
    messages: Int64Array,
    count: int,
    fields: npt.NDArray[np.void],
    stamps: Int64Array,
    kinds: npt.NDArray[np.int32],
    epochs: npt.NDArray[np.int32],
    headers: Int64Array,
) -> None:
    """Read the first *count* of *messages* (addresses) into one row of each output array.

    *headers* gets the addresses of librdkafka's header lists, 0 for a record without headers. For a
    message that is not a record (`err` is set) only *fields* is written.
    """
    for i in range(count):
        _copy(fields.ctypes.data + i * _MESSAGE_SIZE, messages[i], _MESSAGE_SIZE)
        if fields[i].err == 0:
            stamps[i] = _timestamp(messages[i], kinds.ctypes.data + i * 4)
            epochs[i] = _leader_epoch(messages[i])
            if _headers(messages[i], headers.ctypes.data + i * 8) != 0:
                headers[i] = 0


@_compile_lazily
def find_headers(lists: Int64Array, name_size: int) -> tuple[Int64Array, Int64Array]:
    """Return the number of headers of each of librdkafka's *lists* (0: none), and the headers.

    The second result has four rows: address and size of each name, address (0: null) and size of
    each value. *name_size* is the position of a name's size, in bytes from the name. If it is 0, a
    name ends at its first NUL.
    """
    counts = np.zeros(len(lists), np.int64)
    for i in range(len(lists)):
        if lists[i]:
            counts[i] = _header_count(lists[i])
    found = np.zeros((4, counts.sum()), np.int64)
    row, at = found.ctypes.data, 0
    step = found.shape[1] * 8
    for i in range(len(lists)):
        for n in range(counts[i]):
            cell = row + at * 8
            _header_get(lists[i], n, cell, cell + 2 * step, cell + 3 * step)
            if name_size:
                _copy(cell + step, found[0, at] + name_size, 8)
            else:
                found[1, at] = _length(found[0, at])
            at += 1
    return counts, found


@_compile_lazily
def copy_bytes(addresses: Int64Array, lengths: Int64Array, into: npt.NDArray[np.uint8]) -> None:
    """Copy *lengths* bytes from each of *addresses* to *into*, one after the other."""
    at = into.ctypes.data
    for i in range(len(addresses)):
        _copy(at, addresses[i], lengths[i])
        at += lengths[i]


@_compile_lazily
def destroy_messages(messages: Int64Array, count: int) -> None:
    """Free the first *count* of *messages*."""
    for i in range(count):
        _destroy(messages[i])


@_compile_lazily
def _headers_of(pairs: int, first: int, names: Column, values: Column) -> int:
    """Return a header list of *pairs* headers, from index *first* of *names* and *values*."""
    made = _headers_new(pairs)
    for i in range(first, first + pairs):
        name, value = names.address + names.ends[i], values.address + values.ends[i]
        size = values.ends[i + 1] - values.ends[i]
        if not values.is_valid[i]:
            value, size = 0, 0
        _header_add(made, name, names.ends[i + 1] - names.ends[i], value, size)
    return int(made)


@_compile_lazily
def produce_rows(
    client: int,
    record: Int64Array,
    hook: Int64Array,
    start: int,
    ordinal: int,
    keys: Column,
    values: Column,
    stamps: Int64Array,
    pairs: npt.NDArray[np.int32],
    names: Column,
    contents: Column,
) -> tuple[int, int]:
    """Queue rows from *start*; return the first row that was not queued, and librdkafka's error.

    *record* holds the properties of a row. The report of row *start* carries *ordinal*, and each
    next one a number higher by 1. Row i's headers are *pairs*[i] to *pairs*[i + 1] of *names* and
    *contents*.
    """
    for i in range(start, len(stamps)):
        record[VALUE * VU_WORDS + 1] = values.address + values.ends[i] if values.is_valid[i] else 0
        record[VALUE * VU_WORDS + 2] = values.ends[i + 1] - values.ends[i]
        record[KEY * VU_WORDS + 1] = keys.address + keys.ends[i] if keys.is_valid[i] else 0
        record[KEY * VU_WORDS + 2] = keys.ends[i + 1] - keys.ends[i]
        record[OPAQUE * VU_WORDS + 1] = ordinal + i - start
        record[TIMESTAMP * VU_WORDS + 1] = stamps[i] if stamps[i] else hook[TIMESTAMP_PLACEHOLDER]
        count, headers, met = pairs[i + 1] - pairs[i], 0, hook[PLACEHOLDER_COUNT]
        if count:
            headers = _headers_of(count, pairs[i], names, contents)
            record[HEADERS * VU_WORDS + 1] = headers
        error = _produce(client, record.ctypes.data, HEADERS + 1 if count else HEADERS)
        if error:
            if headers:
                _headers_destroy(headers)
            return i, error
        if stamps[i] == 0 and hook[PLACEHOLDER_COUNT] == met:
            return i, TIMESTAMP_NOT_SET
    return len(stamps), 0


_longs = types.CPointer(_long)  # type: ignore[no-untyped-call]


def _compile_callback(function: Any) -> Any:  # noqa: ANN401 - numba's types
    """Compile *function* now, because librdkafka gets its address; keep the code on disk."""
    signature = _int(types.voidptr, _longs, _longs)
    try:
        return cfunc(signature, cache=True)(function)
    except RuntimeError:
        return cfunc(signature)(function)


@_compile_callback
def on_send(_client: int, record: Any, state: Any) -> int:  # noqa: ANN401 - C's pointers
    """Set the timestamp of *record*, which is about to be queued, to 0 if it is the placeholder."""
    hook = carray(state, 3)
    stamp = carray(record, hook[TIMESTAMP_POSITION] + 1)
    if stamp[hook[TIMESTAMP_POSITION]] == hook[TIMESTAMP_PLACEHOLDER]:
        stamp[hook[TIMESTAMP_POSITION]] = 0
        hook[PLACEHOLDER_COUNT] += 1
    return 0


@_compile_lazily
def read_reports(
    queue: int,
    timeout_ms: int,
    messages: Int64Array,
    fields: npt.NDArray[np.void],
    first: int,
    offsets: Int64Array,
    counts: Int64Array,
    errors: npt.NDArray[np.int32],
    blamed: Int64Array,
) -> None:
    """Read all available reports after waiting for the first; see `ArrowProducer.poll_reports`."""
    kind = np.zeros(1, np.int32)
    event = _poll(queue, timeout_ms)
    while event:
        if _event_type(event) == _DELIVERY_REPORT:
            got = _event_messages(event, messages.ctypes.data, len(messages))
            while got:
                for i in range(got):
                    _copy(fields.ctypes.data, messages[i], _MESSAGE_SIZE)
                    at = fields[0].private - first
                    if at < 0:
                        continue
                    counts[REPORTED] += 1
                    if fields[0].err:
                        if counts[ERRORS] < len(errors):
                            errors[counts[ERRORS]], blamed[counts[ERRORS]] = fields[0].err, at
                        counts[ERRORS] += 1
                        continue
                    offsets[at] = fields[0].offset
                    if counts[FIRST_RESTAMPED] < 0:
                        _timestamp(messages[i], kind.ctypes.data)
                        if kind[0] == _LOG_APPEND_TIME:
                            counts[FIRST_RESTAMPED] = at
                got = _event_messages(event, messages.ctypes.data, len(messages))
        _event_destroy(event)
        event = _poll(queue, 0)


def compile_all(sent: Iterable[tuple[Any, ...]]) -> None:
    """Compile the loops, or read them from disk, before the first record arrives.

    They are compiled for the types of arrays that consumers and producers use. *sent* has examples
    of the columns that `to_produce_batch` returns.
    """
    words, numbers = np.zeros(2, np.int64), np.zeros(2, np.int32)
    messages, data = np.zeros(2, MESSAGE), np.zeros(0, np.uint8)
    examples: list[tuple[Any, ...]] = [
        (read_messages, words, 0, messages, words, numbers, numbers, words),
        (find_headers, words, 0),
        (copy_bytes, messages["key"], messages["key_len"], data),
        (copy_bytes, words, words, data),
        (destroy_messages, words, 0),
        (read_reports, 0, 0, words, messages, 0, words, words, numbers, words),
        *((produce_rows, 0, words, words, 0, 0, *columns) for columns in sent),
    ]
    for function, *arguments in examples:
        function.compile(tuple(typeof(each) for each in arguments))  # type: ignore[no-untyped-call]
