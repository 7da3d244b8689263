"""Read planned offset ranges of a source cluster exactly.

A range is read completely when a record at or after its last offset arrives, or when the
end-of-partition event arrives with an offset at or after the range's end. The event is needed if a
range ends with transaction markers or aborted records. Any other end is an error.
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

from resources.delta.arrow_schema import ROW_SCHEMA
from resources.librdkafka.arrow_consumer import ArrowConsumer, FetchedRecords, PartitionEvent
from resources.librdkafka.bindings import PartitionOffset
from schemas.errors.base import PartitionError
from schemas.errors.source import LogTruncatedError, RangeUnfinishedError, RecordsExpiredError
from schemas.staging.read_range import OffsetRange, ReadResult

BatchHandler = Callable[[OffsetRange, pa.RecordBatch], None]

# Messages per consume call, the most (more do not make it faster) and while their size is unknown.
BATCH_SIZE, FIRST_BATCH_SIZE = 20_000, 16
BATCH_SIZE_BYTES = 8 * 2**20
"""Approximate bytes per consume call. They are in memory twice: in librdkafka and as columns."""

READ_TIMEOUT_S = 10.0  # without a useful record or event; then open ranges fail
WATERMARKS_TIMEOUT_S = 3.0

OUT_OF_RANGE_CODES = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._LOG_TRUNCATION,
)
"""librdkafka's codes if the log does not contain the start of a range."""

TRUNCATED_AT = re.compile(r"broker end offset is (\d+)")  # in librdkafka's truncation error

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
    """A consumer of one source cluster that reads planned offset ranges.

    *settings* are librdkafka's for the cluster. After an error the consumer is closed, and the
    next read creates a new one. Not thread-safe.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **CONSUMER_SETTINGS}
        self._consumer: ArrowConsumer | None = None

    def read(
        self, ranges: Sequence[OffsetRange], max_bytes: int, handle_batch: BatchHandler
    ) -> dict[OffsetRange, ReadResult]:
        """Read *ranges* concurrently; see `pipeline.staging.stage.Source`."""
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
        """Close the consumer; the next read creates a new one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, consumer: ArrowConsumer, reading: _ReadState, max_bytes: int) -> None:
        starts = [PartitionOffset(*at, r.start, r.leader_epoch) for at, r in reading.open.items()]
        consumer.assign(starts)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while reading.open and reading.size < max_bytes:
            if reading.process(*consumer.consume(reading.batch_size(max_bytes), 0.1)):
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                reading.fail_open_ranges(f"no record or event came for {READ_TIMEOUT_S:.0f} s")
        reading.finish_open_ranges()
        consumer.unassign()

    def _log_bounds(self, r: OffsetRange) -> tuple[int, int]:
        """Return the log's present start and end, or those of the plan if there is no answer."""
        if self._consumer is not None:
            with suppress(KafkaException):
                p = r.partition
                return self._consumer.watermarks(p.topic, p.partition, WATERMARKS_TIMEOUT_S)
        return r.watermarks.low, r.watermarks.high


class _ReadState:
    """Position, size and result of the ranges of one read."""

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        handle_batch: BatchHandler,
        log_bounds: Callable[[OffsetRange], tuple[int, int]],
    ) -> None:
        self._handle_batch, self._log_bounds = handle_batch, log_bounds
        self._position = {r: r.start for r in ranges}
        self.open = {(r.partition.topic, r.partition.partition): r for r in ranges if r.length}
        self.reached = {r: ReadResult(r, r.end) for r in ranges if r.start == r.end}
        self.size = 0
        self._rows = 0
        self.failed = False

    def batch_size(self, max_bytes: int) -> int:
        """Return how many messages to consume next, so that their size stays near *max_bytes*."""
        offsets_left = sum(r.end - self._position[r] for r in self.open.values())
        room = min(max_bytes - self.size, BATCH_SIZE_BYTES)
        fit = FIRST_BATCH_SIZE if not self._rows else room * self._rows // self.size
        return max(1, min(BATCH_SIZE, offsets_left, max(FIRST_BATCH_SIZE, fit)))

    def process(self, records: Sequence[FetchedRecords], events: Sequence[PartitionEvent]) -> bool:
        """Process the result of a consume call; return whether any record or event was used."""
        # No short circuit: every record and event must be processed.
        useful = [self._process_records(each) for each in records]
        useful += [self._process_event(each) for each in events]
        return any(useful)

    def fail_open_ranges(self, why: str) -> None:
        """End every open range at its position, with an error."""
        self.failed = True
        for r in list(self.open.values()):
            self._finish(r, self._unfinished_error(r, why))

    def finish_open_ranges(self) -> None:
        """End every open range at its position, because the read has reached its size."""
        for r in list(self.open.values()):
            self._finish(r)

    def _process_records(self, records: FetchedRecords) -> bool:
        r = self.open.get((records.topic, records.partition))
        if r is None:
            return False  # after the planned end: a later range reads it
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
            self._finish(r)
        return True

    def _process_event(self, event: PartitionEvent) -> bool:
        r = self.open.get((event.topic, event.partition))
        is_end = event.code == KafkaError._PARTITION_EOF
        if r is None or (is_end and event.offset < r.end):
            return False
        if is_end:
            self._position[r] = r.end
            self._finish(r)
        elif event.code in OUT_OF_RANGE_CODES:
            bounds = self._log_bounds(r)
            self._finish(r, _out_of_range_error(r, self._position[r], *bounds, event.why))
        else:
            self._finish(r, self._unfinished_error(r, event.why))
        return True

    def _unfinished_error(self, r: OffsetRange, why: str) -> PartitionError:
        return RangeUnfinishedError(r.partition, at=self._position[r], end=r.end, reason=why)

    def _finish(self, r: OffsetRange, error: PartitionError | None = None) -> None:
        self.failed |= error is not None
        self.open.pop((r.partition.topic, r.partition.partition))
        self.reached[r] = ReadResult(r, self._position[r], error)


def _out_of_range_error(r: OffsetRange, at: int, low: int, high: int, text: str) -> PartitionError:
    """Return the error if the log, now [low, high), does not contain the position *at*.

    The client's error code is the same for truncation and expiry. If the log start is not above
    *at*, the log was truncated. If the client detected that by the leader epoch, its error *text*
    has the offset.
    """
    if low <= at:
        cut = TRUNCATED_AT.search(text)
        return LogTruncatedError(r.partition, staged=at, end=high, cut=int(cut[1]) if cut else None)
    return RecordsExpiredError(r.partition, wanted=at, low=low)


def _to_records(r: OffsetRange, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return *rows* with the columns of the table `records`."""
    partition, n = r.partition, rows.num_rows
    columns = [
        pa.repeat(pa.scalar(partition.topic, pa.string()), n),
        pa.repeat(pa.scalar(partition.topic_id, pa.string()), n),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), n),
        *rows.columns,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
