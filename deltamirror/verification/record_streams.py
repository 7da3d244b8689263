"""Read one side of a comparison from its cluster, into memory or in a background thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from queue import Full, Queue
from threading import Event, Thread

import pyarrow as pa

from resources.kafka.range_reader import RangeReader
from schemas.errors.base import PartitionError
from schemas.kafka.partition import TopicPartition
from schemas.staging.read_range import OffsetRange

UNLIMITED_BYTES = 2**62
"""No limit of bytes: a range is read completely. The queue limits memory."""

QUEUE_BATCHES = 2
"""Batches of 20,000 records that wait to be compared."""

_ReadError = PartitionError | None


class _AbandonedError(Exception):
    """Raised in the reading thread to end it after `close`."""


def read_into_memory(
    reader: RangeReader, wanted: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> dict[TopicPartition, Iterator[pa.RecordBatch]]:
    """Read small ranges of many partitions into memory at once; return each partition's batches.

    If the read of a partition ended early, its iterator raises the PartitionError after its last
    batch.
    """
    batches: dict[TopicPartition, list[pa.RecordBatch]] = {each: [] for each in wanted}
    ends: dict[TopicPartition, _ReadError] = dict.fromkeys(wanted)
    # A consumer has one position in a partition: read all first ranges, then all second ones, ...
    for together in zip_longest(*wanted.values()):
        owners = {r: p for p, r in zip(wanted, together, strict=True) if r and not ends[p]}
        reached = reader.read(
            list(owners),
            UNLIMITED_BYTES,
            lambda r, rows, owners=owners: batches[owners[r]].append(rows),  # type: ignore[misc]
        )
        for r, each in reached.items():
            ends[owners[r]] = each.error
    return {each: _batches_then_error(batches[each], ends[each]) for each in wanted}


def _batches_then_error(batches: list[pa.RecordBatch], end: _ReadError) -> Iterator[pa.RecordBatch]:
    yield from batches
    if end is not None:
        raise end


class BackgroundReader:
    """Read ranges of one partition in a thread, and iterate over the batches.

    If the read ended early, iterating raises its PartitionError. `close` ends the thread.
    """

    def __init__(self, reader: RangeReader, ranges: Sequence[OffsetRange]) -> None:
        self._reader, self._ranges = reader, ranges
        self._queue: Queue[pa.RecordBatch | _ReadError | BaseException] = Queue(QUEUE_BATCHES)
        self._is_abandoned = Event()
        self._thread = Thread(target=self._read, name="verify", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while isinstance(found := self._queue.get(), pa.RecordBatch):
            yield found
        if found is not None:
            raise found

    def close(self) -> None:
        """Stop reading and join the thread. The reader can be used again afterwards."""
        self._is_abandoned.set()
        self._thread.join()

    def _read(self) -> None:
        end: _ReadError | BaseException = None
        try:
            for each in self._ranges:
                reached = self._reader.read(
                    [each], UNLIMITED_BYTES, lambda _, rows: self._put(rows)
                )
                end = reached[each].error
                if end is not None:
                    break
        except BaseException as error:
            # Pass the error to the iterating thread, which would wait forever otherwise.
            end = error
        with suppress(_AbandonedError):
            self._put(end)

    def _put(self, found: pa.RecordBatch | _ReadError | BaseException) -> None:
        while not self._is_abandoned.is_set():
            with suppress(Full):
                self._queue.put(found, timeout=0.1)
                return
        raise _AbandonedError
