"""Loops over librdkafka's records, compiled: Python takes a microsecond for each call of each.

Compiled code knows a C function by a name and finds it where librdkafka's own are, so that what was
compiled once is kept on disk (numba) for the next process.
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

VU_WORDS = 9
"""Words of rd_kafka_vu_t, one property of a record to produce: its kind, and 64 bytes."""

# Where a record's properties stand, and of which kind they are (rd_kafka_vtype_t). Its flags are 0:
# librdkafka neither copies nor frees values, it reads them where they lie.
TOPIC, PARTITION, FLAGS, VALUE, KEY, OPAQUE, TIMESTAMP, HEADERS = range(8)
PROPERTIES = (2, 3, 7, 4, 5, 6, 8, 10)

TIMESTAMP_PLACEHOLDER, PLACEHOLDER_COUNT, TIMESTAMP_POSITION = 0, 1, 2
"""What `on_send` is given: the timestamp that stands for 0, how many it met, and where to look."""

REPORTED, ERRORS, FIRST_RESTAMPED = 0, 1, 2
"""What `read_reports` counts: reports, errors, and the first record stamped by the broker."""

TIMESTAMP_NOT_SET = -1
"""What `produce_rows` tells instead of an error where a timestamp was not set to 0."""

_DELIVERY_REPORT, _LOG_APPEND_TIME = 1, 2  # RD_KAFKA_EVENT_DR, RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME


def _compile_lazily(function: F) -> F:
    """Compile *function* at its first call, once for this machine where a folder can keep it."""
    try:
        return cast(F, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # there is no folder that numba may write to
        return cast(F, njit(nogil=True)(function))


class Column(NamedTuple):
    """Values from *address*: the i-th from *ends*[i] to *ends*[i + 1], null if not *is_valid*."""

    address: int
    ends: npt.NDArray[np.int32]
    is_valid: npt.NDArray[np.bool_]


def _function(name: str, signature: Any) -> Any:  # noqa: ANN401 - numba's types
    binding.add_symbol(name, address_of(name))
    return types.ExternalFunction(name, signature)


def _rdkafka(name: str, signature: Any) -> Any:  # noqa: ANN401 - numba's types
    return _function(f"rd_kafka_{name}", signature)


_int, _long, _address = types.int32, types.int64, types.intp

_timestamp = _rdkafka("message_timestamp", _long(_address, _address))
_leader_epoch = _rdkafka("message_leader_epoch", _int(_address))
_headers = _rdkafka("message_headers", _int(_address, _address))
_destroy = _rdkafka("message_destroy", types.void(_address))
_produce = _rdkafka("produceva", _address(_address, _address, _long))
_headers_new = _rdkafka("headers_new", _address(_long))
_headers_destroy = _rdkafka("headers_destroy", types.void(_address))
_header_add = _rdkafka("header_add", _int(_address, _address, _long, _address, _long))
_header_count = _rdkafka("header_cnt", _long(_address))
_header_get = _rdkafka("header_get_all", _int(_address, _long, _address, _address, _address))
_poll = _rdkafka("queue_poll", _address(_address, _int))
_event_type = _rdkafka("event_type", _int(_address))
_event_messages = _rdkafka("event_message_array", _long(_address, _address, _long))
_event_destroy = _rdkafka("event_destroy", types.void(_address))
_copy = _function("memcpy", _address(_address, _address, _long))
_length = _function("strlen", _long(_address))


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
    """Fill in what the first *count* of *messages*, addresses, are: a row of each array for each.

    *headers* are the addresses of librdkafka's lists of headers, 0 where a record has none. Rows of
    what is not a record (`err`) are left as they are but for *fields*.
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
    """Return how many headers each of librdkafka's *lists* (0: none) has, and where they lie.

    That is, for each header, the address of its name, its size, the address of the value (0: null)
    and its size. *name_size* is where from a name on its size stands; 0: it ends at its first NUL.
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
            place = row + at * 8
            _header_get(lists[i], n, place, place + 2 * step, place + 3 * step)
            if name_size:
                _copy(place + step, found[0, at] + name_size, 8)
            else:
                found[1, at] = _length(found[0, at])
            at += 1
    return counts, found


@_compile_lazily
def copy_bytes(addresses: Int64Array, lengths: Int64Array, into: npt.NDArray[np.uint8]) -> None:
    """Copy *lengths* bytes from each of *addresses* one behind the other."""
    at = into.ctypes.data
    for i in range(len(addresses)):
        _copy(at, addresses[i], lengths[i])
        at += lengths[i]


@_compile_lazily
def destroy_messages(messages: Int64Array, count: int) -> None:
    """Give the first *count* of *messages* back to librdkafka."""
    for i in range(count):
        _destroy(messages[i])


@_compile_lazily
def _headers_of(pairs: int, first: int, names: Column, values: Column) -> int:
    """Return librdkafka's list of *pairs* headers, from the *first* of *names* and *values* on."""
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
    """Queue rows from *start* on; return the first that was not queued, and librdkafka's error.

    *record* holds the properties of every row, whose report gets *ordinal*, one more for each. Row
    i's headers are *pairs*[i] to *pairs*[i + 1] of *names* and *contents*.
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
    """Compile an `on_send` now: librdkafka is given its address; kept as `_compile_lazily` does."""
    signature = _int(types.voidptr, _longs, _longs)
    try:
        return cfunc(signature, cache=True)(function)
    except RuntimeError:
        return cfunc(signature)(function)


@_compile_callback
def on_send(_client: int, record: Any, state: Any) -> int:  # noqa: ANN401 - C's pointers
    """Set the timestamp of *record*, about to be queued, to 0 where it is the one for that."""
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
    """Take all reports there are, after waiting for the first one; see `ArrowProducer.report`."""
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
    """Have the loops compiled, or read from where they are kept, before the first record comes.

    They are compiled for the very kinds of arrays that readers and producers give them; *sent* are
    examples of what `to_produce_batch` gives.
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
