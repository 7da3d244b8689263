"""Consumer of assigned partitions that returns Arrow columns, on librdkafka's C interface.

confluent-kafka creates six Python objects for each record. To create them and to read them again
takes four fifths of staging's time. This consumer copies a record's bytes from librdkafka's memory
to Arrow's.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping
from ctypes import byref, c_int64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from resources.librdkafka import bindings
from resources.librdkafka import compiled as loops
from resources.librdkafka.arrow_memory import MAX_COLUMN_BYTES, binary_array
from resources.librdkafka.compiled import Int64Array
from resources.librdkafka.headers import read_headers

NO_EPOCH = -1  # of records in message formats 0 and 1


@dataclass(frozen=True)
class FetchedRecords:
    """Records of one partition in log order: the columns of `records` without the partition's."""

    topic: str
    partition: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class PartitionEvent:
    """Event of a partition, other than a record: an error or the partition's end (*code*)."""

    topic: str
    partition: int
    code: int
    offset: int
    why: str


class ArrowConsumer:
    """Consumer of assigned partitions. Not thread-safe; times in seconds."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Create a consumer with librdkafka's *settings*. Raises KafkaException on wrong ones."""
        self._client = bindings.new_client(bindings.CONSUMER, bindings.new_conf(settings))
        bindings.poll_set_consumer(self._client)
        self._queue = bindings.queue_get_consumer(self._client)
        # Closes the client and releases its queue, at the latest when this is garbage-collected.
        self.close = weakref.finalize(self, _close_client, self._client, self._queue)
        self._buffer = np.empty(0, np.int64)

    def assign(self, starts: Collection[bindings.PartitionOffset]) -> None:
        """Read only the partitions *starts*, each from its offset. Raises KafkaException."""
        with bindings.partition_list(starts) as listed:
            bindings.expect_success(bindings.assign(self._client, listed))

    def unassign(self) -> None:
        """Stop reading all partitions. Raises KafkaException."""
        bindings.expect_success(bindings.assign(self._client, None))

    def consume(
        self, max_messages: int, timeout: float
    ) -> tuple[list[FetchedRecords], list[PartitionEvent]]:
        """Return up to *max_messages* records and events, waiting up to *timeout* seconds."""
        if len(self._buffer) < max_messages:
            self._buffer = np.empty(max_messages, np.int64)
        timeout_ms, address = int(timeout * 1000), self._buffer.ctypes.data
        count = bindings.consume_batch_queue(self._queue, timeout_ms, address, max_messages)
        if count <= 0:
            return [], []
        try:
            fetched = _FetchedMessages(self._buffer, count)
            return list(fetched.records()), list(fetched.events())
        finally:
            loops.destroy_messages(self._buffer, count)

    def watermarks(self, topic: str, partition: int, timeout: float) -> tuple[int, int]:
        """Return the low and the high watermark of a partition. Raises KafkaException."""
        low, high = c_int64(), c_int64()
        bounds = (byref(low), byref(high), int(timeout * 1000))
        bindings.expect_success(
            bindings.query_watermark_offsets(self._client, topic.encode(), partition, *bounds)
        )
        return low.value, high.value


class _FetchedMessages:
    """Arrays that describe messages in librdkafka's memory."""

    def __init__(self, messages: Int64Array, count: int) -> None:
        self._messages = messages
        self._fields = np.zeros(count, loops.MESSAGE)
        self._stamps = np.zeros(count, np.int64)
        self._kinds = np.zeros(count, np.int32)
        self._epochs = np.zeros(count, np.int32)
        self._headers = np.zeros(count, np.int64)
        outputs = (self._stamps, self._kinds, self._epochs, self._headers)
        loops.read_messages(messages, count, self._fields, *outputs)

    def records(self) -> Iterator[FetchedRecords]:
        """Yield the records by partition, in batches of at most `MAX_COLUMN_BYTES`."""
        for part in self._partitions(np.flatnonzero(self._fields["err"] == 0)):
            first = self._fields[part[0]]
            topic, partition = _topic_of(first), int(first["partition"])
            while len(part):
                sizes = (self._fields["len"][part] + self._fields["key_len"][part]).cumsum()
                fit = max(1, int(np.searchsorted(sizes, MAX_COLUMN_BYTES, "right")))
                yield FetchedRecords(topic, partition, self._columns(part[:fit]))
                part = part[fit:]

    def events(self) -> Iterator[PartitionEvent]:
        """Yield the events: messages that are not records."""
        for row in np.flatnonzero(self._fields["err"]).tolist():
            field = self._fields[row]
            partition, code, offset = (int(field[name]) for name in ("partition", "err", "offset"))
            why = bindings.message_errstr(int(self._messages[row])).decode(errors="replace")
            yield PartitionEvent(_topic_of(field), partition, code, offset, why)

    def _partitions(self, rows: Int64Array) -> list[Int64Array]:
        topics, partitions = self._fields["topic"][rows], self._fields["partition"][rows]
        order = np.lexsort((partitions, topics))  # stable, so it keeps the order of offsets
        turns = np.diff(topics[order]).astype(bool) | np.diff(partitions[order]).astype(bool)
        return [part for part in np.split(rows[order], np.flatnonzero(turns) + 1) if len(part)]

    def _columns(self, rows: Int64Array) -> pa.RecordBatch:
        fields, kinds, epochs = self._fields[rows], self._kinds[rows], self._epochs[rows]
        headers, raw_header_keys = read_headers(self._headers[rows])
        columns = {
            "offset": pa.array(fields["offset"]),
            "timestamp_ms": pa.array(_timestamps(self._stamps[rows], kinds, epochs)),
            "timestamp_type": pa.array(kinds),
            "leader_epoch": pa.array(epochs, mask=epochs == NO_EPOCH),
            "key": binary_array(fields["key"], fields["key_len"]),
            "value": binary_array(fields["payload"], fields["len"]),
            "headers": headers,
            "raw_header_keys": raw_header_keys,
        }
        return pa.RecordBatch.from_pydict(columns)


def _timestamps(
    stamps: Int64Array, kinds: npt.NDArray[np.int32], epochs: npt.NDArray[np.int32]
) -> Int64Array:
    """Return timestamps in ms; -1 for a record without a timestamp.

    Messages of format 0 have no timestamp and no leader epoch. Java's consumer returns -1 for their
    timestamp. librdkafka returns 0, as for a message of format 1 with timestamp 0.
    """
    without = (epochs == NO_EPOCH) & (kinds == TIMESTAMP_NOT_AVAILABLE)
    return np.where(without, np.int64(-1), stamps)


def _topic_of(field: np.void) -> str:
    topic = int(field["topic"])
    return str(bindings.topic_name(topic).decode()) if topic else ""


def _close_client(client: int, queue: int) -> None:
    bindings.queue_destroy(queue)
    bindings.consumer_close(client)
    bindings.destroy(client)
