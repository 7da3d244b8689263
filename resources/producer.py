"""One slot's transactions on a target cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaPartition

from resources.answers import REFUSALS, meaning_of, why_of
from resources.bounded import NoAnswerError, bounded
from resources.exact_producer import Delivered, ExactProducer
from resources.groups import UNSTABLE
from resources.sent_rows import columns_of, is_odd
from resources.target_log import TargetLog
from resources.throttle import Throttle
from schemas.errors import (
    ChunkRefusedError,
    CommitUnknownError,
    RequestRefusedError,
    SendAgainError,
    ThrottledError,
    UnreachableError,
)
from schemas.flow import Flow
from schemas.progress import Progress
from schemas.replay_flow import ReplayFlow
from schemas.topic_partition import TopicPartition

Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]

PATIENCE_S = 10.0
"""The longest wait for an answer of the target, and so for a frozen one to be told."""

TRANSACTION_S = 60.0
"""How long the target lets a transaction of ours be open."""

ROOM_S = 40.0
"""How long a transaction may wait for a quota: what is left is for its end."""

FITTING_S = 15.0
"""How long a transaction should wait for a quota."""

SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "message.max.bytes": 1_000_000_000,
    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
    # The time that send_offsets_to_transaction is given counts for nothing: this ends it.
    "socket.timeout.ms": 10_000,
    "log_level": 2,
}
"""librdkafka's own limit on a record is 1 MB, below what brokers take: theirs decides here."""

STAMPS_ANEW = "it sets its own timestamps (message.timestamp.type=LogAppendTime)"
"""Why a topic is refused that would take every record, with another timestamp."""


