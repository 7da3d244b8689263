"""Write one slot's transactions to a target cluster."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from resources.kafka.groups import UNSTABLE_OFFSET_COMMIT
from resources.kafka.producer_errors import RECORD_ERRORS, error_for
from resources.kafka.quota import NoResponseError, ProduceQuota, call_with_timeout
from resources.kafka.target_log import TargetLog
from resources.kafka.transaction_recovery import (
    abort_open_transaction,
    abort_pending_progress,
    init_transactions,
)
from resources.librdkafka.arrow_producer import ArrowProducer, RowRejectedError
from resources.librdkafka.compiled import Int64Array
from resources.librdkafka.produce_columns import to_produce_batch
from schemas.config.flow import Flow
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.errors.target import BatchRejectedError, CommitUnknownError, ThrottledError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.point_in_time import ReplayFlow
from schemas.replay.slot_work import Progress

log = logging.getLogger(__name__)

RESPONSE_TIMEOUT_S = 10.0  # without an answer of the target; then a frozen broker is reported
FLUSH_INTERVAL_S = 0.01  # after which the delivery reports that arrived are processed

TRANSACTION_TIMEOUT_S = 60.0  # after which the target aborts an open transaction
# How long a transaction may wait for a quota (the rest of the timeout is for its commit), and how
# long a smaller one, after ThrottledError, should wait.
MAX_TRANSACTION_S, TARGET_TRANSACTION_S = 40.0, 15.0

PRODUCER_SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "message.max.bytes": 1_000_000_000,  # instead of 1 MB; the broker has its own limit
    "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
    # send_offsets_to_transaction ignores its own timeout: this one ends it.
    "socket.timeout.ms": 10_000,
    "log_level": 2,
}

# Reason to refuse a topic that would accept every record, but with another timestamp.
OVERWRITES_TIMESTAMPS = "it sets its own timestamps (message.timestamp.type=LogAppendTime)"


class SlotProducer(TargetLog):
    """The transactional producer of one slot of a flow: a `pipeline.replay.slot_replay.Target`.

    *producer* and *consumer* are librdkafka settings for the target. A producer is dropped after
    its first error, without closing it: the client's `close` tries to end the transaction and
    waits without a bound.
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
        ids = {"transactional.id": self.transactional_id}
        self._settings = {**PRODUCER_SETTINGS, **producer, **ids}
        # librdkafka rejects a request timeout that is longer than the transaction timeout.
        limits = ("socket.timeout.ms", "transaction.timeout.ms")
        self._settings[limits[0]] = min(int(self._settings[key]) for key in limits)
        self._producer: ArrowProducer | None = None
        # The transaction's records of each partition: ranges [first, end) of their numbers.
        self._spans: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        self._checked_partitions: set[TopicPartition] = set()
        self._refused: dict[TopicPartition, str] = {}
        self._failed: KafkaError | None = None
        self._is_stopped = False
        self._are_timestamps_checked = False
        self._began_at = 0.0

    def fence(self) -> None:
        """Become the slot's only writer; earlier producers of the transactional id are fenced.

        Raises UnreachableError, FencedError.
        """
        if self._producer is None:
            group = self._flow.progress_group
            producer = ArrowProducer(self._settings, group, self._quota.record)
            with self._converted_errors():
                init_transactions(producer, RESPONSE_TIMEOUT_S)
            self._producer, self._checked_partitions = producer, set()

    def abort_leftovers(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Abort older transactions that are open at or after the offset given for a partition.

        Each partition is checked once after fencing. Raises UnreachableError.
        """
        watermarks = self._cluster.watermarks(partitions.keys() - self._checked_partitions)
        for partition, found in watermarks.items():
            if isinstance(found, Watermarks):  # otherwise `end_offsets` reports the error
                if partitions[partition] <= found.stable < found.high:
                    abort_open_transaction(self, partition, found)
                self._checked_partitions.add(partition)

    def progress(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Progress]:
        """Return committed progress by target partition.

        Waits for pending commits. A commit that stays pending, although the transactional id is
        fenced, is aborted. Raises UnreachableError, RequestRefusedError.
        """
        group = self._flow.progress_group
        try:
            answer = self._cluster.committed_offsets(group, partitions)
        except RequestRefusedError as refused:
            if refused.code != UNSTABLE_OFFSET_COMMIT:
                raise
            abort_pending_progress(self, partitions[0])
            answer = self._cluster.committed_offsets(group, partitions)
        return {p: found for p, at in answer.items() if at and (found := Progress.read(*at))}

    def commit_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit *progress* outside of a transaction.

        Raises GroupActiveError if consumers use the progress group, UnreachableError.
        """
        self._cluster.commit_offsets(self._flow.progress_group, _offsets(progress))

    def begin(self) -> None:
        """Open a transaction, after the wait that the target's quota requires."""
        time.sleep(self._quota.remaining_s)
        self._refused, self._failed, self._is_stopped = {}, None, False
        self._are_timestamps_checked = False
        self._spans.clear()
        self._began_at = time.monotonic()
        with self._converted_errors():
            self._fenced_producer().begin_transaction()

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* to the transaction. Raises BatchRejectedError if a record cannot be sent.

        If a delivery report has an error, this stops early and `flush` raises the error.
        """
        producer, columns, at = self._fenced_producer(), to_produce_batch(rows), 0
        while not (self._refused or self._failed):
            first = producer.queued_count
            try:
                at = producer.send(partition.topic, partition.partition, columns, at)
            except RowRejectedError as error:
                if error.why.code() == KafkaError._STATE:
                    # A record sent before was refused, of this or of another partition.
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

    def flush(self) -> dict[TopicPartition, Int64Array]:
        """Wait for all delivery reports; return the records' offsets by partition.

        Raises BatchRejectedError, ThrottledError if a quota delays the reports too long,
        UnreachableError, and CommitUnknownError if reported offsets are missing or do not increase.
        """
        producer = self._fenced_producer()
        queued_count, deadline = producer.queued_count, time.monotonic() + RESPONSE_TIMEOUT_S
        # After a record is refused, the queued ones are never sent and get no report.
        while producer.reported_count < queued_count and not (self._refused or self._failed):
            before = producer.reported_count
            producer.flush(FLUSH_INTERVAL_S)
            self._process_reports(FLUSH_INTERVAL_S)
            self._check_quota()
            if producer.reported_count > before:
                deadline = time.monotonic() + RESPONSE_TIMEOUT_S
            elif self._is_stopped:
                break
            elif time.monotonic() > max(deadline, self._quota.until + RESPONSE_TIMEOUT_S):
                self._raise_no_response(queued_count - producer.reported_count)
        if self._refused:
            reason = next(iter(self._refused.values()))
            raise BatchRejectedError(reason, partitions=dict(self._refused))
        if self._failed:
            self._raise_error(KafkaException(self._failed))
        if self._is_stopped:
            raise BatchRejectedError("no delivery report names the record", partitions={})
        offsets = {partition: self._offsets_of(partition) for partition in self._spans}
        for partition, given in offsets.items():
            if (given < 0).any() or (given[1:] <= given[:-1]).any():
                reason = f"{partition}: reported offsets do not increase"
                raise CommitUnknownError(self.transactional_id, reason=reason)
        return offsets

    def commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit the sent records and *progress* in one transaction.

        Raises CommitUnknownError if no answer comes in time, ThrottledError if a quota delays the
        request too long.
        """
        producer = self._fenced_producer()
        # Progress is sent on the throttled connection, and its answer must come within 10 s.
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
                cause = error.args[0]
                if not cause.retriable():
                    self._raise_error(error)
                if time.monotonic() > deadline:
                    raise CommitUnknownError(self.transactional_id, reason=cause.str()) from error

    def send_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Add *progress* to the transaction.

        The client's own timeout has no effect. After a broker was killed and restarted, the client
        may wait permanently for a change of the connection that has already happened.
        """
        producer, offsets = self._fenced_producer(), _offsets(progress)
        try:
            with self._converted_errors():
                call_with_timeout(
                    lambda: producer.send_offsets_to_transaction(offsets, RESPONSE_TIMEOUT_S),
                    RESPONSE_TIMEOUT_S + 2.0,
                )
        except NoResponseError as error:
            why = f"progress of the transaction: {error}"
            raise UnreachableError(self.alias, servers=self.transactional_id, reason=why) from None

    def abort(self) -> None:
        """Abort and drop the producer. The next `fence` ends a transaction that stayed open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):  # then it is dropped: `close` waits without a bound
                producer.abort_transaction(1.0)

    def end_aborted(self) -> None:
        """Abort the transaction and keep the producer. Raises the converted error on failure."""
        with self._converted_errors():
            self._fenced_producer().abort_transaction(RESPONSE_TIMEOUT_S)

    def close(self) -> None:
        """Drop the producer. No transaction may be open."""
        self._producer = None

    def _check_quota(self) -> None:
        """Raise ThrottledError if a quota makes this transaction longer than MAX_TRANSACTION_S."""
        duration_s = time.monotonic() + self._quota.remaining_s - self._began_at
        if self._quota.until > self._began_at and duration_s > MAX_TRANSACTION_S:
            producer = self._fenced_producer()
            reported = producer.reported_count / max(1, producer.queued_count)
            share = min(0.5, reported * TARGET_TRANSACTION_S / duration_s) or 0.05
            raise ThrottledError(self.alias, transactional_id=self.transactional_id, share=share)

    def _raise_no_response(self, left: int) -> NoReturn:
        """Raise BatchRejectedError if a partition accepts no records now, else UnreachableError."""
        unreported = [p for p in self._spans if (self._offsets_of(p) < 0).any()]
        self._cluster.probe()
        topics = self._cluster.topics({each.topic for each in unreported})
        reasons = self._cluster.write_failure_reasons(topics, unreported)
        if reasons:
            first = next(iter(reasons.values()))
            raise BatchRejectedError(first, partitions=reasons, is_transient=True)
        raise UnreachableError(self.alias, servers="", reason=f"{left} records have no answer")

    def _fenced_producer(self) -> ArrowProducer:
        if self._producer is None:
            raise RuntimeError("fence() was not called")
        return self._producer

    def _offsets_of(self, partition: TopicPartition) -> Int64Array:
        """Return the reported offsets of the records of *partition*, -1 if not reported."""
        offsets = self._fenced_producer().offsets
        return np.concatenate([offsets[:0], *(offsets[a:b] for a, b in self._spans[partition])])

    def _process_reports(self, timeout: float) -> None:
        """Process delivery reports; record refused partitions and the first other error."""
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

    def _check_timestamp_types(self, restamped: TopicPartition) -> None:
        """Refuse the partitions of topics that set timestamps, after a report for *restamped*.

        The report alone is no proof. A broker also reports a timestamp, the batch's own, for a
        duplicate batch that was sent again because the first answer was late (UnifiedLog.append,
        LogAppendInfo of a duplicate). If the topic's configs are not returned, the report decides.
        """
        configs = self._cluster.topic_configs({each.topic for each in self._spans})
        for partition in self._spans:
            kind = configs.get(partition.topic, {}).get("message.timestamp.type")
            is_stamped = kind.value == "LogAppendTime" if kind else partition == restamped
            if is_stamped:
                self._refused.setdefault(partition, OVERWRITES_TIMESTAMPS)
        self._are_timestamps_checked = True

    def _partition_of(self, number: int) -> TopicPartition:
        """Return the partition of the transaction's record of that *number*."""
        return next(
            partition
            for partition, spans in self._spans.items()
            if any(first <= number < end for first, end in spans)
        )

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self._raise_error(error)

    def _raise_error(self, error: KafkaException) -> NoReturn:
        raise error_for(error, self._flow, self.transactional_id, self._refused) from error


def _offsets(progress: Mapping[TopicPartition, Progress]) -> dict[TopicPartition, tuple[int, str]]:
    return {target: (at.next_offset, at.metadata) for target, at in progress.items()}
