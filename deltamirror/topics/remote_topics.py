"""Create and expand a flow's remote topics, and know their topic ids."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from deltamirror.context import MirrorContext
from pipeline.topics.remote_topics import (
    AddPartitions,
    CreateTopic,
    RefusedTopic,
    missing_topics,
    plan_remote_topics,
)
from schemas.config.config import FlowConfig
from schemas.errors.base import PartitionError
from schemas.errors.environment import PermissionMissingError
from schemas.errors.target import TargetTopicError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition
from schemas.kafka.topic import Topic


class RemoteTopics:
    """The remote topics of *flow*: their ids, and why a topic or partition cannot be written to."""

    def __init__(self, context: MirrorContext, flow: FlowConfig) -> None:
        self._context, self._config = context, flow
        self._topics: dict[str, Topic] = {}
        self._refused: dict[str, PartitionError] = {}
        self._refused_at: dict[str, float] = {}
        self._unavailable: dict[TopicPartition, str] = {}
        self._read_at = float("-inf")

    def reset(self) -> None:
        """Read the target again at the next refresh, and retry refused topics."""
        self._refused.clear()
        self._read_at = float("-inf")

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Create and expand the remote topics that staged *partitions* need.

        The source is read only if a remote topic is missing or too small. Raises UnreachableError.
        """
        self._retry_due()
        needed: dict[str, int] = {}
        for p in partitions:
            if self._config.replicates(p.topic) and self._error_of(p) is None:
                needed[p.topic] = max(needed.get(p.topic, 0), p.partition + 1)
        is_fresh = time.monotonic() - self._read_at < self._context.timings.topics_max_age_s
        if not needed or (is_fresh and self._has_topics(needed)):
            return
        names = {self._config.remote_topic(topic) for topic in needed}
        target = self._context.cluster(self._config.flow.target)
        self._topics = target.topics(names)
        self._read_at = time.monotonic()
        if not self._has_topics(needed):
            hidden = target.unauthorized_topics(names - self._topics.keys())
            self._exclude_failed({t: hidden.get(self._config.remote_topic(t)) for t in needed})
            self._create({t: n for t, n in needed.items() if t not in self._refused})
            self._topics = target.topics(names)
        self._exclude_failed({t: self._missing_permission(t) for t in needed})
        remote = {
            TopicPartition(t.name, i) for t in self._topics.values() for i in t.in_sync_counts
        }
        self._unavailable = target.write_failure_reasons(self._topics, remote) if remote else {}

    def _retry_due(self) -> None:
        """Retry topics for which a permission was missing, one topic refresh interval later."""
        interval, now = self._config.refresh_topics_interval_s or float("inf"), time.monotonic()
        for topic, error in list(self._refused.items()):
            is_due = now - self._refused_at[topic] > interval
            if is_due and isinstance(error, PermissionMissingError):
                del self._refused[topic]

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Return the id of the remote topic of *partition*; None if it has no target partition."""
        found = self._topics.get(self._config.remote_topic(partition.topic))
        return found.topic_id if found and partition.partition < found.partitions else None

    def unavailable_reason(self, target: TopicPartition) -> str | None:
        """Return why *target* accepts no records now; None if no reason is known.

        If a transaction wrote to such a partition, it could be neither committed nor aborted until
        the partition accepts records again, and its slot could begin no other transaction.
        """
        return self._unavailable.get(target)

    def partition_errors(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionError]:
        """Return the errors of the staged *partitions* that have no target partition."""
        return {p: error for p in partitions if (error := self._error_of(p)) is not None}

    def _error_of(self, partition: TopicPartition) -> PartitionError | None:
        # If a topic could not be expanded, its existing partitions continue.
        if self.topic_id(partition) is not None:
            return None
        return self._refused.get(partition.topic)

    def _has_topics(self, needed: dict[str, int]) -> bool:
        return all(
            (found := self._topics.get(self._config.remote_topic(topic))) is not None
            and found.partitions >= count
            for topic, count in needed.items()
        )

    def _exclude_failed(self, errors: Mapping[str, PartitionError | None]) -> None:
        """Exclude the topics that have an error; `_retry_due` includes them again."""
        for topic, error in errors.items():
            if error is not None:
                self._exclude(topic, error)
                self._topics.pop(self._config.remote_topic(topic), None)

    def _exclude(self, topic: str, error: PartitionError) -> None:
        self._refused[topic], self._refused_at[topic] = error, time.monotonic()

    def _missing_permission(self, topic: str) -> PermissionMissingError | None:
        """Return an error if the remote topic of *topic* exists and may not be written or read."""
        target, name = self._config.flow.target, self._config.remote_topic(topic)
        found = self._topics.get(name)
        # Kafka requires Read on a topic to commit offsets, and so progress, for it.
        for operation, code in (("Write", "WRITE"), ("Read", "READ")):
            if found is not None and found.is_denied(code):
                what = f"allow replay into {name}"
                return PermissionMissingError(target, what, Permission(operation, "topic", name))
        return None

    def _create(self, needed: dict[str, int]) -> None:
        """Create missing topics and partitions, with the source's partition counts and configs."""
        flow = self._config
        source = self._context.cluster(flow.flow.source)
        topics = {n: t for n, t in source.topics(list(needed)).items() if n in needed}
        for name, topic in topics.items():
            if topic.is_denied("DESCRIBE_CONFIGS"):
                permission = Permission("DescribeConfigs", "topic", name)
                what = f"describe the configs of {name}"
                error = PermissionMissingError(flow.flow.source, what, permission)
                self._exclude_failed({name: error})
        topics = {n: t for n, t in topics.items() if n not in self._refused}
        configs = source.topic_configs(missing_topics(flow, topics, self._topics))
        for gone in needed.keys() - topics.keys() - self._refused.keys():
            if (remote := flow.remote_topic(gone)) not in self._topics:
                reason = (
                    f"topic {remote} cannot be created on {flow.flow.target}: its source topic is "
                    f"no longer on {flow.flow.source}, so its configs are unknown"
                )
                self._exclude(gone, TargetTopicError(reason))
        target = self._context.cluster(flow.flow.target)
        new: dict[str, CreateTopic] = {}
        for step in plan_remote_topics(flow, topics, configs, self._topics):
            match step:
                case CreateTopic():
                    new[step.topic.name] = step
                case AddPartitions():
                    try:
                        target.add_partitions(step.name, step.total)
                    except (TargetTopicError, PermissionMissingError) as failure:
                        self._exclude(step.source_topic, failure)
                case RefusedTopic():
                    self._exclude(step.source_topic, step.error)
        for name, made in target.create_topics([step.topic for step in new.values()]).items():
            if isinstance(made, PartitionError):
                self._exclude(new[name].source_topic, made)
