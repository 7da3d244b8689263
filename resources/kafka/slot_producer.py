"""One slot's transactions on a target cluster."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from resources.kafka.groups import UNSTABLE_OFFSET_COMMIT
from resources.kafka.producer_errors import RECORD_ERRORS, error_for, reason_for
from resources.kafka.quota import NoResponseError, ProduceQuota, call_with_timeout
from resources.kafka.target_log import TargetLog
from resources.kafka.transaction_recovery import (
    abort_open_transaction,
    abort_pending_progress,
    init_transactions,
)
from resources.librdkafka.arrow_producer import ArrowProducer, RowRejectedError
from resources.librdkafka.produce_columns import to_produce_batch
from schemas.config.flow import Flow
from schemas.errors import (
    BatchRejectedError,
    CommitUnknownError,
    RequestRefusedError,
    ThrottledError,
    UnreachableError,
)
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.point_in_time import ReplayFlow
from schemas.replay.slot_work import Progress

log = logging.getLogger(__name__)

Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]

RESPONSE_TIMEOUT_S = 10.0
"""The longest wait for an answer of the target, and so for a frozen one to be told."""

TRANSACTION_TIMEOUT_S = 60.0
"""How long the target lets a transaction of ours be open."""

MAX_TRANSACTION_S = 40.0
"""How long a transaction may wait for a quota: what is left is for its end."""

TARGET_TRANSACTION_S = 15.0
"""How long a transaction should wait for a quota."""

PRODUCER_SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "message.max.bytes": 1_000_000_000,
    "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
    # The time that send_offsets_to_transaction is given counts for nothing: this ends it.
    "socket.timeout.ms": 10_000,
    "log_level": 2,
}
"""librdkafka's own limit on a record is 1 MB, below what brokers take: theirs decides here."""

FLUSH_INTERVAL_S = 0.01
"""How long is waited for reports before those that came are taken."""

OVERWRITES_TIMESTAMPS = "it sets its own timestamps (message.timestamp.type=LogAppendTime)"
"""Why a topic is refused that would take every record, with another timestamp."""


