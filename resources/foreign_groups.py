"""Reads what groups committed, through librdkafka's C interface, for two defects of the client.

confluent-kafka takes commit metadata for a text that ends with a NUL byte. Java's does not end
with one, so what lies behind it in memory is read along, and where that is no UTF-8 the whole
answer is lost (2.16). Here metadata has its length.

And its administrative clients are producers inside. Where the answer is that a coordinator moves
(the first question to a fresh cluster, any failover), librdkafka 2.16 looks for the new one in the
client's own group, which a producer does not have: the process dies of it. Here the same library,
already loaded, is asked with a consumer that never joins its group.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from threading import Lock
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from schemas.topic_partition import TopicPartition

# rdkafka.h: rd_kafka_type_t, and the kind of options that every administrative call takes.
_CONSUMER = 1
_ANY_OPERATION = 0

# The group that the client belongs to by name alone: it subscribes to nothing.
_OWN_GROUP = "deltamirror.groups"

_clients: dict[tuple[object, ...], int] = {}
_making = Lock()


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
    settings: Mapping[str, str | int | float | bool],
    group: str,
    timeout_s: float,
    partitions: Collection[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, tuple[int, bytes]]:
    """Return offset and metadata of all that *group* has committed, or of *partitions*.

    With *require_stable* a commit in an open transaction is refused as UNSTABLE_OFFSET_COMMIT.
    Raises KafkaException within about *timeout_s*.
    """
    library = _Library()
    client = _kept_client(library, settings)
    with ExitStack() as held:
        queue = library("rd_kafka_queue_new", c_void_p, c_void_p)(client)
        held.callback(library("rd_kafka_queue_destroy", None, c_void_p), queue)
        timeout_ms = int(timeout_s * 1000)
        library.ask(client, queue, group, partitions, timeout_ms, require_stable)
        poll = library("rd_kafka_queue_poll", c_void_p, c_void_p, c_int)
        event = poll(queue, timeout_ms + 1000)
        if not event:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        held.callback(library("rd_kafka_event_destroy", None, c_void_p), event)
        return library.offsets(event)


def _kept_client(library: _Library, settings: Mapping[str, str | int | float | bool]) -> int:
    """Return this process's one client with *settings*, never destroyed (see admin.py: why)."""
    key = (os.getpid(), *sorted(settings.items()))
    with _making:
        if key not in _clients:
            _clients[key] = library.client({**settings, "group.id": _OWN_GROUP})
        return _clients[key]


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
        client = new(_CONSUMER, conf, told, len(told))
        if not client:
            raise _failure(KafkaError._INVALID_ARG, told.value)
        return int(client)

    def ask(
        self,
        client: int,
        queue: int,
        group: str,
        partitions: Collection[TopicPartition] | None,
        timeout_ms: int,
        require_stable: bool,
    ) -> None:
        """Send the request for offsets of *group*; the answer comes to *queue*."""
        options = self("rd_kafka_AdminOptions_new", c_void_p, c_void_p, c_int)(
            client, _ANY_OPERATION
        )
        told = ctypes.create_string_buffer(512)
        self(
            "rd_kafka_AdminOptions_set_request_timeout", c_int, c_void_p, c_int, c_char_p, c_size_t
        )(options, timeout_ms, told, len(told))
        self("rd_kafka_AdminOptions_set_require_stable_offsets", c_void_p, c_void_p, c_int)(
            options, int(require_stable)
        )
        wanted = None if partitions is None else self.list(partitions)
        asked = self("rd_kafka_ListConsumerGroupOffsets_new", c_void_p, c_char_p, c_void_p)(
            group.encode(), wanted
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
        if wanted is not None:
            self("rd_kafka_topic_partition_list_destroy", None, c_void_p)(wanted)

    def list(self, partitions: Collection[TopicPartition]) -> int:
        """Return a new list of *partitions*, to be destroyed."""
        made = self("rd_kafka_topic_partition_list_new", c_void_p, c_int)(len(partitions))
        add = self("rd_kafka_topic_partition_list_add", c_void_p, c_void_p, c_char_p, c_int32)
        for each in partitions:
            add(made, each.topic.encode(), each.partition)
        return int(made)

    def offsets(self, event: int) -> dict[TopicPartition, tuple[int, bytes]]:
        """Return the offsets and metadata in the answer *event*."""
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
            TopicPartition(each.topic.decode(), each.partition): (
                each.offset,
                ctypes.string_at(each.metadata, each.metadata_size) if each.metadata else b"",
            )
            for each in told
            if each.offset >= 0
        }


def _failure(code: int, why: bytes) -> KafkaException:
    return KafkaException(KafkaError(code, why.decode(errors="replace")))
