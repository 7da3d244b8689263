"""A Kafka cluster as a place: its topics, its offsets, its groups. Records travel elsewhere.

Every call waits at most some ten seconds, and raises UnreachableError where nobody answers,
RequestRefusedError where the cluster says no.
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
from schemas.errors import (
    DeltamirrorError,
    PermissionMissingError,
    RequestRefusedError,
    TargetTopicError,
    TopicMissingError,
    UnreachableError,
)
from schemas.kafka.acl import Permission, TopicAcl
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec

EARLIEST: OffsetSpec = OffsetSpec.earliest()
LATEST: OffsetSpec = OffsetSpec.latest()

MIN_INSYNC_REPLICAS = "min.insync.replicas"

# How a broker says that the client knows a former leader of the partition, or of its former life.
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
        """Make the client, without asking the cluster. Raises ConfigError: wrong settings."""
        _ = self._admin.client

    def probe(self, timeout_s: float = 3.0) -> None:
        """Return when the cluster has answered. Raises UnreachableError within *timeout_s*."""
        self._metadata(timeout_s)

    def cluster_id(self) -> str:
        """Return the id that the cluster gave itself."""
        return str(self._metadata(REQUEST_TIMEOUT_S).cluster_id)

    def _metadata(self, timeout_s: float) -> ClusterMetadata:
        # Not `describe_cluster`: a broker that is starting answers it with no broker at all, and
        # librdkafka 2.16 ends the process then (an assertion in rd_kafka_admin_response_parse).
        with self._admin.converted_errors("describe itself"):
            return self._admin.client.list_topics(timeout=timeout_s)

    # Topics

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Return the topics *names*, or all of them; those that are not there are left out.

        A topic that the cluster names but does not describe is left out with a warning.
        """
        return topics.describe_topics(self._admin, names)

    def unauthorized_topics(self, names: Collection[str]) -> dict[str, PermissionMissingError]:
        """Return those of *names* that our user may not describe, with the error that says so."""
        return topics.unauthorized_topics(self._admin, names)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> str:
        """Create a topic and return its id once it is there with its leaders.

        A topic that exists already is left as it is. A *replication_factor* of -1 is the
        brokers' default. Raises TargetTopicError where the cluster does not make it,
        PermissionMissingError.
        """
        wanted = TopicSpec(name, partitions, replication_factor, configs)
        made = self.create_topics([wanted])[name]
        if isinstance(made, DeltamirrorError):
            raise made
        return made

    def create_topics(
        self, wanted: Iterable[TopicSpec]
    ) -> dict[str, str | TargetTopicError | PermissionMissingError]:
        """Create topics, many with one request; return the id of each, or why it is not there.

        They are there once their leaders answer. One that exists already is left as it is.
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
        """Give the topic *name* partitions up to *total*; one that has them is left as it is.

        Raises TargetTopicError where the cluster does not add them.
        """
        topics.add_partitions(self._admin, name, total)
        self._await_leaders(TopicPartition(name, number) for number in range(total))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the topics *names*; one that is not there is no error."""
        topics.delete_topics(self._admin, names)

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return every setting of the topics *names*; one not told is left out with a warning."""
        return topics.describe_configs(self._admin, names)

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, DeltamirrorError]:
        """Set, topic by topic, the settings in *changes*; None takes the topic's own one away.

        Settings that are not named stay. Returns the topics whose changes were refused, with why:
        of such a topic nothing is changed.
        """
        return topics.alter_configs(self._admin, changes)

    # Access rules of topics

    def topic_acls(self) -> set[TopicAcl]:
        """Return the rules that name a topic by its whole name, or `*`.

        There are none also where the cluster has no authorizer, or does not let this user see them.
        """
        return acls.list_acls(self._admin)

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, RequestRefusedError]:
        """Make the rules *wanted*; return those that the cluster refuses, with why."""
        return acls.create_acls(self._admin, wanted)

    # Offsets

    def watermarks(
        self,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, Watermarks] | None = None,
    ) -> dict[TopicPartition, Watermarks | DeltamirrorError]:
        """Return what each partition holds, or the error that stands in its way.

        Those of *known* whose last stable offset and leader epoch are the same still are answered
        with: start and high watermark are asked only of the rest. The last stable offset is asked
        before the high watermark, so it is never past it; of what is not known the start comes
        first, so that it is the start of what is told.
        """
        known = known or {}
        low, no_low = self._list_offsets(
            {each: EARLIEST for each in partitions if each not in known}
        )
        asked = [each for each in partitions if each not in no_low]
        stable, no_stable = self._list_offsets(
            dict.fromkeys(asked, LATEST), kafka.IsolationLevel.READ_COMMITTED
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
        """Return the high watermark of each partition, or the error that stands in its way."""
        found, failures = self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {**failures, **{each: at.offset for each, at in found.items()}}

    def write_failure_reasons(
        self, described: Mapping[str, Topic], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return which of *partitions* take no record now, and why; *described* are their topics.

        A partition takes records where it has a leader and `min.insync.replicas` replicas in sync,
        as many as it has at most. Raises UnreachableError.
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
        for each, there in in_sync_counts.items():
            needed = configs.get(each.topic, {}).get(MIN_INSYNC_REPLICAS)
            if there == 0:
                found[each] = "it has no leader"
            elif needed is not None and there < int(needed.value or 1):
                found[each] = (
                    f"{there} of its replicas in sync, {MIN_INSYNC_REPLICAS} is {needed.value}"
                )
        return found

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or past its time, in ms.

        It is the end of the log (high watermark) where there is none. Raises the first
        partition's error.
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
        """Return the state of every consumer and Streams group (`STABLE`, `EMPTY`, ...) by its id.

        UNKNOWN where the client cannot ask for it, as of Streams groups (KIP-1071).
        """
        return groups.list_groups(self._admin)

    def worker_state(self, group: str) -> str:
        """Return the state of a group of Connect's workers; DEAD where it is not there."""
        return groups.worker_state(self._admin, group)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return every offset that *group* has committed: the next record it will read."""
        return {each: offset for each, (offset, _) in self.group_commits(group).items()}

    def group_commits(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Return every offset that *group* has committed, with the metadata beside it."""
        return groups.list_committed_offsets(self._admin, group)

    def committed_offsets(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        require_stable: bool = True,
    ) -> dict[TopicPartition, tuple[int, str] | None]:
        """Return offset and metadata of our own *group*; None where it has committed nothing.

        With *require_stable* an offset in an open transaction is waited for, up to 10 s.
        """
        return groups.committed_offsets(
            self._admin, group, partitions, require_stable=require_stable
        )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Set the offsets of *group*, each with its metadata; the group may be new.

        Raises GroupActiveError where the group has members.
        """
        groups.alter_offsets(self._admin, group, offsets)

    # Inside

    def _list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        isolation: kafka.IsolationLevel = kafka.IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        """Return what the partitions' leaders say, and the errors of the partitions left over."""
        found, failures = self._request_offsets(specs, isolation)
        stale = {each for each, failure in failures.items() if _is_stale(failure)}
        if stale:
            # The client takes this for the cluster's last word, and asks no more who leads.
            with self._admin.converted_errors("list topics"):
                self._admin.client.list_topics(timeout=REQUEST_TIMEOUT_S)
            more, still = self._request_offsets({each: specs[each] for each in stale}, isolation)
            found.update(more)
            failures = {e: f for e, f in failures.items() if e not in stale} | still
        return found, failures

    def _await_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Return when the leaders of *partitions* have answered, or said no for REQUEST_TIMEOUT_S.

        A cluster tells who leads a partition before that broker knows of it.
        """
        left, give_up_at = set(partitions), time.monotonic() + REQUEST_TIMEOUT_S
        while left:
            _, failures = self._list_offsets(dict.fromkeys(left, LATEST))
            left = {each for each, failure in failures.items() if _is_stale(failure)}
            if not left or time.monotonic() > give_up_at:
                return
            time.sleep(0.02)  # no event tells that a broker leads

    def _request_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: kafka.IsolationLevel
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        asked = {
            kafka.TopicPartition(each.topic, each.partition): spec for each, spec in specs.items()
        }
        if not asked:
            return {}, {}
        futures = self._admin.client.list_offsets(
            asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
        )
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        failures: dict[TopicPartition, DeltamirrorError] = {}
        for at, future in futures.items():
            partition = TopicPartition(at.topic, at.partition)
            try:
                needed = Permission("Describe", "topic", partition.topic)
                told = self._admin.wait_result(future, f"tell the offsets of {partition}", needed)
                if told.offset == kafka.OFFSET_INVALID:  # the client's own, where no answer came
                    raise UnreachableError(
                        self.alias, servers=f"{partition}", reason="it told no offset"
                    )
                found[partition] = told
            except RequestRefusedError as refused:
                failures[partition] = self._missing_error(partition, refused.code) or refused
            except UnreachableError as unreachable:
                failures[partition] = unreachable
        return found, failures

    def _missing_error(self, partition: TopicPartition, code: str) -> TopicMissingError | None:
        # "No entry" comes where none of the partitions asked for has a leader, for either reason.
        maybe = code == "_NOENT" and self._is_missing(partition)
        if maybe or code in MISSING_CODES:
            return TopicMissingError(str(partition), location=f"on cluster {self.alias}")
        return None

    def _is_missing(self, partition: TopicPartition) -> bool:
        return topics.partition_count(self._admin, partition.topic) <= partition.partition


def _watermarks(
    low: ListOffsetsResultInfo, stable: ListOffsetsResultInfo, high: ListOffsetsResultInfo
) -> Watermarks:
    # A log that is cut (or re-created) between the three answers ends before what it told first;
    # the last answer is the one that still holds. Its start may have passed the stable end told.
    lowered = min(stable.offset, high.offset)
    return Watermarks(min(low.offset, lowered), lowered, high.offset, high.leader_epoch)


def _is_stale(failure: DeltamirrorError) -> bool:
    """Return whether the client asked a former leader, or as of a former leader's time."""
    return isinstance(failure, RequestRefusedError) and failure.code in STALE_LEADER_CODES
