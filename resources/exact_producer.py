"""A producer for the records that confluent-kafka's would alter, on librdkafka's C interface.

confluent-kafka ends header keys at a NUL, takes none that are not UTF-8, and writes the present
time for timestamp 0. librdkafka sends any header key. It knows no timestamp 0 either: a record is
given another one, which is found in it and set to 0 before it is queued. Where it is not found, the
record is refused.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from resources.c import (
    PRODUCER,
    Partition,
    c,
    configured,
    expect_no_error,
    header_add,
    headers_destroy,
    headers_new,
    new_client,
)

Headers = Sequence[tuple[str | bytes, bytes | None]]

# rdkafka.h: rd_kafka_vtype_t and a flag.
_TOPIC, _PARTITION, _VALUE, _KEY, _OPAQUE, _FLAGS, _TIMESTAMP, _HEADERS = 1, 3, 4, 5, 6, 7, 8, 10
_COPY = 0x2

_NAME = b"timestamp 0"

# In a record that librdkafka 2.16 is about to queue: behind its public part (72 bytes), two links
# of a list and two 32-bit numbers. What lies there is compared before it is changed.
_STAMP = 96


class Delivered(NamedTuple):
    """What a delivery report tells: where the record is, its timestamp in ms, and whose it is."""

    at: int
    timestamp_ms: int
    timestamp_type: int

    def timestamp(self) -> tuple[int, int]:
        """Return type and time of the record's timestamp, as confluent-kafka's message does."""
        return self.timestamp_type, self.timestamp_ms

    def offset(self) -> int:
        """Return the record's offset, as confluent-kafka's message does."""
        return self.at


Report = Callable[[KafkaError | None, Delivered], None]


class Throttled(NamedTuple):
    """What a broker orders, as confluent-kafka's event tells it; *throttle_time* in seconds."""

    throttle_time: float


class _Memory(ctypes.Structure):
    _fields_ = (("start", c_char_p), ("size", c_size_t))


class _Choice(ctypes.Union):
    _fields_ = (
        ("text", c_char_p),
        ("small", c_int32),
        ("large", c_int64),
        ("memory", _Memory),
        ("place", c_void_p),
        ("padding", ctypes.c_char * 64),
    )


class _Argument(ctypes.Structure):
    """rd_kafka_vu_t: one property of a record to produce."""

    _fields_ = (("kind", c_int), ("of", _Choice))


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


_OnDelivery = ctypes.CFUNCTYPE(None, c_void_p, POINTER(_Message), c_void_p)
_OnThrottle = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int32, c_int, c_void_p)
_OnSend = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
_OnNew = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)

_conf_on_delivery = c("conf_set_dr_msg_cb", None, c_void_p, _OnDelivery)
_conf_on_throttle = c("conf_set_throttle_cb", None, c_void_p, _OnThrottle)
_conf_on_new = c("conf_interceptor_add_on_new", c_int, c_void_p, c_char_p, _OnNew, c_void_p)
_add_on_send = c("interceptor_add_on_send", c_int, c_void_p, c_char_p, _OnSend, c_void_p)
_destroy = c("destroy", None, c_void_p)
_timed = (c_void_p, c_int)
_init = c("init_transactions", c_void_p, *_timed)
_begin = c("begin_transaction", c_void_p, c_void_p)
_commit = c("commit_transaction", c_void_p, *_timed)
_abort = c("abort_transaction", c_void_p, *_timed)
_send_offsets = c("send_offsets_to_transaction", c_void_p, c_void_p, c_void_p, c_void_p, c_int)
_poll = c("poll", c_int, *_timed)
_flush = c("flush", c_int, *_timed)
_waiting = c("outq_len", c_int, c_void_p)
_produceva = c("produceva", c_void_p, c_void_p, POINTER(_Argument), c_size_t)
_timestamp = c("message_timestamp", c_int64, POINTER(_Message), POINTER(c_int))
_member_new = c("consumer_group_metadata_new", c_void_p, c_char_p)
_member_destroy = c("consumer_group_metadata_destroy", None, c_void_p)
_list_new = c("topic_partition_list_new", c_void_p, c_int)
_list_add = c("topic_partition_list_add", POINTER(Partition), c_void_p, c_char_p, c_int32)
_list_destroy = c("topic_partition_list_destroy", None, c_void_p)
_allocate = c("mem_malloc", c_void_p, c_void_p, c_size_t)


