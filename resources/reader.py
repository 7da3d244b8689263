"""Reading planned offset ranges of a source cluster, exactly.

Facts behind every branch: reference kafka-clients, section 8. A range counts as read when a record
at or past its last offset came, or the end-of-partition event did whose offset lies behind
trailing markers and aborted records. Anything else is an error, never "the end".
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaPartition

from resources.arrow import HEADERS, RAW_HEADER_KEYS, file_schema
from resources.record_headers import read_headers
from schemas.errors import (
    LogTruncatedError,
    PartitionError,
    RangeUnfinishedError,
    RecordsExpiredError,
    RecordUnreadableError,
)
from schemas.offset_range import OffsetRange
from schemas.reached import Reached
from schemas.tables import RECORDS

Take = Callable[[OffsetRange, pa.RecordBatch], None]

SCHEMA = file_schema(RECORDS)
AT_ONCE = 20_000
"""Messages asked for at a time: more gain nothing."""

AT_ONCE_BYTES = 8 * 2**20
"""About how many bytes of them: they are held two more times, as Python's bytes and as columns."""

AT_FIRST = 16
"""Messages asked for as long as it is not known how large they are."""

PATIENCE_S = 10.0
"""How long a read waits without any answer before the range is given up (DESIGN 2)."""

ENDS_S = 3.0
"""How long the log's ends may take to be told where a start is not in it."""

CUT = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
"""What librdkafka says of a start that the log does not hold."""

CUT_AT = re.compile(r"broker end offset is (\d+)")
"""Where a log was cut, in the words of librdkafka's truncation error."""

SETTINGS: dict[str, Any] = {
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
        self._settings = {**settings, **SETTINGS}
        self._consumer: Consumer | None = None

    def read(
        self, ranges: Sequence[OffsetRange], max_bytes: int, take: Take
    ) -> dict[OffsetRange, Reached]:
        """Read *ranges* side by side; see `pipeline.stage.Source`."""
        reading = _Reading(ranges, take, self._ends)
        if reading.open:
            if self._consumer is None:
                self._consumer = Consumer(self._settings)
            try:
                self._read(self._consumer, reading, max_bytes)
            except KafkaException as error:
                reading.give_up(str(error.args[0]))
            if reading.failed:
                self.close()
        return reading.reached

    def close(self) -> None:
        """Let the consumer go; the next read makes another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, consumer: Consumer, reading: _Reading, max_bytes: int) -> None:
        consumer.assign([_at(r) for r in reading.open.values()])
        deadline = time.monotonic() + PATIENCE_S
        while reading.open and reading.size < max_bytes:
            if reading.accept(consumer.consume(reading.at_once(max_bytes), 0.1)):
                deadline = time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline:
                reading.give_up(f"nothing came for {PATIENCE_S:.0f} s")
        reading.cut()
        consumer.unassign()

    def _ends(self, r: OffsetRange) -> tuple[int, int]:
        """Return the log's start and end as they are now, or as they were planned from."""
        if self._consumer is not None:
            partition = KafkaPartition(r.partition.topic, r.partition.partition)
            with suppress(KafkaException):
                ends = self._consumer.get_watermark_offsets(partition, ENDS_S)
                if ends is not None:  # None: no answer in time
                    return ends
        return r.watermarks.low, r.watermarks.high


def _at(r: OffsetRange) -> KafkaPartition:
    """Return where to read *r* from, with the epoch that lets the broker find a cut log."""
    p = r.partition
    if r.leader_epoch is None:
        return KafkaPartition(p.topic, p.partition, r.start)
    return KafkaPartition(p.topic, p.partition, r.start, leader_epoch=r.leader_epoch)


class _Reading:
    """What is known of the ranges while they are read."""

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        take: Take,
        ends: Callable[[OffsetRange], tuple[int, int]],
    ) -> None:
        self._take, self._ends = take, ends
        self._position = {r: r.start for r in ranges}
        self.open = {
            (r.partition.topic, r.partition.partition): r for r in ranges if r.start < r.end
        }
        self.reached = {r: Reached(r, r.end) for r in ranges if r.start == r.end}
        self.size = 0
        self._rows = 0
        self.failed = False

    @property
    def left(self) -> int:
        """Return how many offsets are left to read."""
        return sum(r.end - self._position[r] for r in self.open.values())

    def at_once(self, max_bytes: int) -> int:
        """Return how many messages to ask for: about as many as *max_bytes* have room for."""
        room = min(max_bytes - self.size, AT_ONCE_BYTES)
        fit = AT_FIRST if not self._rows else room * self._rows // self.size
        return max(1, min(AT_ONCE, self.left, max(AT_FIRST, fit)))

    def accept(self, messages: list[Message]) -> bool:
        """Take in what a consume call gave; return whether it was of any use."""
        events = [m for m in messages if m.error() is not None]
        records = [m for m in messages if m.error() is None] if events else messages
        useful = False
        # A range that is closed still sends: one range is alone only if no other was assigned.
        if len(self._position) == 1 and records:
            useful = self._records(next(iter(self.open)), records)
        elif records:
            for key, group in _by_partition(records).items():
                useful = self._records(key, group) or useful
        for event in events:
            useful = self._event(event) or useful
        return useful

    def give_up(self, why: str) -> None:
        """End every open range where it is, with an error."""
        self.failed = True
        for r in list(self.open.values()):
            at = self._position[r]
            self._close(r, at, RangeUnfinishedError(r.partition, at=at, end=r.end, why=why))

    def cut(self) -> None:
        """End every open range where it is: there was enough for one batch."""
        for r in list(self.open.values()):
            self._close(r, self._position[r], None)

    def _records(self, key: tuple[str | None, int | None], messages: list[Message]) -> bool:
        r = self.open.get(key)  # type: ignore[arg-type]
        if r is None:
            return False  # behind the planned end: the next range's
        offsets = [m.offset() or 0 for m in messages]
        if offsets[-1] >= r.end:
            kept = next(i for i, offset in enumerate(offsets) if offset >= r.end)
            messages, offsets = messages[:kept], offsets[:kept]
            self._position[r] = r.end
        else:
            self._position[r] = offsets[-1] + 1
        error = None
        if messages:
            batch, error = _batch(r, messages, offsets)
            if batch.num_rows:
                self.size += batch.nbytes
                self._rows += batch.num_rows
                self._take(r, batch)
        if error is not None:
            self._close(r, offsets[batch.num_rows], error)
        elif self._position[r] >= r.end:
            self._close(r, r.end, None)
        return True

    def _event(self, event: Message) -> bool:
        error, offset = event.error(), event.offset()
        r = self.open.get((event.topic(), event.partition()))  # type: ignore[arg-type]
        if error is None or r is None:
            return False
        at = self._position[r]
        if error.code() == KafkaError._PARTITION_EOF:
            if offset is not None and offset >= r.end:
                self._close(r, r.end, None)
                return True
            return False
        self.failed = True
        if error.code() in CUT:
            self._close(r, at, _cut_error(r, at, *self._ends(r), error.str()))
            return True
        if error.retriable() and not error.fatal():
            return False
        self._close(r, at, RangeUnfinishedError(r.partition, at=at, end=r.end, why=error.str()))
        return True

    def _close(self, r: OffsetRange, end: int, error: PartitionError | None) -> None:
        self.open.pop((r.partition.topic, r.partition.partition), None)
        self.reached[r] = Reached(r, end, error)


