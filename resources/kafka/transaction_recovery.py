"""Take over a transactional id, and end what its earlier transactions left open."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
from confluent_kafka import KafkaException

from resources.librdkafka.arrow_producer import ArrowProducer
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA
from schemas.errors import BatchRejectedError, UnreachableError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.slot_work import Progress

log = logging.getLogger(__name__)


class Slot(Protocol):
    """The transactions of one transactional id, as recovery needs them."""

    alias: str
    transactional_id: str

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* to the transaction."""

    def flush(self) -> Mapping[TopicPartition, object]:
        """Wait for all reports. Raises BatchRejectedError."""

    def send_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Put *progress* into the transaction."""

    def end_aborted(self) -> None:
        """Abort the transaction and keep the producer."""


def init_transactions(producer: ArrowProducer, timeout_s: float) -> None:
    """Make *producer* the only writer of its id. Raises KafkaException.

    A fresh coordinator is not known yet, and the client would ask again after 0.5 s only: short
    tries find it sooner.
    """
    deadline, wait = time.monotonic() + timeout_s, 0.06
    while True:
        try:
            producer.init_transactions(wait)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            wait = min(1.0, wait * 1.5)
        else:
            return


def abort_open_transaction(slot: Slot, partition: TopicPartition, marks: Watermarks) -> None:
    """Abort a transaction with a record in *partition*: its marker ends all that is open there.

    A broker that ends a transaction takes a partition without a leader for a deleted one, and
    writes no marker there (Kafka 4.3: KRaftMetadataCache.getPartitionLeaderEndpoint,
    TransactionMarkerChannelManager). It happens where all brokers start again. Raises
    UnreachableError.
    """
    told = {"key": b"", "value": b"", "timestamp_ms": int(time.time() * 1000)}
    slot.begin()
    try:
        slot.send(partition, pa.RecordBatch.from_pylist([told], PRODUCE_SCHEMA))
        slot.flush()
    except BatchRejectedError as refused:
        why = f"{partition} is open since offset {marks.stable}: {refused.reason}"
        raise UnreachableError(slot.alias, servers=slot.transactional_id, reason=why) from refused
    slot.end_aborted()
    log.warning(
        "%s: something lay open in [%d, %d) of %s: what is ours of it is aborted",
        *(slot.transactional_id, marks.stable, marks.high, partition),
    )


def abort_pending_progress(slot: Slot, partition: TopicPartition) -> None:
    """Abort a transaction with progress in it, whose marker ends what is pending of this id.

    A broker that stood still may take up progress of a transaction after it is over, and then
    nobody ends it (KIP-664, KIP-890) but the same producer's next transaction. It is of one that
    was aborted, or a copy: `commit` goes on only when progress was answered.
    """
    slot.begin()
    slot.send_progress({partition: Progress(0, "", "")})
    slot.end_aborted()
