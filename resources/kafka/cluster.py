"""Administer a Kafka cluster: topics, ACLs, offsets and groups.

Every call waits about 10 s at most. It raises UnreachableError if no broker answers,
RequestRefusedError if the cluster refuses the request. Other modules read and write records.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import (
    ClusterMetadata,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from resources.kafka import acls, groups, topics
from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from resources.kafka.topics import MISSING_CODES
from schemas.errors.base import DeltamirrorError, RequestRefusedError
from schemas.errors.environment import PermissionMissingError, UnreachableError
from schemas.errors.source import TopicMissingError
from schemas.errors.target import TargetTopicError
from schemas.kafka.acl import Permission, TopicAcl
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec

EARLIEST: OffsetSpec = OffsetSpec.earliest()
LATEST: OffsetSpec = OffsetSpec.latest()

MIN_INSYNC_REPLICAS = "min.insync.replicas"

# A broker's errors if the client asks an earlier leader, or a leader of an earlier incarnation.
STALE_LEADER_CODES = (
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
)


class KafkaCluster:
    """The cluster *alias*, reached with librdkafka's administration *settings*."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self._admin = AdminSession(alias, settings)

    def open(self) -> None:
        """Create the client without a request. Raises ClientSettingsError if settings are wrong."""
        _ = self._admin.client

    def probe(self, timeout_s: float = 3.0) -> None:
        """Wait until the cluster answers. Raises UnreachableError after *timeout_s* seconds."""
        self._metadata(timeout_s)

    def cluster_id(self) -> str:
        """Return the cluster id."""
        return str(self._metadata(REQUEST_TIMEOUT_S).cluster_id)

    def _metadata(self, timeout_s: float) -> ClusterMetadata:
        # Not `describe_cluster`: a starting broker answers it with an empty list of brokers, and
        # then librdkafka 2.16 aborts the process (an assertion in rd_kafka_admin_response_parse).
        with self._admin.converted_errors("return its metadata"):
            return self._admin.client.list_topics(timeout=timeout_s)

    # Topics

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Return the topics *names*, or all topics. Missing topics are left out.

        A topic that the cluster refuses to describe is left out and logged.
        """
        return topics.describe_topics(self._admin, names)

    def unauthorized_topics(self, names: Collection[str]) -> dict[str, PermissionMissingError]:
        """Return those of *names* that the user may not describe, with the error."""
        return topics.unauthorized_topics(self._admin, names)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> str:
        """Create a topic; return its id after its partitions have leaders.

        An existing topic is not changed. A *replication_factor* of -1 is the brokers' default.
        Raises TargetTopicError if the cluster does not create it, PermissionMissingError.
        """
        wanted = TopicSpec(name, partitions, replication_factor, configs)
        made = self.create_topics([wanted])[name]
        if isinstance(made, DeltamirrorError):
            raise made
        return made

    def create_topics(
        self, wanted: Iterable[TopicSpec]
    ) -> dict[str, str | TargetTopicError | PermissionMissingError]:
        """Create topics, many in one request; return the id or the error of each.

        Waits until the leaders of the created topics answer. An existing topic is not changed.
        """
        wanted = list(wanted)
        made = topics.create_topics(self._admin, wanted)
        self._await_leaders(
            TopicPartition(topic.name, number)
            for topic in wanted
            if isinstance(made[topic.name], str)
            for number in range(topic.partitions)
        )
        return made

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the partitions of topic *name* to *total*; do nothing if it has as many.

        Raises TargetTopicError if the cluster does not add them, PermissionMissingError.
        """
        topics.add_partitions(self._admin, name, total)
        self._await_leaders(TopicPartition(name, number) for number in range(total))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the topics *names*. A missing topic is no error."""
        topics.delete_topics(self._admin, names)

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return all configs of the topics *names*.

        A topic whose configs the cluster refuses to return is left out and logged.
        """
        return topics.describe_configs(self._admin, names)

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, DeltamirrorError]:
        """Set the configs in *changes*, by topic; None deletes the topic's own value.

        Other configs stay. Return the error of each topic whose changes were refused; none of that
        topic's configs is changed.
        """
        return topics.alter_configs(self._admin, changes)

    # ACLs of topics

    def topic_acls(self) -> set[TopicAcl]:
        """Return the ACLs of topics with a literal name, or `*`.

        The set is also empty if the cluster has no authorizer or does not allow the user to
        describe ACLs.
        """
        return acls.list_acls(self._admin)

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, RequestRefusedError]:
        """Create the ACLs *wanted*; return the refused ones with their errors."""
        return acls.create_acls(self._admin, wanted)

    # Offsets

    def watermarks(
        self,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, Watermarks] | None = None,
    ) -> dict[TopicPartition, Watermarks | DeltamirrorError]:
        """Return the watermarks of each partition, or its error.

        A partition's *known* watermarks are returned if its last stable offset and leader epoch are
        unchanged. Log start and high watermark are requested only for the other partitions. The
        last stable offset is requested before the high watermark, so it is never above it. For
        partitions that are not known the log start is requested first, so it is never above them.
        """
        known = known or {}
        low, no_low = self._list_offsets(
            {each: EARLIEST for each in partitions if each not in known}
        )
        requested = [each for each in partitions if each not in no_low]
        stable, no_stable = self._list_offsets(
            dict.fromkeys(requested, LATEST), kafka.IsolationLevel.READ_COMMITTED
        )
        same = {
            each: known[each]
            for each, at in stable.items()
            if each in known and (at.offset, at.leader_epoch) == known[each].end_state
        }
        moved = [each for each in stable if each in known and each not in same]
        moved_low, no_moved_low = self._list_offsets(dict.fromkeys(moved, EARLIEST))
        low |= moved_low
        high, no_high = self._list_offsets(
            {each: LATEST for each in stable if each in low and each not in same}
        )
        return {
            **no_low,
            **no_stable,
            **no_moved_low,
            **no_high,
            **same,
            **{each: _watermarks(low[each], stable[each], high[each]) for each in high},
        }

    def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | DeltamirrorError]:
        """Return the high watermark of each partition, or its error."""
        found, failures = self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {**failures, **{each: at.offset for each, at in found.items()}}

    def write_failure_reasons(
        self, described: Mapping[str, Topic], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return those of *partitions* that accept no records now, with the reason.

        *described* are their topics. A partition accepts records if it has a leader and at least
        `min.insync.replicas` replicas in sync, or all its replicas in sync. Raises
        UnreachableError.
        """
        in_sync_counts = {
            each: topic.in_sync_counts[each.partition]
            for each in partitions
            if (topic := described.get(each.topic)) and each.partition in topic.in_sync_counts
        }
        if not in_sync_counts:
            return {}
        configs = self.topic_configs({each.topic for each in in_sync_counts})
        found = {}
        for each, in_sync in in_sync_counts.items():
            needed = configs.get(each.topic, {}).get(MIN_INSYNC_REPLICAS)
            if in_sync == 0:
                found[each] = "it has no leader"
            elif needed is not None and in_sync < int(needed.value or 1):
                found[each] = (
                    f"{in_sync} of its replicas in sync, {MIN_INSYNC_REPLICAS} is {needed.value}"
                )
        return found

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or after its time, in ms.

        If there is none, it is the high watermark. Raises the first partition's error.
        """
        found, failures = self._list_offsets(
            {each: OffsetSpec.for_timestamp(time_ms) for each, time_ms in times_ms.items()}
        )
        end_offsets, late_failures = self._list_offsets(dict.fromkeys(found, LATEST))
        for failure in (*failures.values(), *late_failures.values()):
            raise failure
        return {
            each: end_offsets[each].offset if at.offset < 0 else at.offset
            for each, at in found.items()
        }

    # Groups

    def groups(self) -> dict[str, str]:
        """Return the state (`STABLE`, `EMPTY`, ...) of every consumer and Streams group by its id.

        It is UNKNOWN if the client cannot request it, as for Streams groups (KIP-1071).
        """
        return groups.list_groups(self._admin)

    def worker_state(self, group: str) -> str:
        """Return the state of a group of Connect workers, or DEAD if it does not exist."""
        return groups.worker_state(self._admin, group)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return all committed offsets of *group*."""
        return {each: offset for each, (offset, _) in self.group_commits(group).items()}

    def group_commits(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Return all committed offsets of *group*, each with its metadata."""
        return groups.list_committed_offsets(self._admin, group)

    def committed_offsets(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        require_stable: bool = True,
    ) -> dict[TopicPartition, tuple[int, str] | None]:
        """Return committed offset and metadata of our own *group*, or None if it has none.

        With *require_stable* this waits up to 10 s for offsets in an open transaction.
        """
        return groups.committed_offsets(
            self._admin, group, partitions, require_stable=require_stable
        )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Set the committed offsets of *group*, each with its metadata; create it if it is missing.

        Raises GroupActiveError if the group has members.
        """
        groups.alter_offsets(self._admin, group, offsets)

    def _list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        isolation: kafka.IsolationLevel = kafka.IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        """Return the leaders' answers, and the errors of the other partitions."""
        found, failures = self._request_offsets(specs, isolation)
        stale = {each for each, failure in failures.items() if _is_stale(failure)}
        if stale:
            # The client does not refresh its metadata after this error, so request it here.
            with self._admin.converted_errors("list topics"):
                self._admin.client.list_topics(timeout=REQUEST_TIMEOUT_S)
            more, still = self._request_offsets({each: specs[each] for each in stale}, isolation)
            found.update(more)
            failures = {e: f for e, f in failures.items() if e not in stale} | still
        return found, failures

    def _await_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until the leaders of *partitions* accept requests, at most REQUEST_TIMEOUT_S.

        The cluster's metadata names a leader before that broker has become the leader.
        """
        left, give_up_at = set(partitions), time.monotonic() + REQUEST_TIMEOUT_S
        while left:
            _, failures = self._list_offsets(dict.fromkeys(left, LATEST))
            left = {each for each, failure in failures.items() if _is_stale(failure)}
            if not left or time.monotonic() > give_up_at:
                return
            time.sleep(0.02)  # Kafka has no event for it

    def _request_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: kafka.IsolationLevel
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        requested = {
            kafka.TopicPartition(each.topic, each.partition): spec for each, spec in specs.items()
        }
        if not requested:
            return {}, {}
        futures = self._admin.client.list_offsets(
            requested, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
        )
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        failures: dict[TopicPartition, DeltamirrorError] = {}
        for at, future in futures.items():
            partition = TopicPartition(at.topic, at.partition)
            try:
                needed = Permission("Describe", "topic", partition.topic)
                answer = self._admin.wait_result(future, f"list offsets of {partition}", needed)
                if answer.offset == kafka.OFFSET_INVALID:  # set by the client if no answer came
                    raise UnreachableError(
                        self.alias, servers=f"{partition}", reason="it returned no offset"
                    )
                found[partition] = answer
            except RequestRefusedError as refused:
                failures[partition] = self._missing_error(partition, refused.code) or refused
            except UnreachableError as unreachable:
                failures[partition] = unreachable
        return found, failures

    def _missing_error(self, partition: TopicPartition, code: str) -> TopicMissingError | None:
        # The client returns _NOENT if none of the requested partitions has a leader, whether they
        # exist or not.
        maybe = code == "_NOENT" and self._is_missing(partition)
        if maybe or code in MISSING_CODES:
            return TopicMissingError(str(partition), location=f"on cluster {self.alias}")
        return None

    def _is_missing(self, partition: TopicPartition) -> bool:
        return topics.partition_count(self._admin, partition.topic) <= partition.partition


def _watermarks(
    low: ListOffsetsResultInfo, stable: ListOffsetsResultInfo, high: ListOffsetsResultInfo
) -> Watermarks:
    # If the log was truncated or re-created between the three requests, its high watermark is
    # below the earlier answers. The last answer counts: limit the others by it.
    lowered = min(stable.offset, high.offset)
    return Watermarks(min(low.offset, lowered), lowered, high.offset, high.leader_epoch)


def _is_stale(failure: DeltamirrorError) -> bool:
    """Return whether the client used outdated metadata: an earlier leader or leader epoch."""
    return isinstance(failure, RequestRefusedError) and failure.code in STALE_LEADER_CODES