def _cut_error(r: OffsetRange, at: int, low: int, high: int, said: str) -> PartitionError:
    """Return what a start that the log, now [low, high), does not hold means.

    The client says the same for both: at a log start that is not past it, the log was cut, and
    where the leader's epoch showed it the client has *said* where.
    """
    if low <= at:
        cut = CUT_AT.search(said)
        return LogTruncatedError(r.partition, staged=at, end=high, cut=int(cut[1]) if cut else None)
    return RecordsExpiredError(r.partition, wanted=at, low=low)


def _by_partition(messages: list[Message]) -> dict[tuple[str | None, int | None], list[Message]]:
    groups: dict[tuple[str | None, int | None], list[Message]] = defaultdict(list)
    for m in messages:
        groups[m.topic(), m.partition()].append(m)
    return groups


def _batch(
    r: OffsetRange, messages: list[Message], offsets: list[int]
) -> tuple[pa.RecordBatch, PartitionError | None]:
    """Return *messages* as columns, up to the first that cannot be carried, and its error."""
    headers, raw_keys, readable = read_headers(messages)
    error: PartitionError | None = None
    if readable < len(messages):
        why = "this release of confluent-kafka may alter its headers"
        error = RecordUnreadableError(r.partition, offsets[readable], why)
        messages, offsets = messages[:readable], offsets[:readable]
        headers = headers[:readable]
    n = len(messages)
    stamps = [m.timestamp() for m in messages]
    epochs = [m.leader_epoch() for m in messages]
    partition = r.partition
    columns = [
        pa.repeat(pa.scalar(partition.topic, pa.string()), n),
        pa.repeat(pa.scalar(partition.topic_id, pa.string()), n),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), n),
        pa.array(offsets, pa.int64()),
        pa.array(_timestamps(stamps, epochs), pa.int64()),
        pa.array([kind for kind, _ in stamps], pa.int32()),
        pa.array(epochs, pa.int32()),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        _column(headers, HEADERS),
        _column([raw_keys.get(i) for i in range(n)] if raw_keys else [None] * n, RAW_HEADER_KEYS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), error


def _timestamps(stamps: Sequence[tuple[int, int]], epochs: Sequence[int | None]) -> list[int]:
    """Return times in ms, -1 where a record has none.

    Messages of format 0 have no timestamp and no leader epoch: Java's consumer says -1 of them and
    librdkafka 0, which it also says of a message of format 1 that was stamped with 0.
    """
    if None not in epochs:
        return [ms for _, ms in stamps]
    return [
        -1 if epoch is None and kind == TIMESTAMP_NOT_AVAILABLE else ms
        for (kind, ms), epoch in zip(stamps, epochs, strict=True)
    ]


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not any(values):
        return pa.nulls(len(values), kind)
    return pa.array(values, kind)
