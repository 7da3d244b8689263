"""Reading planned offset ranges of a source cluster, exactly.

Facts behind every branch: reference kafka-clients, section 8. A range counts as read when a record
at or past its last offset came, or the end-of-partition event did whose offset lies behind
trailing markers and aborted records. Anything else is an error, never "the end".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from resources.delta.arrow_schema import file_schema
from resources.librdkafka.arrow_consumer import (
    FETCHED_COLUMNS,
    ArrowConsumer,
    FetchedRecords,
    PartitionEvent,
)
from schemas.errors import (
    LogTruncatedError,
    PartitionError,
    RangeUnfinishedError,
    RecordsExpiredError,
)
from schemas.staging.read_range import OffsetRange, ReadResult
from schemas.tables import RECORDS

BatchHandler = Callable[[OffsetRange, pa.RecordBatch], None]

SCHEMA = file_schema(RECORDS)
BATCH_SIZE = 20_000
"""Messages asked for at a time: more gain nothing."""

BATCH_SIZE_BYTES = 8 * 2**20
"""About how many bytes of them: they are held twice, by librdkafka and as columns."""

FIRST_BATCH_SIZE = 16
"""Messages asked for as long as it is not known how large they are."""

READ_TIMEOUT_S = 10.0
"""How long a read waits without any answer before the range is given up (DESIGN 2)."""

WATERMARKS_TIMEOUT_S = 3.0
"""How long the log's ends may take to be told where a start is not in it."""

OUT_OF_RANGE_CODES = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._LOG_TRUNCATION,
)
"""What librdkafka says of a start that the log does not hold."""

TRUNCATED_AT = re.compile(r"broker end offset is (\d+)")
"""Where a log was cut, in the words of librdkafka's truncation error."""

CONSUMER_SETTINGS: dict[str, Any] = {
    "group.id": "deltamirror.stage",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
    "fetch.message.max.bytes": 8 * 2**20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 64 * 1024,
    "log_level": 2,
}


class RangeReader:
    """A consumer of one source cluster that reads planned ranges and nothing else.

    *settings* are librdkafka's for the cluster. Not thread-safe. After an error the consumer is
    dropped and the next read makes a new one.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **CONSUMER_SETTINGS}
        self._consumer: ArrowConsumer | None = None

    def read(
        self, ranges: Sequence[OffsetRange], max_bytes: int, handle_batch: BatchHandler
    ) -> dict[OffsetRange, ReadResult]:
        """Read *ranges* side by side; see `pipeline.staging.stage.Source`."""
        reading = _ReadState(ranges, handle_batch, self._log_bounds)
        if reading.open:
            if self._consumer is None:
                self._consumer = ArrowConsumer(self._settings)
            try:
                self._read(self._consumer, reading, max_bytes)
            except KafkaException as error:
                reading.fail_open_ranges(str(error.args[0]))
            if reading.failed:
                self.close()
        return reading.reached

    def close(self) -> None:
        """Let the consumer go; the next read makes another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, consumer: ArrowConsumer, reading: _ReadState, max_bytes: int) -> None:
        consumer.assign([_start_position(r) for r in reading.open.values()])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while reading.open and reading.size < max_bytes:
            if reading.process(*consumer.consume(reading.batch_size(max_bytes), 0.1)):
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                reading.fail_open_ranges(f"nothing came for {READ_TIMEOUT_S:.0f} s")
        reading.finish_open_ranges()
        consumer.unassign()

    def _log_bounds(self, r: OffsetRange) -> tuple[int, int]:
        """Return the log's start and end as they are now, or as they were planned from."""
        if self._consumer is not None:
            with suppress(KafkaException):
                p = r.partition
                return self._consumer.watermarks(p.topic, p.partition, WATERMARKS_TIMEOUT_S)
        return r.watermarks.low, r.watermarks.high


def _start_position(r: OffsetRange) -> KafkaPartition:
    """Return where to read *r* from, with the epoch that lets the broker find a cut log."""
    epoch = -1 if r.leader_epoch is None else r.leader_epoch
    return KafkaPartition(r.partition.topic, r.partition.partition, r.start, leader_epoch=epoch)


