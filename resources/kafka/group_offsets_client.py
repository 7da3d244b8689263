"""Reads and sets what groups committed, through librdkafka's C interface, for three defects.

librdkafka 2.16, of which confluent-kafka's administrative clients are producers inside:

* Where the answer is that a coordinator moves (the first question to a fresh cluster, any
  failover), it looks for the new one in the client's own group, which a producer does not have:
  the process dies. So a consumer asks here, one that never joins its group.
* A request whose time is over before its coordinator is found is sent all the same when it is
  found, from memory that was freed: the process dies, maybe an hour later. So the time of requests
  never is over here. Who gets no answer goes, and ends the client with all that it still wants.
* It keeps asking the coordinator that it once found as long as that broker lives. A new client
  finds the new one.

confluent-kafka also takes commit metadata for a text that ends with a NUL byte, which Java's does
not and its own does. Here metadata has its length. Nothing else may ask for a group's offsets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_void_p
from threading import Lock, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from resources.librdkafka.bindings import (
    CONSUMER,
    Partition,
    kafka_exception,
    new_client,
    new_conf,
    rd_kafka,
)
from schemas.kafka.partition import TopicPartition

# rdkafka.h: the kind of options that every administrative call takes.
_ANY_OPERATION = 0
_NO_CONSUMER_CLOSE = 0x8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE

# The longest that librdkafka takes. Nobody waits for it: a client without an answer is ended.
_MAX_TIMEOUT_MS = 3_600_000

# The group that the client belongs to by name alone: it subscribes to nothing.
CLIENT_GROUP_ID = "deltamirror.groups"

# RD_KAFKA_OFFSET_INVALID: no offset.
_NO_OFFSET = -1001


class _Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(Partition)))


class _Group(ctypes.Structure):
    """rd_kafka_group_info."""

    _fields_ = (
        ("broker_id", c_int32),
        ("broker_host", c_char_p),
        ("broker_port", c_int),
        ("group", c_char_p),
        ("err", c_int),
        ("state", c_char_p),
        ("protocol_type", c_char_p),
        ("protocol", c_char_p),
        ("members", c_void_p),
        ("member_count", c_int),
    )


class _Groups(ctypes.Structure):
    """rd_kafka_group_list."""

    _fields_ = (("groups", POINTER(_Group)), ("count", c_int))


_list_groups = rd_kafka("list_groups", c_int, c_void_p, c_char_p, POINTER(POINTER(_Groups)), c_int)
_group_list_destroy = rd_kafka("group_list_destroy", None, POINTER(_Groups))
_queue_new = rd_kafka("queue_new", c_void_p, c_void_p)
_queue_poll = rd_kafka("queue_poll", c_void_p, c_void_p, c_int)
_queue_destroy = rd_kafka("queue_destroy", None, c_void_p)
_destroy_client = rd_kafka("destroy_flags", None, c_void_p, c_int)
_list_new = rd_kafka("topic_partition_list_new", POINTER(_Partitions), c_int)
_list_add = rd_kafka("topic_partition_list_add", POINTER(Partition), c_void_p, c_char_p, c_int32)
_list_destroy = rd_kafka("topic_partition_list_destroy", None, c_void_p)
_options_new = rd_kafka("AdminOptions_new", c_void_p, c_void_p, c_int)
_options_set_timeout = rd_kafka(
    "AdminOptions_set_request_timeout", c_int, c_void_p, c_int, c_char_p, c_size_t
)
_options_set_stable = rd_kafka("AdminOptions_set_require_stable_offsets", c_void_p, c_void_p, c_int)
_options_destroy = rd_kafka("AdminOptions_destroy", None, c_void_p)
_event_error = rd_kafka("event_error", c_int, c_void_p)
_event_error_string = rd_kafka("event_error_string", c_char_p, c_void_p)
_event_destroy = rd_kafka("event_destroy", None, c_void_p)
_group_error = rd_kafka("group_result_error", c_void_p, c_void_p)
_group_partitions = rd_kafka("group_result_partitions", POINTER(_Partitions), c_void_p)
_error_code = rd_kafka("error_code", c_int, c_void_p)
_error_string = rd_kafka("error_string", c_char_p, c_void_p)


class _Operation:
    """An administrative operation on one group: its functions differ in their names alone."""

    def __init__(self, name: str) -> None:
        self.new = rd_kafka(f"{name}_new", c_void_p, c_char_p, c_void_p)
        self.destroy = rd_kafka(f"{name}_destroy", None, c_void_p)
        self.send = rd_kafka(name, None, c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_void_p)
        self.result = rd_kafka(f"event_{name}_result", c_void_p, c_void_p)
        self.groups = rd_kafka(
            f"{name}_result_groups", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
        )


_LIST = _Operation("ListConsumerGroupOffsets")
_ALTER = _Operation("AlterConsumerGroupOffsets")

CommittedOffsets = dict[TopicPartition, tuple[int, str]]


class GroupClient:
    """A client that reads and sets committed offsets of any group. Threads may share it."""

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        """Make the client. Raises KafkaException on settings that are wrong."""
        self._client = new_client(CONSUMER, new_conf({**settings, "group.id": CLIENT_GROUP_ID}))
        self._lock, self._users = Lock(), 1

    def committed_offsets(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        timeout_s: float,
        *,
        require_stable: bool = False,
    ) -> CommittedOffsets:
        """Return offset and metadata of all that *group* has committed, or of *partitions*.

        With *require_stable* a commit in an open transaction is refused as
        UNSTABLE_OFFSET_COMMIT. Raises KafkaException, at *timeout_s* at the latest.
        """
        asked = None if partitions is None else dict.fromkeys(partitions, (_NO_OFFSET, ""))
        return self._request(_LIST, group, asked, timeout_s, require_stable)

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]], timeout_s: float
    ) -> None:
        """Set the offsets of *group*. Raises KafkaException, at *timeout_s* at the latest."""
        self._request(_ALTER, group, offsets, timeout_s, require_stable=False)

    def protocol_types(self, timeout_s: float) -> dict[str, str]:
        """Return the protocol type of every group, of whatever kind, by its id.

        It is empty for groups of kinds that librdkafka does not know: Streams groups (KIP-1071),
        share groups. Its newer question leaves these out. Groups of brokers that give no answer
        are left out where others did. Raises KafkaException, at *timeout_s* at the latest.
        """
        told = POINTER(_Groups)()
        with self._borrowed():
            code = _list_groups(self._client, None, byref(told), int(timeout_s * 1000))
        if code not in (0, KafkaError._PARTIAL):
            raise KafkaException(KafkaError(code))
        try:
            found = told.contents
            groups = [found.groups[i] for i in range(found.count)]
            return {each.group.decode(): (each.protocol_type or b"").decode() for each in groups}
        finally:
            _group_list_destroy(told)

    def close(self) -> None:
        """End the client, with every request that it holds, once no thread asks it any more."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            # It waits for the client's threads, which may be waiting for a broker.
            Thread(
                target=_destroy_client,
                args=(self._client, _NO_CONSUMER_CLOSE),
                name="end of a Kafka client",
                daemon=True,
            ).start()

    @contextmanager
    def _borrowed(self) -> Iterator[None]:
        with self._lock:
            # Ended between being given to this thread and now: another one will be had.
            if self._users == 0:
                raise KafkaException(KafkaError(KafkaError._DESTROY))
            self._users += 1
        try:
            yield
        finally:
            self.close()

    def _request(
        self,
        operation: _Operation,
        group: str,
        offsets: Mapping[TopicPartition, tuple[int, str]] | None,
        timeout_s: float,
        require_stable: bool,
    ) -> CommittedOffsets:
        with ExitStack() as held:
            held.enter_context(self._borrowed())
            queue = _queue_new(self._client)
            held.callback(_queue_destroy, queue)
            options = _options_new(self._client, _ANY_OPERATION)
            held.callback(_options_destroy, options)
            _options_set_timeout(options, _MAX_TIMEOUT_MS, None, 0)
            _options_set_stable(options, int(require_stable))
            with _partition_list(offsets) as wanted:
                request = operation.new(group.encode(), wanted)
            held.callback(operation.destroy, request)
            operation.send(self._client, (c_void_p * 1)(request), 1, options, queue)
            event = _queue_poll(queue, int(timeout_s * 1000))
            if not event:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            held.callback(_event_destroy, event)
            return _read_result(operation, event)