class SlotProducer(TargetLog):
    """The only writer of one slot of a flow: what `pipeline.replay.slot_replay.Target` asks for.

    *producer* and *consumer* are librdkafka settings for the target. A producer is used until its
    first error and never closed then: `close` would try to end the transaction, without a bound.
    """

    def __init__(
        self,
        flow: Flow | ReplayFlow,
        slot: int,
        producer: Mapping[str, Any],
        consumer: Mapping[str, Any],
    ) -> None:
        super().__init__(flow.target, consumer)
        self._flow = flow
        self.transactional_id = flow.transactional_id(slot)
        self._quota = ProduceQuota()
        self._settings = {
            **PRODUCER_SETTINGS,
            **producer,
            "transactional.id": self.transactional_id,
            "throttle_cb": self._quota,
        }
        # librdkafka makes no producer whose requests may outlive its transactions.
        limits = ("socket.timeout.ms", "transaction.timeout.ms")
        self._settings[limits[0]] = min(int(self._settings[key]) for key in limits)
        self._producer: ArrowProducer | None = None
        # Which records of the transaction went to a partition: from and to which number.
        self._spans: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        self._checked_partitions: set[TopicPartition] = set()
        self._refused: dict[TopicPartition, str] = {}
        self._failed: KafkaError | None = None
        self._is_stopped = False
        self._are_timestamps_checked = False
        self._began_at = 0.0

    def fence(self) -> None:
        """Become the slot's only writer. Raises UnreachableError, FencedError."""
        if self._producer is not None:
            return
        producer = ArrowProducer(self._settings, self._flow.progress_group)
        try:
            init_transactions(producer, RESPONSE_TIMEOUT_S)
        except KafkaException as error:
            self._raise_error(error)
        self._producer, self._checked_partitions = producer, set()

    def abort_leftovers(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Abort what older transactions left open at or past the offsets given, by partition.

        Each partition is looked at once after fencing. Raises UnreachableError.
        """
        marks = self._cluster.watermarks(partitions.keys() - self._checked_partitions)
        for partition, found in marks.items():
            if isinstance(found, Watermarks):  # otherwise `ends` says why not
                if partitions[partition] <= found.stable < found.high:
                    abort_open_transaction(self, partition, found)
                self._checked_partitions.add(partition)

    def progress(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Progress]:
        """Return committed progress by target partition; pending commits are waited for.

        What stays pending though this id is fenced is ended. Raises UnreachableError,
        RequestRefusedError.
        """
        group = self._flow.progress_group
        try:
            answer = self._cluster.committed_offsets(group, partitions)
        except RequestRefusedError as refused:
            if refused.code != UNSTABLE_OFFSET_COMMIT:
                raise
            abort_pending_progress(self, partitions[0])
            answer = self._cluster.committed_offsets(group, partitions)
        found = {p: Progress.read(*told) for p, told in answer.items() if told is not None}
        return {partition: progress for partition, progress in found.items() if progress}

    def commit_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit *progress* outside of a transaction.

        Raises GroupActiveError: somebody's consumers use our group; UnreachableError.
        """
        offsets = {t: (p.next_offset, p.metadata) for t, p in progress.items()}
        self._cluster.commit_offsets(self._flow.progress_group, offsets)

    def begin(self) -> None:
        """Open a transaction, once the quota that the one before it met is no more felt."""
        time.sleep(self._quota.remaining_s)
        self._refused, self._failed, self._is_stopped = {}, None, False
        self._are_timestamps_checked = False
        self._spans.clear()
        self._began_at = time.monotonic()
        with self._converted_errors():
            self._fenced_producer().begin_transaction()

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* to the transaction. Raises BatchRejectedError: one cannot be sent."""
        producer, columns, at = self._fenced_producer(), to_produce_batch(rows), 0
        while not self._refused and self._failed is None:  # `flush` says why
            first = producer.queued_count
            try:
                at = producer.send(partition.topic, partition.partition, columns, at)
            except RowRejectedError as error:
                if error.why.code() == KafkaError._STATE:
                    # Something sent before was refused, of this partition or another one.
                    self._is_stopped = True
                    return
                offset = rows.column("offset")[error.row]
                why = f"{error.why.str()} (offset {offset} of the source)"
                raise BatchRejectedError(why, partitions={partition: why}) from error
            finally:
                self._spans[partition].append((first, producer.queued_count))
            if at == len(columns):
                return
            self._process_reports(0.05)

    def flush(self) -> dict[TopicPartition, Offsets]:
        """Wait for all reports; return offsets by partition.

        Raises BatchRejectedError; ThrottledError: a quota would not let them come in time.
        """
        producer = self._fenced_producer()
        deadline = time.monotonic() + RESPONSE_TIMEOUT_S
        # Once a record is refused, those that still wait are never sent: there is no end to see.
        while (
            producer.reported_count < producer.queued_count
            and not self._refused
            and self._failed is None
        ):
            before = producer.reported_count
            producer.flush(FLUSH_INTERVAL_S)
            self._process_reports(FLUSH_INTERVAL_S)
            self._check_quota()
            if producer.reported_count > before:
                deadline = time.monotonic() + RESPONSE_TIMEOUT_S
            elif self._is_stopped:
                break
            elif time.monotonic() > max(deadline, self._quota.until + RESPONSE_TIMEOUT_S):
                self._raise_no_response(producer.queued_count - producer.reported_count)
        if self._refused:
            raise BatchRejectedError(
                next(iter(self._refused.values())), partitions=dict(self._refused)
            )
        if self._failed is not None:
            self._raise_error(KafkaException(self._failed))
        if self._is_stopped:
            raise BatchRejectedError("no report tells which record", partitions={})
        offsets = {partition: self._offsets_of(partition) for partition in self._spans}
        for partition, given in offsets.items():
            if (given < 0).any() or (given[1:] <= given[:-1]).any():
                raise CommitUnknownError(
                    self.transactional_id, reason=f"{partition}: reports without rising offsets"
                )
        return offsets

    def commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit what was sent and *progress*.

        Raises CommitUnknownError: no answer in time; ThrottledError: nor can it be asked in time.
        """
        producer = self._fenced_producer()
        # Progress goes over the connection that a quota keeps waiting, and has 10 s for its answer.
        while self._quota.remaining_s:
            self._check_quota()
            self._process_reports(min(0.5, self._quota.remaining_s))
        self.send_progress(progress)
        deadline = time.monotonic() + RESPONSE_TIMEOUT_S
        while True:
            try:
                producer.commit_transaction(RESPONSE_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._raise_error(error)
                if time.monotonic() > deadline:
                    raise CommitUnknownError(
                        self.transactional_id, reason=reason_for(error)
                    ) from error

    def send_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Put *progress* into the transaction.

        The client's own bound counts for nothing: behind a broker that was killed and came back it
        may wait for a change of that connection which has been already, for ever.
        """
        producer, offsets = self._fenced_producer(), _kafka_partitions(progress)
        try:
            with self._converted_errors():
                call_with_timeout(
                    lambda: producer.send_offsets_to_transaction(offsets, RESPONSE_TIMEOUT_S),
                    RESPONSE_TIMEOUT_S + 2.0,
                )
        except NoResponseError as error:
            why = f"progress of the transaction: {error}"
            raise UnreachableError(
                self._flow.target, servers=self.transactional_id, reason=why
            ) from None

    def abort(self) -> None:
        """Abort and drop the producer; what it left open is settled by the next `fence`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.abort_transaction(1.0)
            except KafkaException:
                del producer  # never close(): it waits without a bound

    def end_aborted(self) -> None:
        """Abort the transaction and keep the producer. Raises what the client's error means."""
        with self._converted_errors():
            self._fenced_producer().abort_transaction(RESPONSE_TIMEOUT_S)

    def close(self) -> None:
        """Let go of everything, outside of a transaction."""
        self._producer = None

    def _check_quota(self) -> None:
        """Raise ThrottledError where a quota makes this transaction last too long."""
        lasts_s = time.monotonic() + self._quota.remaining_s - self._began_at
        if self._quota.until > self._began_at and lasts_s > MAX_TRANSACTION_S:
            taken = self._fenced_producer().reported_count / max(
                1, self._fenced_producer().queued_count
            )
            share = min(0.5, taken * TARGET_TRANSACTION_S / lasts_s) or 0.05
            raise ThrottledError(
                self._flow.target, transactional_id=self.transactional_id, share=share
            )

    def _raise_no_response(self, left: int) -> NoReturn:
        """Raise what is known of why *left* records have no answer.

        BatchRejectedError names the partitions that take nothing now; otherwise UnreachableError.
        """
        silent = [p for p in self._spans if (self._offsets_of(p) < 0).any()]
        why = self.write_failure_reasons(silent)
        if why:
            raise BatchRejectedError(next(iter(why.values())), partitions=why, is_transient=True)
        raise UnreachableError(
            self._flow.target, servers="", reason=f"{left} records have no answer"
        )

    def _fenced_producer(self) -> ArrowProducer:
        if self._producer is None:
            raise RuntimeError("fence() comes first")
        return self._producer

    def _offsets_of(self, partition: TopicPartition) -> Offsets:
        """Return the offsets reported of what went to *partition*, -1 where none was."""
        offsets = self._fenced_producer().offsets
        return np.concatenate([offsets[:0], *(offsets[a:b] for a, b in self._spans[partition])])

    def _process_reports(self, timeout: float) -> None:
        """Take what was reported, and note which partitions are refused and what failed."""
        producer = self._fenced_producer()
        with self._converted_errors():
            producer.poll_reports(timeout)
        for number, error in producer.errors():
            if error.code() in RECORD_ERRORS:
                self._refused.setdefault(self._partition_of(number), error.str())
            else:
                self._failed = self._failed or error
        if producer.first_restamped is not None and not self._are_timestamps_checked:
            self._check_timestamp_types(self._partition_of(producer.first_restamped))

    def _check_timestamp_types(self, told: TopicPartition) -> None:
        """Refuse the partitions whose topics set timestamps, as one was reported of *told*.

        A broker also reports one, the batch's own, of a batch that it got a second time because
        its first answer was late (UnifiedLog.append, LogAppendInfo of a duplicate).
        """
        kinds = self.timestamp_types({each.topic for each in self._spans})
        for partition in self._spans:
            kind = kinds.get(partition.topic)
            if kind == "LogAppendTime" or (kind is None and partition == told):
                self._refused.setdefault(partition, OVERWRITES_TIMESTAMPS)
        self._are_timestamps_checked = True

    def _partition_of(self, number: int) -> TopicPartition:
        """Return where the transaction's record of that *number* went."""
        return next(
            partition
            for partition, spans in self._spans.items()
            if any(first <= number < end for first, end in spans)
        )

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Raise what the client's errors in the block mean."""
        try:
            yield
        except KafkaException as error:
            self._raise_error(error)

    def _raise_error(self, error: KafkaException) -> NoReturn:
        """Raise what *error* of the client means."""
        raise error_for(error, self._flow, self.transactional_id, self._refused) from error


def _kafka_partitions(progress: Mapping[TopicPartition, Progress]) -> list[KafkaPartition]:
    return [
        KafkaPartition(t.topic, t.partition, p.next_offset, p.metadata) for t, p in progress.items()
    ]