class ExactProducer:
    """What a slot asks of confluent-kafka's Producer, for any record. Times in seconds.

    Not thread-safe. Every method raises KafkaException, *produce* BufferError where the queue is
    full. It ends when it is let go, without waiting.
    """

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        """Make a producer with librdkafka's *settings*; progress is that of *group*.

        Of confluent-kafka's own settings it knows `throttle_cb`.
        """
        told = dict(settings)
        throttled: Callable[[Throttled], None] = told.pop("throttle_cb", lambda _: None)
        self._group = group
        self._hooks = _Hooks()
        # librdkafka holds the addresses of these alone: they are kept until it has ended.
        on_send = _OnSend(self._hooks.on_send)
        on_new = _OnNew(lambda client, *_: int(_add_on_send(client, _NAME, on_send, None)))
        on_throttle = _OnThrottle(lambda *told: throttled(Throttled(told[3] / 1000)))
        self._calls = (_OnDelivery(self._hooks.on_delivery), on_throttle, on_send, on_new)
        conf = configured(told)
        _conf_on_delivery(conf, self._calls[0])
        _conf_on_throttle(conf, on_throttle)
        _conf_on_new(conf, _NAME, on_new, None)
        self._client = new_client(PRODUCER, conf)

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client:
            # It waits for the client's threads, which may be waiting for a broker.
            Thread(
                target=_end, args=(client, self._calls), name="end of a producer", daemon=True
            ).start()

    def __len__(self) -> int:
        """Return how many records have no report yet."""
        return int(_waiting(self._client))

    def init_transactions(self, timeout: float) -> None:
        """Fence older producers and settle what they left."""
        expect_no_error(_init(self._client, _ms(timeout)))

    def begin_transaction(self) -> None:
        """Open a transaction."""
        self._hooks.reports.clear()
        expect_no_error(_begin(self._client))

    def commit_transaction(self, timeout: float) -> None:
        """Commit, when all is sent."""
        expect_no_error(_commit(self._client, _ms(timeout)))

    def abort_transaction(self, timeout: float) -> None:
        """Abort, with what still waits."""
        expect_no_error(_abort(self._client, _ms(timeout)))

    def poll(self, timeout: float) -> int:
        """Wait for reports, and give them out."""
        return int(_poll(self._client, _ms(timeout)))

    def flush(self, timeout: float) -> int:
        """Wait for all reports and give them out; return how many records have none yet."""
        _flush(self._client, _ms(timeout))
        return len(self)

    def send_offsets_to_transaction(
        self, offsets: Sequence[KafkaPartition], _: object, timeout: float
    ) -> None:
        """Make *offsets*, with their metadata, progress of the group with this transaction."""
        member, listed = _member_new(self._group.encode()), _list_new(len(offsets))
        try:
            for each in offsets:
                added = _list_add(listed, each.topic.encode(), each.partition).contents
                added.offset = each.offset
                if each.metadata:
                    # confluent-kafka, which reads it, wants the NUL; librdkafka frees it.
                    text = each.metadata.encode() + b"\0"
                    added.metadata, added.metadata_size = _allocate(None, len(text)), len(text)
                    ctypes.memmove(added.metadata, text, len(text))
            expect_no_error(_send_offsets(self._client, listed, member, _ms(timeout)))
        finally:
            _list_destroy(listed)
            _member_destroy(member)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        report: Report,
        _: Report,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        """Queue a record as it is, *timestamp* in ms; arguments in confluent-kafka's order."""
        self._hooks.reports[id(report)] = report
        made = _headers(headers) if headers else None
        if timestamp == 0:
            timestamp = self._hooks.expected = secrets.randbits(60) | 1
        arguments = (
            _argument(_TOPIC, text=topic.encode()),
            _argument(_PARTITION, small=partition),
            _argument(_FLAGS, small=_COPY),
            _argument(_VALUE, memory=_Memory(value, len(value or b""))),
            _argument(_KEY, memory=_Memory(key, len(key or b""))),
            _argument(_OPAQUE, place=id(report)),
            _argument(_TIMESTAMP, large=timestamp),
            _argument(_HEADERS, place=made),
        )
        given = (_Argument * len(arguments))(*arguments)
        try:
            expect_no_error(_produceva(self._client, given, len(arguments)))
        except KafkaException as error:
            self._hooks.expected = 0
            if made is not None:
                headers_destroy(made)
            if error.args[0].code() == KafkaError._QUEUE_FULL:
                raise BufferError(error.args[0].str()) from error
            raise
        if self._hooks.expected:
            raise KafkaException(KafkaError(KafkaError._FAIL, "timestamp 0 cannot be written"))


class _Hooks:
    """What librdkafka calls: on each record that is queued, and on each report."""

    def __init__(self) -> None:
        self.reports: dict[int, Report] = {}
        self.expected = 0

    def on_send(self, _client: int, record: int, _opaque: int) -> int:
        """Set the timestamp to 0 where it is the one that stands for it."""
        if self.expected:
            stamp = c_int64.from_address(record + _STAMP)
            if stamp.value == self.expected:
                stamp.value = self.expected = 0
        return 0

    def on_delivery(self, _client: int, message: Any, _opaque: int) -> None:  # noqa: ANN401
        """Give a record's report to whom it was promised."""
        told = message.contents
        error = KafkaError(told.err) if told.err else None
        kind = c_int()
        stamp = _timestamp(message, byref(kind))
        self.reports[told.private](error, Delivered(told.offset, stamp, kind.value))


def _end(client: int, _calls: object) -> None:
    """End *client*; its callbacks are held until it is."""
    _destroy(client)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _argument(kind: int, **of: Any) -> _Argument:  # noqa: ANN401 - C types
    return _Argument(kind, _Choice(**of))


def _headers(headers: Headers) -> int:
    """Return librdkafka's list of *headers*; the record owns it once it is queued."""
    made: int = headers_new(len(headers))
    for name, value in headers:
        key = name.encode() if isinstance(name, str) else name
        header_add(made, key, len(key), value, len(value or b""))
    return made
