"""A Kafka cluster as a place: its topics, its offsets, its groups. Records travel elsewhere.

Every call waits at most some ten seconds, and raises UnreachableError where nobody answers,
RequestRefusedError where the cluster says no.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import (
    ClusterMetadata,
    ConfigResource,
    ConfigSource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from resources import groups
from resources.admin import WAIT_S, AdminSession, topic_id_text
from schemas.errors import (
    DeltamirrorError,
    RequestRefusedError,
    TargetTopicError,
    TopicMissingError,
    UnreachableError,
)
from schemas.topic import ConfigValue, Topic
from schemas.topic_partition import TopicPartition
from schemas.watermarks import Watermarks

log = logging.getLogger(__name__)

# Names asked for in one request: a cluster of thousands of topics must not need one huge answer.
BATCH = 200

EARLIEST: OffsetSpec = OffsetSpec.earliest()
LATEST: OffsetSpec = OffsetSpec.latest()

IN_SYNC = "min.insync.replicas"

# How the client says that a topic, or a partition of it, is not there.
MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")


# How a broker says that the client knows a former leader of the partition, or of its former life.
STALE = (
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

    def probe(self, timeout_s: float = 3.0) -> None:
        """Return when the cluster has answered. Raises UnreachableError within *timeout_s*."""
        self._metadata(timeout_s)

    def cluster_id(self) -> str:
        """Return the id that the cluster gave itself."""
        return str(self._metadata(WAIT_S).cluster_id)

    def _metadata(self, timeout_s: float) -> ClusterMetadata:
        # Not `describe_cluster`: a broker that is starting answers it with no broker at all, and
        # librdkafka 2.16 ends the process then (an assertion in rd_kafka_admin_response_parse).
        with self._admin.asking("describe itself"):
            return self._admin.client.list_topics(timeout=timeout_s)

    # Topics

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Return the topics *names*, or all of them; those that are not there are left out.

        A topic that the cluster names but does not describe is left out with a warning.
        """
        if names is None:
            with self._admin.asking("list topics"):
                names = self._admin.client.list_topics(timeout=WAIT_S).topics.keys()
        return {name: _topic(found) for name, found in self._described(names).items()}

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> str:
        """Create a topic and return its id once it is there with its leaders.

        A topic that exists already is left as it is. A *replication_factor* of -1 is the
        brokers' default. Raises TargetTopicError where the cluster does not make it.
        """
        future = self._admin.client.create_topics(
            [NewTopic(name, partitions, replication_factor, config=dict(configs))],
            operation_timeout=WAIT_S,
            request_timeout=WAIT_S,
        )[name]
        try:
            self._admin.answer(future, f"create topic {name}")
        except RequestRefusedError as refused:
            if refused.code != "TOPIC_ALREADY_EXISTS":
                raise TargetTopicError(str(refused)) from None
            partitions = 1
        return self._await_partitions(name, partitions).topic_id

    def add_partitions(self, name: str, total: int) -> None:
        """Give the topic *name* partitions up to *total*; one that has them is left as it is.

        Raises TargetTopicError where the cluster does not add them.
        """
        future = self._admin.client.create_partitions(
            [NewPartitions(name, total)], operation_timeout=WAIT_S, request_timeout=WAIT_S
        )[name]
        try:
            self._admin.answer(future, f"give topic {name} {total} partitions")
        except RequestRefusedError as refused:
            # Kafka says so too where somebody else has just added them.
            if refused.code != "INVALID_PARTITIONS" or self._partitions(name) < total:
                raise TargetTopicError(str(refused)) from None
        self._await_partitions(name, total)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the topics *names*; one that is not there is no error."""
        futures = self._admin.client.delete_topics(
            list(names), operation_timeout=WAIT_S, request_timeout=WAIT_S
        )
        for name, future in futures.items():
            try:
                self._admin.answer(future, f"delete topic {name}")
            except RequestRefusedError as refused:
                if refused.code not in MISSING:
                    raise

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return every setting of the topics *names*; one not told is left out with a warning."""
        found: dict[str, dict[str, ConfigValue]] = {}
        for batch in _batches(names):
            futures = self._admin.client.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in batch],
                request_timeout=WAIT_S,
            )
            for resource, future in futures.items():
                try:
                    entries = self._admin.answer(future, f"tell the settings of {resource.name}")
                except RequestRefusedError as refused:
                    log.warning("%s", refused)
                    continue
                found[resource.name] = {
                    name: ConfigValue(
                        value=entry.value,
                        source=ConfigSource(entry.source).name,
                        is_default=entry.is_default,
                        is_read_only=entry.is_read_only,
                        is_sensitive=entry.is_sensitive,
                    )
                    for name, entry in entries.items()
                }
        return found

    # Offsets

    def watermarks(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Watermarks | DeltamirrorError]:
        """Return what each partition holds, or the error that stands in its way.

        The last stable offset is asked before the high watermark, so it is never past it.
        """
        low, no_low = self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        stable, no_stable = self._list_offsets(
            dict.fromkeys(low, LATEST), kafka.IsolationLevel.READ_COMMITTED
        )
        high, no_high = self._list_offsets(dict.fromkeys(stable, LATEST))
        return {
            **no_low,
            **no_stable,
            **no_high,
            **{each: _watermarks(low[each], stable[each], high[each]) for each in high},
        }

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | DeltamirrorError]:
        """Return the high watermark of each partition, or the error that stands in its way."""
        found, failures = self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {**failures, **{each: at.offset for each, at in found.items()}}

    def why_short(
        self, topics: Mapping[str, Topic], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return which of *partitions*, described in *topics*, take no record now, and why.

        A partition takes records where it has a leader and `min.insync.replicas` replicas in sync,
        as many as it has at most. Raises UnreachableError.
        """
        short = {
            each: topic.short[each.partition]
            for each in partitions
            if (topic := topics.get(each.topic)) and each.partition in topic.short
        }
        if not short:
            return {}
        configs = self.topic_configs({each.topic for each in short})
        found = {}
        for each, there in short.items():
            needed = configs.get(each.topic, {}).get(IN_SYNC)
            if there == 0:
                found[each] = "it has no leader"
            elif needed is not None and there < int(needed.value or 1):
                found[each] = f"{there} of its replicas in sync, {IN_SYNC} is {needed.value}"
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
        ends, late_failures = self._list_offsets(dict.fromkeys(found, LATEST))
        for failure in (*failures.values(), *late_failures.values()):
            raise failure
        return {
            each: ends[each].offset if at.offset < 0 else at.offset for each, at in found.items()
        }

    # Groups

    def groups(self) -> dict[str, str]:
        """Return the state of every consumer group (`STABLE`, `EMPTY`, ...) by its id."""
        return groups.listed(self._admin)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return every offset that *group* has committed: the next record it will read."""
        return groups.all_committed(self._admin, group)

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        require_stable: bool = True,
    ) -> dict[TopicPartition, tuple[int, str] | None]:
        """Return offset and metadata of our own *group*; None where it has committed nothing.

        With *require_stable* an offset in an open transaction is waited for, up to 10 s.
        """
        return groups.committed(self._admin, group, partitions, require_stable=require_stable)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Set the offsets of *group*, each with its metadata; the group may be new.

        Raises GroupActiveError where the group has members.
        """
        groups.commit(self._admin, group, offsets)

    # Inside

    def _described(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        for batch in _batches(names):
            futures = self._admin.client.describe_topics(
                kafka.TopicCollection(batch), request_timeout=WAIT_S
            )
            for name, future in futures.items():
                try:
                    found[name] = self._admin.answer(future, f"describe topic {name}")
                except RequestRefusedError as refused:
                    if refused.code not in MISSING:
                        log.warning("%s", refused)
        return found

    def _partitions(self, name: str) -> int:
        found = self.topics([name]).get(name)
        return 0 if found is None else found.partitions

    def _await_partitions(self, name: str, partitions: int) -> Topic:
        """Return the topic *name* once *partitions* of it have a leader."""
        give_up_at = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_at:
            found = self._described([name]).get(name)
            if found is not None and sum(_has_leader(each) for each in found.partitions) >= (
                partitions
            ):
                return _topic(found)
            time.sleep(0.02)
        raise TargetTopicError(
            f"cluster {self.alias}: topic {name} has no {partitions} partitions with a leader "
            f"{WAIT_S:.0f} s after it was made"
        )

    def _list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        isolation: kafka.IsolationLevel = kafka.IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        """Return what the partitions' leaders say, and the errors of the partitions left over."""
        found, failures = self._ask_leaders(specs, isolation)
        stale = {each for each, failure in failures.items() if _is_stale(failure)}
        if stale:
            # The client takes this for the cluster's last word, and asks no more who leads.
            with self._admin.asking("list topics"):
                self._admin.client.list_topics(timeout=WAIT_S)
            more, still = self._ask_leaders({each: specs[each] for each in stale}, isolation)
            found.update(more)
            failures = {e: f for e, f in failures.items() if e not in stale} | still
        return found, failures

    def _ask_leaders(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: kafka.IsolationLevel
    ) -> tuple[dict[TopicPartition, ListOffsetsResultInfo], dict[TopicPartition, DeltamirrorError]]:
        asked = {
            kafka.TopicPartition(each.topic, each.partition): spec for each, spec in specs.items()
        }
        if not asked:
            return {}, {}
        futures = self._admin.client.list_offsets(
            asked, isolation_level=isolation, request_timeout=WAIT_S
        )
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        failures: dict[TopicPartition, DeltamirrorError] = {}
        for at, future in futures.items():
            partition = TopicPartition(at.topic, at.partition)
            try:
                told = self._admin.answer(future, f"tell the offsets of {partition}")
                if told.offset == kafka.OFFSET_INVALID:  # the client's own, where no answer came
                    raise UnreachableError(self.alias, f"{partition}", "it told no offset")
                found[partition] = told
            except RequestRefusedError as refused:
                failures[partition] = self._missing(partition, refused.code) or refused
            except UnreachableError as unreachable:
                failures[partition] = unreachable
        return found, failures

    def _missing(self, partition: TopicPartition, code: str) -> TopicMissingError | None:
        # "No entry" comes where none of the partitions asked for has a leader, for either reason.
        maybe = code == "_NOENT" and self._partitions(partition.topic) <= partition.partition
        if maybe or code in MISSING:
            return TopicMissingError(str(partition), f"on cluster {self.alias}")
        return None


