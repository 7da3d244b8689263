"""Administer a Kafka cluster: topics, ACLs, offsets and groups.

Every call waits about 10 s at most. It raises UnreachableError if no broker answers,
RequestRefusedError if the cluster refuses the request. Other modules read and write records.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from resources.kafka.acls import AclAdmin
from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from resources.kafka.groups import GroupAdmin
from resources.kafka.topics import MISSING_CODES, CreatedTopics, TopicAdmin
from schemas.errors.base import DeltamirrorError, RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.errors.source import TopicMissingError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic, TopicSpec

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


class KafkaCluster(TopicAdmin, AclAdmin, GroupAdmin):
    """The cluster *alias*, reached with librdkafka's administration *settings*."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self._admin = AdminSession(alias, settings)

    def open(self) -> None:
        """Create the client without a request. Raises ClientSettingsError if settings are wrong."""
        _ = self._admin.client

    def probe(self, timeout_s: float = 3.0) -> None:
        """Wait until the cluster answers. Raises UnreachableError after *timeout_s* seconds."""
        self._admin.metadata("return its metadata", timeout_s)

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

    def create_topics(self, wanted: Iterable[TopicSpec]) -> CreatedTopics:
        """Create topics as `TopicAdmin` does; also wait until their leaders answer."""
        wanted = list(wanted)
        made = super().create_topics(wanted)
        self._await_leaders(
            TopicPartition(topic.name, number)
            for topic in wanted
            if isinstance(made[topic.name], str)
            for number in range(topic.partitions)
        )
        return made

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the partitions as `TopicAdmin` does; also wait until their leaders answer."""
        super().add_partitions(name, total)
        self._await_leaders(TopicPartition(name, number) for number in range(total))

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
        found = {each: _watermarks(low[each], stable[each], high[each]) for each in high}
        return {**no_low, **no_stable, **no_moved_low, **no_high, **same, **found}

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

    def _list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        isolation: kafka.IsolationLevel = kafka.IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        """Return the leaders' answers, and the errors of the other partitions."""
        found, failures = self._request_offsets(specs, isolation)
        stale = {each: specs[each] for each, failure in failures.items() if _is_stale(failure)}
        if stale:
            # The client does not refresh its metadata after this error, so request it here.
            self._admin.metadata("list topics")
            more, still = self._request_offsets(stale, isolation)
            found |= more
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
                    why = "it returned no offset"
                    raise UnreachableError(self.alias, servers=str(partition), reason=why)
                found[partition] = answer
            except RequestRefusedError as refused:
                failures[partition] = self._missing_error(partition, refused.code) or refused
            except UnreachableError as unreachable:
                failures[partition] = unreachable
        return found, failures

    def _missing_error(self, partition: TopicPartition, code: str) -> TopicMissingError | None:
        # The client returns _NOENT if none of the requested partitions has a leader, whether they
        # exist or not.
        if code == "_NOENT":
            is_missing = self._partition_count(partition.topic) <= partition.partition
        else:
            is_missing = code in MISSING_CODES
        location = f"on cluster {self.alias}"
        return TopicMissingError(str(partition), location=location) if is_missing else None


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
