"""Reads group offsets that other clients committed, where confluent-kafka cannot.

Its Python layer takes commit metadata for a text that ends with a NUL byte. Java's does not end
with one, so what lies behind it in memory is read along, and where that is no UTF-8 the whole
answer is lost (confluent-kafka 2.16). Here the same librdkafka, already loaded, is asked through
its C interface, and metadata is left where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from schemas.topic_partition import TopicPartition

# rdkafka.h: rd_kafka_type_t, and the kind of options that every administrative call takes.
_PRODUCER = 0
_ANY_OPERATION = 0


class _Partition(ctypes.Structure):
    """The beginning and size of rd_kafka_topic_partition_t."""

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


class _Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(_Partition)))


def committed_offsets(
    settings: Mapping[str, str | int | float | bool], group: str, timeout_s: float
) -> dict[TopicPartition, int]:
    """Return every offset that *group* has committed, asked with a client of *settings*.

    Raises KafkaException within about *timeout_s*.
    """
    library = _Library()
    with ExitStack() as held:
        client = library.client(settings)
        queue = library("rd_kafka_queue_new", c_void_p, c_void_p)(client)
        held.callback(library("rd_kafka_queue_destroy", None, c_void_p), queue)
        library.ask(client, queue, group, int(timeout_s * 1000))
        poll = library("rd_kafka_queue_poll", c_void_p, c_void_p, c_int)
        event = poll(queue, int(timeout_s * 1000) + 1000)
        if not event:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        held.callback(library("rd_kafka_event_destroy", None, c_void_p), event)
        offsets = library.offsets(event)
    # Only after a good answer: to destroy a client that got none may never end (see admin.py).
    library("rd_kafka_destroy", None, c_void_p)(client)
    return offsets


class _Library:
    """The librdkafka that confluent-kafka has loaded: its extension's own symbols lead there."""

    def __init__(self) -> None:
        self._loaded = ctypes.CDLL(cimpl.__file__)

    def __call__(self, name: str, returns: Any, *takes: Any) -> Any:  # noqa: ANN401 - C types
        """Return the C function *name* with its types."""
        function = self._loaded[name]
        function.restype, function.argtypes = returns, takes
        return function

    def client(self, settings: Mapping[str, str | int | float | bool]) -> int:
        """Return a new client handle."""
        told = ctypes.create_string_buffer(512)
        conf = self("rd_kafka_conf_new", c_void_p)()
        put = self("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if put(conf, name.encode(), text.encode(), told, len(told)) != 0:
                raise _failure(KafkaError._INVALID_ARG, told.value)
        new = self("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
        client = new(_PRODUCER, conf, told, len(told))
        if not client:
            raise _failure(KafkaError._INVALID_ARG, told.value)
        return int(client)

    def ask(self, client: int, queue: int, group: str, timeout_ms: int) -> None:
        """Send the request for every offset of *group*; the answer comes to *queue*."""
        options = self("rd_kafka_AdminOptions_new", c_void_p, c_void_p, c_int)(
            client, _ANY_OPERATION
        )
        told = ctypes.create_string_buffer(512)
        self(
            "rd_kafka_AdminOptions_set_request_timeout", c_int, c_void_p, c_int, c_char_p, c_size_t
        )(options, timeout_ms, told, len(told))
        asked = self("rd_kafka_ListConsumerGroupOffsets_new", c_void_p, c_char_p, c_void_p)(
            group.encode(), None
        )
        self(
            "rd_kafka_ListConsumerGroupOffsets",
            None,
            c_void_p,
            POINTER(c_void_p),
            c_size_t,
            c_void_p,
            c_void_p,
        )(client, (c_void_p * 1)(asked), 1, options, queue)
        self("rd_kafka_ListConsumerGroupOffsets_destroy", None, c_void_p)(asked)
        self("rd_kafka_AdminOptions_destroy", None, c_void_p)(options)

    def offsets(self, event: int) -> dict[TopicPartition, int]:
        """Return the offsets in the answer *event*."""
        code = self("rd_kafka_event_error", c_int, c_void_p)(event)
        if code:
            why = self("rd_kafka_event_error_string", c_char_p, c_void_p)(event)
            raise _failure(code, why)
        answer = self("rd_kafka_event_ListConsumerGroupOffsets_result", c_void_p, c_void_p)(event)
        count = c_size_t()
        groups = self(
            "rd_kafka_ListConsumerGroupOffsets_result_groups",
            POINTER(c_void_p),
            c_void_p,
            POINTER(c_size_t),
        )(answer, byref(count))
        error = self("rd_kafka_group_result_error", c_void_p, c_void_p)(groups[0])
        if error:
            why = self("rd_kafka_error_string", c_char_p, c_void_p)(error)
            raise _failure(self("rd_kafka_error_code", c_int, c_void_p)(error), why)
        found = self("rd_kafka_group_result_partitions", POINTER(_Partitions), c_void_p)(groups[0])
        told = [found.contents.elements[i] for i in range(found.contents.count)]
        for each in told:
            if each.err:
                raise _failure(each.err, each.topic)
        return {
            TopicPartition(each.topic.decode(), each.partition): each.offset
            for each in told
            if each.offset >= 0
        }


def _failure(code: int, why: bytes) -> KafkaException:
    return KafkaException(KafkaError(code, why.decode(errors="replace")))
