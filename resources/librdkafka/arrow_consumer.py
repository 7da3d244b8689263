"""A consumer of assigned partitions whose records come as columns, on librdkafka's C interface.

confluent-kafka makes six Python objects of a record, and they are taken apart again to be staged:
four fifths of what staging takes. Here a record's bytes go from librdkafka's memory to Arrow's.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from resources.librdkafka import compiled as loops
from resources.librdkafka.arrow_memory import MAX_COLUMN_BYTES, binary_array
from resources.librdkafka.bindings import (
    CONSUMER,
    Partition,
    kafka_exception,
    new_client,
    new_conf,
    rd_kafka,
)
from resources.librdkafka.headers import is_layout_known, read_headers

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_destroy = rd_kafka("destroy", None, c_void_p)
_close = rd_kafka("consumer_close", c_int, c_void_p)
_poll_consumer_only = rd_kafka("poll_set_consumer", c_int, c_void_p)
_queue_of = rd_kafka("queue_get_consumer", c_void_p, c_void_p)
_queue_destroy = rd_kafka("queue_destroy", None, c_void_p)
_consume = rd_kafka("consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
_assign = rd_kafka("assign", c_int, c_void_p, c_void_p)
_list_new = rd_kafka("topic_partition_list_new", c_void_p, c_int)
_list_add = rd_kafka("topic_partition_list_add", POINTER(Partition), c_void_p, c_char_p, c_int32)
_list_destroy = rd_kafka("topic_partition_list_destroy", None, c_void_p)
_set_epoch = rd_kafka("topic_partition_set_leader_epoch", None, POINTER(Partition), c_int32)
_topic_name = rd_kafka("topic_name", c_char_p, c_void_p)
_watermarks = rd_kafka(
    "query_watermark_offsets",
    c_int,
    c_void_p,
    c_char_p,
    c_int32,
    POINTER(c_int64),
    POINTER(c_int64),
    c_int,
)
_error_text = rd_kafka("err2str", c_char_p, c_int)

FETCHED_COLUMNS = (
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "leader_epoch",
    "key",
    "value",
    "headers",
    "raw_header_keys",
)
"""What is known of a record, by its name in the table `records`."""

NO_EPOCH = -1
"""The leader's epoch of records in message formats 0 and 1."""


@dataclass(frozen=True)
class StartPosition:
    """Where to read a partition from; *leader_epoch* lets the broker find a log that was cut."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True)
class FetchedRecords:
    """Records of one partition in the order of its log: `FETCHED_COLUMNS`, a row for each.

    Of those from row *readable* on some have headers that this client cannot tell.
    """

    topic: str
    partition: int
    rows: pa.RecordBatch
    readable: int


@dataclass(frozen=True)
class PartitionEvent:
    """What librdkafka says of a partition besides its records: an error or its end (*code*)."""

    topic: str
    partition: int
    code: int
    offset: int
    why: str


class ArrowConsumer:
    """A consumer that is told what to read. Not thread-safe; times in seconds."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make a consumer with librdkafka's *settings*. Raises KafkaException on wrong ones."""
        self._client = new_client(CONSUMER, new_conf(settings))
        _poll_consumer_only(self._client)
        self._queue = _queue_of(self._client)
        self._close_client = weakref.finalize(self, _close_client, self._client, self._queue)
        self._buffer = np.empty(0, np.int64)

    def assign(self, starts: Sequence[StartPosition]) -> None:
        """Read from *starts* on, and nothing else. Raises KafkaException."""
        listed = _list_new(len(starts))
        try:
            for start in starts:
                added = _list_add(listed, start.topic.encode(), start.partition)
                added.contents.offset = start.offset
                if start.leader_epoch is not None:
                    _set_epoch(added, start.leader_epoch)
            _raise_if_error(_assign(self._client, listed))
        finally:
            _list_destroy(listed)

    def unassign(self) -> None:
        """Read nothing more. Raises KafkaException."""
        _raise_if_error(_assign(self._client, None))

    def consume(
        self, max_messages: int, timeout: float
    ) -> tuple[list[FetchedRecords], list[PartitionEvent]]:
        """Return up to *max_messages* records and events, waiting up to *timeout* seconds."""
        if len(self._buffer) < max_messages:
            self._buffer = np.empty(max_messages, np.int64)
        count = _consume(self._queue, int(timeout * 1000), self._buffer.ctypes.data, max_messages)
        if count <= 0:
            return [], []
        try:
            return self._read_fetched(count)
        finally:
            loops.destroy_messages(self._buffer, count)

    def watermarks(self, topic: str, partition: int, timeout: float) -> tuple[int, int]:
        """Return the first offset of a log and its end. Raises KafkaException."""
        low, high = c_int64(), c_int64()
        within = int(timeout * 1000)
        _raise_if_error(
            _watermarks(self._client, topic.encode(), partition, byref(low), byref(high), within)
        )
        return low.value, high.value

    def close(self) -> None:
        """Let go of everything."""
        self._close_client()

    def _read_fetched(self, count: int) -> tuple[list[FetchedRecords], list[PartitionEvent]]:
        fetched = _FetchedMessages(self._buffer, count)
        records = np.flatnonzero(fetched.fields["err"] == 0)
        events = np.flatnonzero(fetched.fields["err"])
        return list(fetched.records(records)), [fetched.event(i) for i in events.tolist()]


