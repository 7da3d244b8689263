"""librdkafka's C interface: the functions, structures and memory positions that are used here.

The library is the one that confluent-kafka has loaded. Except for the two memory positions at the
end, everything belongs to librdkafka's public interface (rdkafka.h).
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, cimpl, libversion
from confluent_kafka.admin import TopicDescription

log = logging.getLogger(__name__)

# The symbols of this extension module resolve to the librdkafka that it has loaded, and to libc.
_LIBRARY = ctypes.CDLL(cimpl.__file__)


def rd_kafka(name: str, returns: Any, *takes: Any) -> Any:  # noqa: ANN401 - C types
    """Return librdkafka's function `rd_kafka_<name>`."""
    function = _LIBRARY[f"rd_kafka_{name}"]
    function.restype, function.argtypes = returns, takes
    return function


def address_of(name: str) -> int:
    """Return the address of the function *name* of librdkafka or libc."""
    return ctypes.cast(_LIBRARY[name], c_void_p).value or 0


class Partition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class PartitionOffset(NamedTuple):
    """An offset in a list of partitions. The broker detects a truncated log by *leader_epoch*."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: bytes = b""


# rd_kafka_type_t, RD_KAFKA_EVENT_DR
PRODUCER, CONSUMER = 0, 1
DELIVERY_REPORTS = 1

OnThrottle = CFUNCTYPE(None, c_void_p, c_char_p, c_int32, c_int, c_void_p)
OnNew = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)

conf_new = rd_kafka("conf_new", c_void_p)
conf_set_events = rd_kafka("conf_set_events", None, c_void_p, c_int)
conf_set_throttle_cb = rd_kafka("conf_set_throttle_cb", None, c_void_p, OnThrottle)
conf_add_on_new = rd_kafka(
    "conf_interceptor_add_on_new", c_int, c_void_p, c_char_p, OnNew, c_void_p
)
add_on_send = rd_kafka("interceptor_add_on_send", c_int, c_void_p, c_char_p, c_void_p, c_void_p)
_conf_set = rd_kafka("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = rd_kafka("conf_destroy", None, c_void_p)
_new = rd_kafka("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
destroy = rd_kafka("destroy", None, c_void_p)
_fatal_error = rd_kafka("fatal_error", c_int, c_void_p, c_char_p, c_size_t)

queue_get_main = rd_kafka("queue_get_main", c_void_p, c_void_p)
queue_get_consumer = rd_kafka("queue_get_consumer", c_void_p, c_void_p)
queue_destroy = rd_kafka("queue_destroy", None, c_void_p)

consumer_close = rd_kafka("consumer_close", c_int, c_void_p)
poll_set_consumer = rd_kafka("poll_set_consumer", c_int, c_void_p)
consume_batch_queue = rd_kafka(
    "consume_batch_queue", ctypes.c_ssize_t, c_void_p, c_int, c_void_p, c_size_t
)
assign = rd_kafka("assign", c_int, c_void_p, c_void_p)
topic_name = rd_kafka("topic_name", c_char_p, c_void_p)
message_errstr = rd_kafka("message_errstr", c_char_p, c_void_p)
err2str = rd_kafka("err2str", c_char_p, c_int)
_bounds = (POINTER(c_int64), POINTER(c_int64))
query_watermark_offsets = rd_kafka(
    "query_watermark_offsets", c_int, c_void_p, c_char_p, c_int32, *_bounds, c_int
)

topic_new = rd_kafka("topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
topic_destroy = rd_kafka("topic_destroy", None, c_void_p)
init_transactions = rd_kafka("init_transactions", c_void_p, c_void_p, c_int)
begin_transaction = rd_kafka("begin_transaction", c_void_p, c_void_p)
commit_transaction = rd_kafka("commit_transaction", c_void_p, c_void_p, c_int)
abort_transaction = rd_kafka("abort_transaction", c_void_p, c_void_p, c_int)
send_offsets = rd_kafka(
    "send_offsets_to_transaction", c_void_p, c_void_p, c_void_p, c_void_p, c_int
)
flush = rd_kafka("flush", c_int, c_void_p, c_int)
group_metadata_new = rd_kafka("consumer_group_metadata_new", c_void_p, c_char_p)
group_metadata_destroy = rd_kafka("consumer_group_metadata_destroy", None, c_void_p)

_list_new = rd_kafka("topic_partition_list_new", c_void_p, c_int)
_list_add = rd_kafka("topic_partition_list_add", POINTER(Partition), c_void_p, c_char_p, c_int32)
_list_destroy = rd_kafka("topic_partition_list_destroy", None, c_void_p)
_set_epoch = rd_kafka("topic_partition_set_leader_epoch", None, POINTER(Partition), c_int32)
_allocate = rd_kafka("mem_malloc", c_void_p, c_void_p, c_size_t)

_headers_new = rd_kafka("headers_new", c_void_p, c_size_t)
_headers_destroy = rd_kafka("headers_destroy", None, c_void_p)
_header_add = rd_kafka(
    "header_add", c_int, c_void_p, c_char_p, ctypes.c_ssize_t, c_char_p, ctypes.c_ssize_t
)
_found = (POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t))
_header_get = rd_kafka("header_get_all", c_int, c_void_p, c_size_t, *_found)

error_code = rd_kafka("error_code", c_int, c_void_p)
_error_string = rd_kafka("error_string", c_char_p, c_void_p)
_error_is_fatal = rd_kafka("error_is_fatal", c_int, c_void_p)
_error_is_retriable = rd_kafka("error_is_retriable", c_int, c_void_p)
_error_requires_abort = rd_kafka("error_txn_requires_abort", c_int, c_void_p)
_error_destroy = rd_kafka("error_destroy", None, c_void_p)


def new_conf(settings: Mapping[str, Any]) -> int:
    """Return a configuration with *settings*. Raises KafkaException on a wrong setting."""
    message = ctypes.create_string_buffer(512)
    conf: int = conf_new()
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if _conf_set(conf, name.encode(), text.encode(), message, len(message)) != 0:
            _conf_destroy(conf)
            raise kafka_exception(KafkaError._INVALID_ARG, message.value)
    return conf


def new_client(kind: int, conf: int) -> int:
    """Return a client with *conf*, which it owns. Raises KafkaException if it cannot be created."""
    message = ctypes.create_string_buffer(512)
    client: int | None = _new(kind, conf, message, len(message))
    if not client:
        _conf_destroy(conf)
        raise kafka_exception(KafkaError._INVALID_ARG, message.value)
    return client


@contextmanager
def partition_list(offsets: Collection[PartitionOffset]) -> Iterator[int]:
    """Yield librdkafka's list of *offsets*."""
    listed = _list_new(len(offsets))
    try:
        for each in offsets:
            added = _list_add(listed, each.topic.encode(), each.partition)
            added.contents.offset = each.offset
            if each.leader_epoch is not None:
                _set_epoch(added, each.leader_epoch)
            if size := len(each.metadata):
                # The list frees it.
                address = added.contents.metadata = _allocate(None, size)
                added.contents.metadata_size = size
                ctypes.memmove(address, each.metadata, size)
        yield listed
    finally:
        _list_destroy(listed)