def _watermarks(
    low: ListOffsetsResultInfo, stable: ListOffsetsResultInfo, high: ListOffsetsResultInfo
) -> Watermarks:
    # A log that is cut (or re-created) between the three answers ends before what it told first;
    # the last answer is the one that still holds.
    lowered = min(stable.offset, high.offset)
    return Watermarks(min(low.offset, lowered), lowered, high.offset, high.leader_epoch)


def _topic(found: TopicDescription) -> Topic:
    return Topic(
        name=found.name,
        topic_id=topic_id_text(found.topic_id),
        partitions=len(found.partitions),
        is_internal=bool(found.is_internal),
        short={
            each.id: len(each.isr) if _has_leader(each) else 0
            for each in found.partitions
            if not _has_leader(each) or len(each.isr) < len(each.replicas)
        },
    )


def _is_stale(failure: DeltamirrorError) -> bool:
    """Return whether the client asked a former leader, or as of a former leader's time."""
    return isinstance(failure, RequestRefusedError) and failure.code in STALE


def _has_leader(partition: Any) -> bool:  # noqa: ANN401 - the client's class has no public name
    return partition.leader is not None and partition.leader.id >= 0


def _batches(names: Iterable[str]) -> Iterable[list[str]]:
    ordered = sorted(set(names))
    return (ordered[i : i + BATCH] for i in range(0, len(ordered), BATCH))
