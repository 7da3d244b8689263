"""Read and set the committed offsets of consumer groups through librdkafka's C interface.

Delete when fixed: `AdminClient.list_consumer_group_offsets` and `alter_consumer_group_offsets` do
the same once confluent-kafka and librdkafka (2.16 here) are free of these defects:

* librdkafka #5040: NOT_COORDINATOR in a response (the first request to a fresh cluster, a failover)
  kills every process whose client is not a consumer. So this client is a consumer. It joins no
  group.
* librdkafka #4605: a request whose timeout ends before its coordinator is found kills the process
  when the coordinator is found. So requests do not time out here: the caller drops the client.
* librdkafka #5511: a coordinator stays cached while its broker lives, and longer. A new client
  finds the new one.
* confluent-kafka ends commit metadata with a NUL byte and expects one. Java writes none.

docs/decisions/0009 has the measurements and the alternatives. No other code may request committed
offsets.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from threading import Thread

from confluent_kafka import KafkaError, KafkaException

from resources.librdkafka import bindings
from resources.librdkafka.bindings import Partition, PartitionOffset, partition_list, rd_kafka
from schemas.kafka.partition import TopicPartition

_ANY_OPERATION = 0  # RD_KAFKA_ADMIN_OP_ANY, the options of every administrative call
_NO_CONSUMER_CLOSE = 0x8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
_NO_OFFSET = -1001  # RD_KAFKA_OFFSET_INVALID


# The longest request timeout that librdkafka takes. Callers wait for less and drop the client.
_MAX_TIMEOUT_MS = 3_600_000

CLIENT_GROUP_ID = "deltamirror.groups"  # never joined: the client subscribes to no topic

CommittedOffsets = dict[TopicPartition, tuple[int, str]]
"""Committed offset and metadata of each partition."""


class _Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(Partition)))


_destroy_client = rd_kafka("destroy_flags", None, c_void_p, c_int)
_queue_new = rd_kafka("queue_new", c_void_p, c_void_p)
_queue_poll = rd_kafka("queue_poll", c_void_p, c_void_p, c_int)
_options_new = rd_kafka("AdminOptions_new", c_void_p, c_void_p, c_int)
_options_set_timeout = rd_kafka(
    "AdminOptions_set_request_timeout", c_int, c_void_p, c_int, c_char_p, c_size_t
)
_options_set_stable = rd_kafka("AdminOptions_set_require_stable_offsets", c_void_p, c_void_p, c_int)
_options_destroy = rd_kafka("AdminOptions_destroy", None, c_void_p)
_event_error = rd_kafka("event_error", c_int, c_void_p)
_event_destroy = rd_kafka("event_destroy", None, c_void_p)
_group_error = rd_kafka("group_result_error", c_void_p, c_void_p)
_group_partitions = rd_kafka("group_result_partitions", POINTER(_Partitions), c_void_p)


class _Operation:
    """Administrative operation on one group. The operations differ only in their names."""

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


class GroupClient:
    """Client that reads and sets committed offsets of any group. Threads may share it.

    When it is garbage-collected, the client and its open requests end in a thread.
    """

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        """Create the client. Raises KafkaException on a wrong setting."""
        conf = bindings.new_conf({**settings, "group.id": CLIENT_GROUP_ID})
        self._client = bindings.new_client(bindings.CONSUMER, conf)
        weakref.finalize(self, _end, self._client).atexit = False

    def committed_offsets(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        timeout_s: float,
        *,
        require_stable: bool = False,
    ) -> CommittedOffsets:
        """Return offset and metadata of *partitions*, or of all that *group* has committed.

        With *require_stable*, a commit in an open transaction is an error
        (UNSTABLE_OFFSET_COMMIT). Raises KafkaException, after *timeout_s* at the latest.
        """
        wanted = None
        if partitions is not None:
            wanted = [PartitionOffset(p.topic, p.partition, _NO_OFFSET) for p in partitions]
        return self._request(_LIST, group, wanted, timeout_s, require_stable)

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]], timeout_s: float
    ) -> None:
        """Set the offsets of *group*. Raises KafkaException, after *timeout_s* at the latest."""
        wanted = [
            PartitionOffset(p.topic, p.partition, offset, metadata=metadata.encode())
            for p, (offset, metadata) in offsets.items()
        ]
        self._request(_ALTER, group, wanted, timeout_s, require_stable=False)

    def _request(
        self,
        operation: _Operation,
        group: str,
        offsets: Collection[PartitionOffset] | None,
        timeout_s: float,
        require_stable: bool,
    ) -> CommittedOffsets:
        with ExitStack() as held:
            queue = _queue_new(self._client)
            held.callback(bindings.queue_destroy, queue)
            options = _options_new(self._client, _ANY_OPERATION)
            held.callback(_options_destroy, options)
            _options_set_timeout(options, _MAX_TIMEOUT_MS, None, 0)
            _options_set_stable(options, int(require_stable))
            # Without a list, all partitions with a commit are requested.
            listed = None if offsets is None else held.enter_context(partition_list(offsets))
            request = operation.new(group.encode(), listed)
            held.callback(operation.destroy, request)
            operation.send(self._client, (c_void_p * 1)(request), 1, options, queue)
            event = _queue_poll(queue, int(timeout_s * 1000))
            if not event:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            held.callback(_event_destroy, event)
            return _read_result(operation, event)


def _end(client: int) -> None:
    # Closing waits for the client's threads, which may wait for a broker.
    ending = (client, _NO_CONSUMER_CLOSE)
    Thread(target=_destroy_client, args=ending, name="end of a Kafka client", daemon=True).start()


def _read_result(operation: _Operation, event: int) -> CommittedOffsets:
    """Return the offsets in the response *event*. Raises the first error in it."""
    if code := _event_error(event):
        raise KafkaException(KafkaError(code))
    group = operation.groups(operation.result(event), byref(c_size_t()))[0]
    if error := _group_error(group):
        raise KafkaException(KafkaError(bindings.error_code(error)))
    found = _group_partitions(group).contents
    offsets = {}
    for each in found.elements[: found.count]:
        topic = each.topic.decode()
        if each.err:
            where = f"{KafkaError(each.err).str()}: {topic}[{each.partition}]"
            raise KafkaException(KafkaError(each.err, where))
        if each.offset >= 0:
            # confluent-kafka ends metadata that it writes with a NUL byte.
            held = ctypes.string_at(each.metadata, each.metadata_size).rstrip(b"\0")
            at = TopicPartition(topic, each.partition)
            offsets[at] = (each.offset, held.decode(errors="replace"))
    return offsets
