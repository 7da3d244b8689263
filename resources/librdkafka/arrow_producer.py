"""Transactional producer that takes records as columns, on librdkafka's C interface.

confluent-kafka's producer takes one record at a time, calls Python for each report, and would alter
some records: it ends header keys at a NUL, rejects header keys that are not UTF-8, and writes the
current time for timestamp 0. librdkafka itself sends any header key, but replaces timestamp 0 too.
So this producer sends a placeholder timestamp, finds it in librdkafka's record and sets it to 0
before the record is queued. If it does not find the placeholder, or does not know the memory layout
of this librdkafka release, it rejects the record.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, libversion

from resources.librdkafka import bindings
from resources.librdkafka import compiled as loops
from resources.librdkafka.bindings import PartitionOffset, expect_no_error
from resources.librdkafka.compiled import Int64Array
from resources.librdkafka.produce_columns import ProduceBatch
from schemas.kafka.partition import TopicPartition

_INTERCEPTOR_NAME = b"timestamp 0"

_REPORT_BATCH_SIZE = 10_000  # reports that are read from an event at a time
_MAX_ERRORS = 100  # errors that are kept for a transaction: later ones rarely differ


class ArrowProducer:
    """Producer of one slot. Not thread-safe; times in seconds. Every method raises KafkaException.

    The records of a transaction are numbered from 0, in the order in which they were queued. The
    producer is closed in a thread when it is garbage-collected.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        group: str,
        handle_throttle: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Create a producer with librdkafka's *settings*. It commits progress to *group*.

        *handle_throttle* gets the seconds for which a broker's quota throttles its connection.
        """
        self._group = group
        position = bindings.TIMESTAMP_POSITION // 8 if bindings.is_layout_known() else 0
        self._hook = np.array([secrets.randbits(60) | 1, 0, position], np.int64)
        # librdkafka has only the addresses of these objects, so they are kept until it is closed.
        on_throttle = bindings.OnThrottle(lambda *args: handle_throttle(args[3] / 1000))
        state = (loops.on_send.address, self._hook.ctypes.data)
        on_new = bindings.OnNew(
            lambda client, *_: int(bindings.add_on_send(client, _INTERCEPTOR_NAME, *state))
        )
        conf = bindings.new_conf(settings)
        bindings.conf_set_events(conf, bindings.DELIVERY_REPORTS)
        bindings.conf_set_throttle_cb(conf, on_throttle)
        if position:
            bindings.conf_add_on_new(conf, _INTERCEPTOR_NAME, on_new, None)
        self._client = bindings.new_client(bindings.PRODUCER, conf)
        self._references = (on_throttle, on_new, self._hook)
        self._queue: int = bindings.queue_get_main(self._client)
        self._topics: dict[str, int] = {}
        self._record = np.zeros(len(loops.PROPERTIES) * loops.VU_WORDS, np.int64)
        self._record[:: loops.VU_WORDS] = loops.PROPERTIES
        self._messages = np.empty(_REPORT_BATCH_SIZE, np.int64)
        self._fields = np.empty(1, loops.MESSAGE)
        self._sent_rows: list[ProduceBatch] = []  # librdkafka reads the values in this memory
        self._first = self._queued = 0
        self._reset_reports()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client and not sys.is_finalizing():  # no thread can be started at the interpreter's end
            # Closing waits for the client's threads, which may wait for a broker.
            kept = (self._references, self._sent_rows)
            ended = (client, self._queue, list(self._topics.values()), kept)
            Thread(target=_close_client, args=ended, name="end of a producer", daemon=True).start()

    @property
    def queued_count(self) -> int:
        """Return the number of records of the transaction that were queued."""
        return self._queued - self._first

    @property
    def reported_count(self) -> int:
        """Return the number of queued records that have a delivery report."""
        return int(self._counts[loops.REPORTED])

    @property
    def offsets(self) -> Int64Array:
        """Return the offsets of the queued records; -1 for a record without a report."""
        return self._offsets[: self.queued_count]

    @property
    def first_restamped(self) -> int | None:
        """Return the number of the first record that the broker stamped (LogAppendTime)."""
        first = int(self._counts[loops.FIRST_RESTAMPED])
        return first if first >= 0 else None

    def errors(self) -> Iterator[tuple[int, KafkaError]]:
        """Yield the numbers of records with a reported error, and the errors."""
        kept = min(len(self._errors), int(self._counts[loops.ERRORS]))
        for number, code in zip(self._error_records[:kept], self._errors[:kept], strict=True):
            yield int(number), KafkaError(int(code))

    def init_transactions(self, timeout: float) -> None:
        """Fence earlier producers and abort their open transaction."""
        expect_no_error(bindings.init_transactions(self._client, _ms(timeout)))

    def begin_transaction(self) -> None:
        """Open a transaction. All records of the previous one must have been reported."""
        self._sent_rows = []
        self._first = self._queued
        self._reset_reports()
        expect_no_error(bindings.begin_transaction(self._client))

    def commit_transaction(self, timeout: float) -> None:
        """Commit after all records were sent."""
        expect_no_error(bindings.commit_transaction(self._client, _ms(timeout)))

    def abort_transaction(self, timeout: float) -> None:
        """Abort, and drop the records that are still queued."""
        expect_no_error(bindings.abort_transaction(self._client, _ms(timeout)))

    def send(self, topic: str, partition: int, rows: ProduceBatch, start: int) -> int:
        """Queue *rows* from row *start*, unaltered; return the row after the last queued one.

        It stops early if the queue is full; `poll_reports` frees space. Raises RowRejectedError.
        """
        if not self._hook[loops.TIMESTAMP_POSITION]:
            zeros = np.flatnonzero(rows.columns.stamps == 0)
            if len(zeros):
                mine, known = libversion()[0], bindings.KNOWN_VERSION
                text = f"timestamp 0 cannot be written with librdkafka {mine}, only with {known}"
                raise RowRejectedError(int(zeros[0]), KafkaError(KafkaError._FAIL, text))
        self._sent_rows.append(rows)
        self._reserve_offsets(len(rows) - start)
        if topic not in self._topics:
            self._topics[topic] = bindings.topic_new(self._client, topic.encode(), None)
        self._record[loops.TOPIC * loops.VU_WORDS + 1] = self._topics[topic]
        self._record[loops.PARTITION * loops.VU_WORDS + 1] = partition
        end, error = loops.produce_rows(
            self._client, self._record, self._hook, start, self._queued, *rows.columns
        )
        self._queued += end - start
        if error == loops.TIMESTAMP_NOT_SET:
            self._queued += 1
            why = KafkaError(KafkaError._FAIL, "timestamp 0 cannot be written")
            raise RowRejectedError(end, why)
        if error:
            try:
                expect_no_error(error)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError._QUEUE_FULL:
                    raise RowRejectedError(end, refused.args[0]) from refused
        return end

    def poll_reports(self, timeout: float) -> None:
        """Read all available reports; wait up to *timeout* for the first one.

        If the producer has a fatal error, it is raised instead of the errors of the records.
        """
        reports = (self._first, self._offsets, self._counts, self._errors, self._error_records)
        loops.read_reports(self._queue, _ms(timeout), self._messages, self._fields, *reports)
        if self._counts[loops.ERRORS]:
            bindings.expect_no_fatal_error(self._client)

    def flush(self, timeout: float) -> None:
        """Send all queued records; return when all are reported, or after *timeout*."""
        bindings.flush(self._client, _ms(timeout))

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, tuple[int, str]], timeout: float
    ) -> None:
        """Commit *offsets* and their metadata to the group in this transaction."""
        # confluent-kafka, which reads the metadata, needs the NUL.
        elements = [
            PartitionOffset(at.topic, at.partition, offset, metadata=metadata.encode() + b"\0")
            for at, (offset, metadata) in offsets.items()
        ]
        member = bindings.group_metadata_new(self._group.encode())
        try:
            with bindings.partition_list(elements) as listed:
                error = bindings.send_offsets(self._client, listed, member, _ms(timeout))
            expect_no_error(error)
        finally:
            bindings.group_metadata_destroy(member)

    def _reset_reports(self) -> None:
        self._offsets = np.empty(0, np.int64)
        self._counts = np.array([0, 0, -1], np.int64)
        self._errors = np.zeros(_MAX_ERRORS, np.int32)
        self._error_records = np.zeros(_MAX_ERRORS, np.int64)

    def _reserve_offsets(self, rows: int) -> None:
        """Grow the array of offsets for *rows* more records."""
        missing = self.queued_count + rows - len(self._offsets)
        if missing > 0:
            more = np.full(max(missing, len(self._offsets)), -1, np.int64)
            self._offsets = np.concatenate([self._offsets, more])


class RowRejectedError(Exception):
    """Raised when the client rejects row *row*. Earlier rows may be queued."""

    def __init__(self, row: int, why: KafkaError) -> None:
        super().__init__(f"row {row}: {why}")
        self.row, self.why = row, why


def _close_client(client: int, queue: int, topics: Sequence[int], _references: object) -> None:
    """Close *client*. The references keep its callbacks and values alive until it is closed."""
    for topic in topics:
        bindings.topic_destroy(topic)
    bindings.queue_destroy(queue)
    bindings.destroy(client)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