class _FetchedMessages:
    """Messages as librdkafka holds them, described in arrays."""

    def __init__(self, messages: Int64Array, count: int) -> None:
        self._messages = messages
        self.fields = np.zeros(count, loops.MESSAGE)
        self._stamps = np.zeros(count, np.int64)
        self._kinds = np.zeros(count, np.int32)
        self._epochs = np.zeros(count, np.int32)
        self._headers = np.zeros(count, np.int64)
        told = (self._stamps, self._kinds, self._epochs, self._headers)
        loops.read_messages(messages, count, self.fields, *told)

    def records(self, rows: Int64Array) -> Iterator[FetchedRecords]:
        """Give the records at *rows*, by partition; more than a column holds in several goes."""
        for part in self._partitions(rows):
            first = self.fields[part[0]]
            topic, partition = _topic_name(int(first["topic"])).decode(), int(first["partition"])
            while len(part):
                fit = self._fitting_count(part)
                yield self._columns(topic, partition, part[:fit])
                part = part[fit:]

    def event(self, row: int) -> PartitionEvent:
        """Return what the message at *row* says, which is no record."""
        field = self.fields[row]
        why = (
            ctypes.string_at(int(field["payload"]), int(field["len"])) if field["payload"] else b""
        )
        return PartitionEvent(
            _topic_name(int(field["topic"])).decode() if field["topic"] else "",
            int(field["partition"]),
            int(field["err"]),
            int(field["offset"]),
            why.decode(errors="replace") or _error_text(int(field["err"])).decode(),
        )

    def _partitions(self, rows: Int64Array) -> list[Int64Array]:
        topics, partitions = self.fields["topic"][rows], self.fields["partition"][rows]
        order = np.lexsort((partitions, topics))  # stable: offsets stay in their order
        turns = np.diff(topics[order]).astype(bool) | np.diff(partitions[order]).astype(bool)
        return [part for part in np.split(rows[order], np.flatnonzero(turns) + 1) if len(part)]

    def _fitting_count(self, rows: Int64Array) -> int:
        sizes = (self.fields["len"][rows] + self.fields["key_len"][rows]).cumsum()
        return max(1, int(np.searchsorted(sizes, MAX_COLUMN_BYTES, "right")))

    def _columns(self, topic: str, partition: int, rows: Int64Array) -> FetchedRecords:
        fields, headers = self.fields[rows], self._headers[rows]
        kinds, epochs = self._kinds[rows], self._epochs[rows]
        readable = len(rows)
        if not is_layout_known() and headers.any():
            readable = int(np.flatnonzero(headers)[0])
            headers = np.zeros(len(rows), np.int64)
        columns = [
            pa.array(fields["offset"]),
            pa.array(_timestamps(self._stamps[rows], kinds, epochs)),
            pa.array(kinds),
            pa.array(epochs, mask=epochs == NO_EPOCH),
            binary_array(fields["key"], fields["key_len"]),
            binary_array(fields["payload"], fields["len"]),
            *read_headers(headers),
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=list(FETCHED_COLUMNS))
        return FetchedRecords(topic, partition, batch, readable)


def _timestamps(
    stamps: Int64Array, kinds: npt.NDArray[np.int32], epochs: npt.NDArray[np.int32]
) -> Int64Array:
    """Return times in ms, -1 where a record has none.

    Messages of format 0 have no timestamp and no leader epoch: Java's consumer says -1 of them and
    librdkafka 0, which it also says of a message of format 1 that was stamped with 0.
    """
    without = (epochs == NO_EPOCH) & (kinds == TIMESTAMP_NOT_AVAILABLE)
    return np.where(without, np.int64(-1), stamps)


def _raise_if_error(code: int) -> None:
    if code:
        raise kafka_exception(code, _error_text(code))


def _close_client(client: int, queue: int) -> None:
    _queue_destroy(queue)
    _close(client)
    _destroy(client)