class _ReadState:
    """What is known of the ranges while they are read."""

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        handle_batch: BatchHandler,
        ends: Callable[[OffsetRange], tuple[int, int]],
    ) -> None:
        self._handle_batch, self._log_bounds = handle_batch, ends
        self._position = {r: r.start for r in ranges}
        self.open = {
            (r.partition.topic, r.partition.partition): r for r in ranges if r.start < r.end
        }
        self.reached = {r: ReadResult(r, r.end) for r in ranges if r.start == r.end}
        self.size = 0
        self._rows = 0
        self.failed = False

    @property
    def offsets_left(self) -> int:
        """Return how many offsets are left to read."""
        return sum(r.end - self._position[r] for r in self.open.values())

    def batch_size(self, max_bytes: int) -> int:
        """Return how many messages to ask for: about as many as *max_bytes* have room for."""
        room = min(max_bytes - self.size, BATCH_SIZE_BYTES)
        fit = FIRST_BATCH_SIZE if not self._rows else room * self._rows // self.size
        return max(1, min(BATCH_SIZE, self.offsets_left, max(FIRST_BATCH_SIZE, fit)))

    def process(self, records: Sequence[FetchedRecords], events: Sequence[PartitionEvent]) -> bool:
        """Take in what a consume call gave; return whether it was of any use."""
        # All of them, whatever the first ones were: each is the only one of its kind.
        useful = [self._process_records(each) for each in records]
        useful += [self._process_event(each) for each in events]
        return any(useful)

    def fail_open_ranges(self, why: str) -> None:
        """End every open range where it is, with an error."""
        self.failed = True
        for r in list(self.open.values()):
            at = self._position[r]
            self._finish(r, at, RangeUnfinishedError(r.partition, at=at, end=r.end, reason=why))

    def finish_open_ranges(self) -> None:
        """End every open range where it is: there was enough for one batch."""
        for r in list(self.open.values()):
            self._finish(r, self._position[r], None)

    def _process_records(self, records: FetchedRecords) -> bool:
        r = self.open.get((records.topic, records.partition))
        if r is None:
            return False  # behind the planned end: the next range's
        offsets = records.rows.column("offset").to_numpy()
        beyond = np.flatnonzero(offsets >= r.end)
        kept = int(beyond[0]) if len(beyond) else len(offsets)
        self._position[r] = r.end if len(beyond) else int(offsets[-1]) + 1
        if kept:
            batch = _to_records(r, records.rows.slice(0, kept))
            self.size += batch.nbytes
            self._rows += kept
            self._handle_batch(r, batch)
        if self._position[r] >= r.end:
            self._finish(r, r.end, None)
        return True

    def _process_event(self, event: PartitionEvent) -> bool:
        r = self.open.get((event.topic, event.partition))
        if r is None:
            return False
        at = self._position[r]
        if event.code == KafkaError._PARTITION_EOF:
            if event.offset >= r.end:
                self._finish(r, r.end, None)
                return True
            return False
        self.failed = True
        if event.code in OUT_OF_RANGE_CODES:
            self._finish(r, at, _out_of_range_error(r, at, *self._log_bounds(r), event.why))
        else:
            self._finish(
                r, at, RangeUnfinishedError(r.partition, at=at, end=r.end, reason=event.why)
            )
        return True

    def _finish(self, r: OffsetRange, end: int, error: PartitionError | None) -> None:
        self.open.pop((r.partition.topic, r.partition.partition), None)
        self.reached[r] = ReadResult(r, end, error)


def _out_of_range_error(r: OffsetRange, at: int, low: int, high: int, said: str) -> PartitionError:
    """Return what a start that the log, now [low, high), does not hold means.

    The client says the same for both: at a log start that is not past it, the log was cut, and
    where the leader's epoch showed it the client has *said* where.
    """
    if low <= at:
        cut = TRUNCATED_AT.search(said)
        return LogTruncatedError(r.partition, staged=at, end=high, cut=int(cut[1]) if cut else None)
    return RecordsExpiredError(r.partition, wanted=at, low=low)


def _to_records(r: OffsetRange, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return *rows* as the table `records` has them."""
    partition, n = r.partition, rows.num_rows
    columns = [
        pa.repeat(pa.scalar(partition.topic, pa.string()), n),
        pa.repeat(pa.scalar(partition.topic_id, pa.string()), n),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), n),
        *(rows.column(name) for name in FETCHED_COLUMNS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
