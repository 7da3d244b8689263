"""Take over a transactional id, and abort its earlier transactions that are still open."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaException

from resources.librdkafka.arrow_producer import ArrowProducer
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA
from schemas.errors.environment import UnreachableError
from schemas.errors.target import BatchRejectedError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.slot_work import Progress

if TYPE_CHECKING:
    from resources.kafka.slot_producer import SlotProducer

log = logging.getLogger(__name__)


def init_transactions(producer: ArrowProducer, timeout_s: float) -> None:
    """Make *producer* the only writer of its transactional id. Raises KafkaException.

    A new producer does not know its coordinator, and the client retries only after 0.5 s. Several
    calls with short timeouts find the coordinator sooner.
    """
    deadline, wait = time.monotonic() + timeout_s, 0.06
    while True:
        try:
            producer.init_transactions(wait)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            wait = min(1.0, wait * 1.5)


def abort_open_transaction(
    slot: SlotProducer, partition: TopicPartition, watermarks: Watermarks
) -> None:
    """Abort a new transaction with a record in *partition*.

    Its abort marker also ends this id's earlier transaction there. Such a transaction stays open
    because a broker that ends a transaction treats a partition without a leader as deleted, and
    writes no marker to it (Kafka 4.3: KRaftMetadataCache.getPartitionLeaderEndpoint,
    TransactionMarkerChannelManager). It happens if all brokers are restarted. Raises
    UnreachableError.
    """
    stable, high = watermarks.stable, watermarks.high
    row = {"key": b"", "value": b"", "timestamp_ms": int(time.time() * 1000)}
    slot.begin()
    try:
        slot.send(partition, pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))
        slot.flush()
    except BatchRejectedError as refused:
        why = f"{partition} has an open transaction since offset {stable}: {refused.reason}"
        raise UnreachableError(slot.alias, servers=slot.transactional_id, reason=why) from refused
    slot.end_aborted()
    log.warning(
        "%s: a transaction was open in [%d, %d) of %s; if it is of this id, it is aborted now",
        *(slot.transactional_id, stable, high, partition),
    )


def abort_pending_progress(slot: SlotProducer, partition: TopicPartition) -> None:
    """Abort a new transaction with progress in it. Its marker ends pending progress of this id.

    A broker that was frozen may accept a transaction's progress after that transaction has ended.
    Only the same producer's next transaction ends it (KIP-664, KIP-890). Such progress belongs to
    an aborted transaction or is a duplicate: `commit` continues only after progress is
    acknowledged.
    """
    slot.begin()
    slot.send_progress({partition: Progress(0, "", "")})
    slot.end_aborted()
