"""Convert a producer's errors to deltamirror's errors."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import PermissionMissingError, UnreachableError
from schemas.errors.target import BatchRejectedError, CommitUnknownError, FencedError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition
from schemas.replay.point_in_time import ReplayFlow

# Codes of delivery reports if the target refuses this record or this partition. Any other code
# (purged, timed out, fenced) concerns the producer and not a single partition.
RECORD_ERRORS = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def error_for(
    error: KafkaException,
    flow: Flow | ReplayFlow,
    transactional_id: str,
    refused: Mapping[TopicPartition, str],
) -> DeltamirrorError:
    """Return deltamirror's error for a producer's *error*.

    *refused* are the partitions with delivery reports in RECORD_ERRORS, and the reasons.
    """
    cause: KafkaError = error.args[0]
    ids = Permission("Write", "transactional-id", f"{transactional_id.rpartition('.')[0]}.", True)
    group = Permission("Read", "group", flow.progress_group)
    for needed, what in ((ids, "open a transaction"), (group, f"commit progress of {flow.name}")):
        if needed.is_missed_by(cause.name()):
            return PermissionMissingError(flow.target, what, needed)
    if cause.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return FencedError(transactional_id)
    if refused or cause.txn_requires_abort():
        return BatchRejectedError(cause.str(), partitions=dict(refused))
    if cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return UnreachableError(flow.target, servers=transactional_id, reason=cause.str())
    return CommitUnknownError(transactional_id, reason=cause.str())