def kafka_exception(code: int, why: bytes) -> KafkaException:
    """Return the exception for *code* with librdkafka's text *why*."""
    return KafkaException(KafkaError(code, why.decode(errors="replace")))


def expect_success(code: int) -> None:
    """Raise KafkaException if *code* is an error; 0 is none."""
    if code:
        raise kafka_exception(code, err2str(code))


def expect_no_error(error: int | None) -> None:
    """Raise librdkafka's *error* as KafkaException, with its flags; None is no error."""
    if error:
        raised = KafkaError(
            error_code(error),
            _error_string(error).decode(errors="replace"),
            fatal=bool(_error_is_fatal(error)),
            retriable=bool(_error_is_retriable(error)),
            txn_requires_abort=bool(_error_requires_abort(error)),
        )
        _error_destroy(error)
        raise KafkaException(raised)


def expect_no_fatal_error(client: int) -> None:
    """Raise the fatal error of *client*, if it has one, as KafkaException."""
    message = ctypes.create_string_buffer(512)
    code = _fatal_error(client, message, len(message))
    if code:
        raise KafkaException(KafkaError(code, message.value.decode(errors="replace"), fatal=True))


# Memory layout of one release of librdkafka, which is not part of its public interface.

KNOWN_VERSION = "2.16.0"  # on 64-bit machines

NAME_SIZE = -16
"""Position of the size of a header's key, in bytes from the key. The public interface has no size:
it ends the key at a NUL."""

TIMESTAMP_POSITION = 96
"""Position of the timestamp in a record that is about to be queued, in bytes: after the public part
(72 bytes), two list pointers and two 32-bit numbers. It is compared before it is changed."""


@cache
def is_layout_known() -> bool:
    """Return whether librdkafka is `KNOWN_VERSION` and stores the size of header keys as known."""
    if libversion()[0] != KNOWN_VERSION or ctypes.sizeof(c_void_p) != 8:
        return False
    names = (b"", b"name", b"a\0b\xff", b"long" * 20)
    made = _headers_new(1)
    try:
        for name in names:
            _header_add(made, name, len(name), b"", 0)
        return all(_is_name(made, i, name) for i, name in enumerate(names))
    finally:
        _headers_destroy(made)


def _is_name(headers: int, row: int, name: bytes) -> bool:
    at, value, size = c_void_p(), c_void_p(), c_size_t()
    _header_get(headers, row, byref(at), byref(value), byref(size))
    address = at.value or 0
    return (
        c_int64.from_address(address + NAME_SIZE).value == len(name)
        and ctypes.string_at(address, len(name)) == name
    )


def log_limits() -> None:
    """Log which records the installed librdkafka cannot carry exactly."""
    release = f"librdkafka {libversion()[0]}"
    if is_layout_known():
        log.info("%s: every header key and timestamp is carried exactly", release)
    else:
        log.warning(
            "%s is not release %s, the only one whose memory layout deltamirror knows: a header "
            "key is cut at its first NUL, and a record with timestamp 0 stops its partition",
            *(release, KNOWN_VERSION),
        )


def release_memory() -> None:
    """Return freed memory to the operating system: Arrow's, then that of C libraries."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has malloc_trim
        _LIBRARY.malloc_trim(0)


def free_leaked_topic_id(description: TopicDescription) -> None:
    """Let the topic id of *description* be freed with it.

    confluent-kafka 2.16.1 keeps a reference to each topic id that it returns, about 100 bytes for
    each topic of a listing. It is only given back if it is there.
    """
    # Without the leak there are two references: that of the description and that of this call.
    if sys.getrefcount(description.topic_id) > 2:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(description.topic_id))


def never_free(thing: object) -> None:
    """Keep *thing* until the process ends, also after the interpreter's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