@contextmanager
def _partition_list(offsets: Mapping[TopicPartition, tuple[int, str]] | None) -> Iterator[Any]:
    """Give librdkafka's list of *offsets* for as long as it takes to copy it."""
    if offsets is None:
        yield None
        return
    listed = _list_new(len(offsets))
    texts = [ctypes.create_string_buffer(text.encode()) for _, text in offsets.values()]
    try:
        for (each, (offset, _)), text in zip(offsets.items(), texts, strict=True):
            added = _list_add(listed, each.topic.encode(), each.partition).contents
            added.offset = offset
            if len(text) > 1:
                added.metadata, added.metadata_size = ctypes.addressof(text), len(text) - 1
        yield listed
    finally:
        # The texts are Python's: librdkafka must not free them.
        for i in range(listed.contents.count):
            listed.contents.elements[i].metadata = None
        _list_destroy(listed)


def _read_result(operation: _Operation, event: int) -> CommittedOffsets:
    """Return what the answer *event* tells. Raises the first KafkaException in it."""
    code = _event_error(event)
    if code:
        raise kafka_exception(code, _event_error_string(event))
    group = operation.groups(operation.result(event), byref(c_size_t()))[0]
    error = _group_error(group)
    if error:
        raise kafka_exception(_error_code(error), _error_string(error))
    found = _group_partitions(group).contents
    told = [found.elements[i] for i in range(found.count)]
    for each in told:
        if each.err:
            where = f"{KafkaError(each.err).str()}: {each.topic.decode()}[{each.partition}]"
            raise KafkaException(KafkaError(each.err, where))
    return {
        TopicPartition(each.topic.decode(), each.partition): (each.offset, _metadata(each))
        for each in told
        if each.offset >= 0
    }


def _metadata(committed_offsets: Partition) -> str:
    if not committed_offsets.metadata:
        return ""
    # confluent-kafka ends metadata that it writes with a NUL byte.
    text = ctypes.string_at(committed_offsets.metadata, committed_offsets.metadata_size).rstrip(
        b"\0"
    )
    return text.decode(errors="replace")