class SlotProducer(TargetLog):
    """The only writer of one slot of a flow: what `pipeline.replay.Target` asks for.

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
        self._id = flow.transactional_id(slot)
        self._throttle = Throttle()
        self._settings = {
            **SETTINGS,
            **producer,
            "transactional.id": self._id,
            "throttle_cb": self._throttle,
        }
        # librdkafka makes no producer whose requests may outlive its transactions.
        limits = ("socket.timeout.ms", "transaction.timeout.ms")
        self._settings[limits[0]] = min(int(self._settings[key]) for key in limits)
        self._consumer_settings = dict(consumer)
        self._producer: Producer | ExactProducer | None = None
        self._wants_exact = self._met_odd = False
        self._group: Consumer | None = None
        self._offsets: dict[TopicPartition, list[int | None]] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, str] = {}
        self._failed: KafkaError | None = None
        self._is_stopped = False
        self._began = 0.0

    def fence(self) -> None:
        """Become the slot's only writer. Raises UnreachableError, FencedError."""
        if isinstance(self._producer, ExactProducer) and not self._met_odd:
            # Progress is read again behind this, so here the quick one may come back.
            self._producer, self._wants_exact = None, False
        self._met_odd = False
        if self._producer is not None:
            return
        producer = self._new_producer()
        deadline = time.monotonic() + PATIENCE_S
        wait = 0.06  # a coordinator that is not known yet would be asked again after 0.5 s only
        while True:
            try:
                producer.init_transactions(wait)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    self._fail(error)
                wait = min(1.0, wait * 1.5)
            else:
                break
        self._producer = producer

    def progress(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Progress]:
        """Return committed progress by target partition; pending commits are waited for.

        What stays pending though this id is fenced is ended. Raises UnreachableError,
        RequestRefusedError.
        """
        group = self._flow.progress_group
        try:
            answer = self._cluster.committed(group, partitions)
        except RequestRefusedError as refused:
            if refused.code != UNSTABLE:
                raise
            self._end_what_hangs(partitions[0])
            answer = self._cluster.committed(group, partitions)
        found = {p: Progress.read(*told) for p, told in answer.items() if told is not None}
        return {partition: progress for partition, progress in found.items() if progress}

    def _end_what_hangs(self, partition: TopicPartition) -> None:
        """Abort a transaction with progress in it, whose marker ends what hangs of this id.

        A broker that stood still may take up progress of a transaction after it is over, and then
        nobody ends it (KIP-664, KIP-890) but the same producer's next transaction. It is of one
        that was aborted, or a copy: `commit` goes on only when progress was answered.
        """
        producer = self._open()
        with self._asking():
            producer.begin_transaction()
        self._send_progress(producer, {partition: Progress(0, "", "")})
        with self._asking():
            producer.abort_transaction(PATIENCE_S)

    def seed(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit *progress* outside of a transaction.

        Raises GroupActiveError: somebody's consumers use our group; UnreachableError.
        """
        offsets = {t: (p.next_offset, p.metadata) for t, p in progress.items()}
        self._cluster.commit_offsets(self._flow.progress_group, offsets)

    def begin(self) -> None:
        """Open a transaction, once the quota that the one before it met is no more felt."""
        time.sleep(self._throttle.left_s)
        self._offsets, self._sent, self._refused, self._failed = {}, {}, {}, None
        self._is_stopped = False
        self._began = time.monotonic()
        with self._asking():
            self._open().begin_transaction()

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* to the transaction.

        Raises ChunkRefusedError: one cannot be sent; SendAgainError: the next producer can.
        """
        producer = self._open()
        if is_odd(rows):
            self._met_odd = True
            if not isinstance(producer, ExactProducer):
                self._wants_exact = True
                raise SendAgainError(self._id)
        self._sent[partition] = self._sent.get(partition, 0) + rows.num_rows
        produce: Any = producer.produce
        poll = producer.poll
        report = self._report(partition)
        topic, number = partition.topic, partition.partition
        columns = iter(columns_of(rows))
        for key, value, stamp, headers in columns:
            while True:
                try:
                    produce(topic, value, key, number, report, report, stamp, headers)
                    break
                except BufferError:
                    with self._asking():
                        poll(0.05)
                    if self._refused or self._failed:
                        return  # nothing is sent any more; `settle` says why
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._STATE:
                        # Something sent before was refused, of this partition or another one.
                        self._is_stopped = True
                        return
                    row = rows.num_rows - 1 - sum(1 for _ in columns)
                    why = f"{why_of(error)} (offset {rows.column('offset')[row]} of the source)"
                    raise ChunkRefusedError({partition: why}, why) from error

    def settle(self) -> dict[TopicPartition, Offsets]:
        """Wait for all reports; return offsets by partition.

        Raises ChunkRefusedError; ThrottledError: a quota would not let them come in time.
        """
        producer = self._open()
        deadline = time.monotonic() + PATIENCE_S
        left = len(producer)
        # Once a record is refused, those that still wait are never sent: there is no end to see.
        while left and not self._refused and self._failed is None:
            before = left
            with self._asking():
                left = producer.flush(0.5)
            self._keep_time()
            if left < before:
                deadline = time.monotonic() + PATIENCE_S
            elif self._is_stopped:
                break
            elif time.monotonic() > max(deadline, self._throttle.until + PATIENCE_S):
                self._explain_silence(left)
        if self._refused:
            raise ChunkRefusedError(self._refused, next(iter(self._refused.values())))
        if self._failed is not None:
            self._fail(KafkaException(self._failed))
        if self._is_stopped:
            raise ChunkRefusedError({}, "no report tells which record")
        offsets = {p: np.array(o, np.float64) for p, o in self._offsets.items()}
        for partition, given in offsets.items():
            if np.isnan(given).any() or (given[1:] <= given[:-1]).any():
                raise CommitUnknownError(self._id, f"{partition}: reports without rising offsets")
        return {p: np.array(self._offsets[p], np.int64) for p in offsets}

    def commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit what was sent and *progress*.

        Raises CommitUnknownError: no answer in time; ThrottledError: nor can it be asked in time.
        """
        producer = self._open()
        # Progress goes over the connection that a quota keeps waiting, and has 10 s for its answer.
        while self._throttle.left_s:
            self._keep_time()
            with self._asking():
                producer.poll(min(0.5, self._throttle.left_s))
        self._send_progress(producer, progress)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                producer.commit_transaction(PATIENCE_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._fail(error)
                if time.monotonic() > deadline:
                    raise CommitUnknownError(self._id, why_of(error)) from error

    def _send_progress(
        self, producer: Producer | ExactProducer, progress: Mapping[TopicPartition, Progress]
    ) -> None:
        """Put *progress* into the transaction.

        The client's own bound counts for nothing: behind a broker that was killed and came back it
        may wait for a change of that connection which has been already, for ever.
        """
        offsets, group = _kafka(progress), self._consumer().consumer_group_metadata()
        try:
            with self._asking():
                bounded(
                    lambda: producer.send_offsets_to_transaction(offsets, group, PATIENCE_S),
                    PATIENCE_S + 2.0,
                )
        except NoAnswerError as error:
            why = f"progress of the transaction: {error}"
            raise UnreachableError(self._flow.target, self._id, why) from None

    def abort(self) -> None:
        """Abort and drop the producer; what it left open is settled by the next `fence`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.abort_transaction(1.0)
            except KafkaException:
                del producer  # never close(): it waits without a bound

    def close(self) -> None:
        """Let go of everything, outside of a transaction."""
        self._producer = None
        if self._group is not None:
            self._group.close()
            self._group = None

    def _keep_time(self) -> None:
        """Raise ThrottledError where a quota makes this transaction last too long."""
        lasts_s = time.monotonic() + self._throttle.left_s - self._began
        if self._throttle.until > self._began and lasts_s > ROOM_S:
            taken = sum(map(len, self._offsets.values())) / max(1, sum(self._sent.values()))
            share = min(0.5, taken * FITTING_S / lasts_s) or 0.05
            raise ThrottledError(self._flow.target, self._id, share)

    def _explain_silence(self, left: int) -> NoReturn:
        """Raise what is known of why *left* records have no answer.

        ChunkRefusedError names the partitions that take nothing now; otherwise UnreachableError.
        """
        silent = [p for p, sent in self._sent.items() if len(self._offsets[p]) < sent]
        why = self.why_silent(silent)
        if why:
            raise ChunkRefusedError(why, next(iter(why.values())), passes=True)
        raise UnreachableError(self._flow.target, "", f"{left} records have no answer")

    def _new_producer(self) -> Producer | ExactProducer:
        if self._wants_exact:
            return ExactProducer(self._settings, self._flow.progress_group)
        return Producer(self._settings)

    def _open(self) -> Producer | ExactProducer:
        if self._producer is None:
            raise RuntimeError("fence() comes first")
        return self._producer

    def _consumer(self) -> Consumer:
        """Return the client that stands for the progress group; it subscribes to nothing."""
        if self._group is None:
            self._group = Consumer(
                {
                    **self._consumer_settings,
                    "group.id": self._flow.progress_group,
                    "enable.auto.commit": False,
                    "log_level": 2,
                }
            )
        return self._group

    def _report(
        self, partition: TopicPartition
    ) -> Callable[[KafkaError | None, Message | Delivered], None]:
        """Return the delivery callback of *partition*: one for all of its records."""
        offsets = self._offsets.setdefault(partition, [])
        append = offsets.append

        def report(error: KafkaError | None, message: Message | Delivered) -> None:
            if error is None:
                if not offsets and message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
                    self._refused[partition] = STAMPS_ANEW
                append(message.offset())
            elif error.code() in REFUSALS:
                self._refused.setdefault(partition, error.str())
            else:
                self._failed = self._failed or error

        return report

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise what the client's errors in the block mean."""
        try:
            yield
        except KafkaException as error:
            self._fail(error)
        except SystemError as error:
            # The client raises a fatal error and calls the delivery reports all the same, under
            # which it may be lost. Every transactional call tells it again.
            if isinstance(error.__cause__, KafkaException):
                self._fail(error.__cause__)
            try:
                self._open().begin_transaction()
            except KafkaException as fatal:
                self._fail(fatal)
            raise

    def _fail(self, error: KafkaException) -> NoReturn:
        """Raise what *error* of the client means."""
        raise meaning_of(error, self._flow, self._id, self._refused) from error


def _kafka(progress: Mapping[TopicPartition, Progress]) -> list[KafkaPartition]:
    return [
        KafkaPartition(t.topic, t.partition, p.next_offset, p.metadata) for t, p in progress.items()
    ]
