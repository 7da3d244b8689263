"""Describe, create, expand and delete topics; read and alter their configs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, topic_id_text
from resources.librdkafka.bindings import free_leaked_topic_id
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import PermissionMissingError
from schemas.errors.target import TargetTopicError
from schemas.kafka.acl import Permission
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec

log = logging.getLogger(__name__)

# Topics in one request, so that a cluster of thousands of topics does not need one huge answer.
BATCH_SIZE = 200

# Partitions created by one request: Kafka allows 10,000 (ReplicationControlManager), and all must
# have leaders within REQUEST_TIMEOUT_S.
BATCH_PARTITIONS = 1_000

# A request to create topics or partitions also waits until the brokers know them.
_CHANGE_TIMEOUTS = {"operation_timeout": REQUEST_TIMEOUT_S, "request_timeout": REQUEST_TIMEOUT_S}

# The client's codes for a missing topic or partition.
MISSING_CODES = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")

CreatedTopics = dict[str, str | TargetTopicError | PermissionMissingError]
"""The id of each created topic, or its error."""


class TopicAdmin:
    """The requests of `KafkaCluster` about topics and their configs."""

    _admin: AdminSession

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Return the topics *names*, or all topics. Missing topics are left out.

        A topic that the cluster refuses to describe is left out and logged.
        """
        if names is None:
            names = self._admin.metadata("list topics").topics.keys()
        found, refused = self._describe(names)
        for error in refused.values():
            # Callers that need the topic call `unauthorized_topics`.
            level = logging.INFO if isinstance(error, PermissionMissingError) else logging.WARNING
            log.log(level, "%s", error)
        return {name: _topic(description) for name, description in found.items()}

    def unauthorized_topics(self, names: Collection[str]) -> dict[str, PermissionMissingError]:
        """Return those of *names* that the user may not describe, whether they exist or not."""
        _, refused = self._describe(names)
        return {n: e for n, e in refused.items() if isinstance(e, PermissionMissingError)}

    def create_topics(self, wanted: Iterable[TopicSpec]) -> CreatedTopics:
        """Create topics, many in one request; return the id or the error of each.

        Waits until the created topics have leaders. An existing topic is not changed.
        """
        results: CreatedTopics = {}
        for batch in _create_batches(wanted):
            least = {topic.name: topic.partitions for topic in batch}
            futures = self._admin.client.create_topics(
                [
                    NewTopic(t.name, t.partitions, t.replication_factor, config=dict(t.configs))
                    for t in batch
                ],
                **_CHANGE_TIMEOUTS,
            )
            _, refused = self._answers(futures, "create topic {}", "Create")
            for name, error in refused.items():
                if isinstance(error, PermissionMissingError):
                    results[name] = error
                elif error.code == "TOPIC_ALREADY_EXISTS":
                    least[name] = 1
                else:
                    results[name] = TargetTopicError(str(error))
            results |= self._await_partitions({n: c for n, c in least.items() if n not in results})
        return results

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the partitions of topic *name* to *total*; do nothing if it has as many.

        Raises TargetTopicError if the cluster does not add them, PermissionMissingError.
        """
        wanted = [NewPartitions(name, total)]
        futures = self._admin.client.create_partitions(wanted, **_CHANGE_TIMEOUTS)
        action = f"increase topic {{}} to {total} partitions"
        _, refused = self._answers(futures, action, "Alter")
        for error in refused.values():
            if isinstance(error, PermissionMissingError):
                raise error
            # Kafka also returns INVALID_PARTITIONS if another client has just added them.
            if error.code != "INVALID_PARTITIONS" or self._partition_count(name) < total:
                raise TargetTopicError(str(error))
        found = self._await_partitions({name: total})[name]
        if not isinstance(found, str):
            raise found

    def _partition_count(self, name: str) -> int:
        """Return the number of partitions of the topic *name*, 0 if it does not exist."""
        found = self.topics([name]).get(name)
        return found.partitions if found else 0

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return all configs of the topics *names*.

        A topic whose configs the cluster refuses to return is left out and logged.
        """
        configs: dict[str, dict[str, ConfigValue]] = {}
        for batch in _batches(names):
            futures = self._admin.client.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in batch],
                request_timeout=REQUEST_TIMEOUT_S,
            )
            action = "describe the configs of topic {}"
            found, refused = self._answers(futures, action, "DescribeConfigs")
            for error in refused.values():
                log.warning("%s", error)
            for name, entries in found.items():
                configs[name] = {key: _config_value(entry) for key, entry in entries.items()}
        return configs

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, RequestRefusedError]:
        """Set the configs in *changes*, by topic; None deletes the topic's own value.

        Other configs stay. Return the error of each topic whose changes were refused; none of that
        topic's configs is changed.
        """
        errors: dict[str, RequestRefusedError] = {}
        for batch in _batches(changes):
            futures = self._admin.client.incremental_alter_configs(
                [_config_change(name, changes[name]) for name in batch],
                request_timeout=REQUEST_TIMEOUT_S,
            )
            _, refused = self._answers(futures, "alter the configs of topic {}", "AlterConfigs")
            errors |= refused
        return errors

    def _describe(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicDescription], dict[str, RequestRefusedError]]:
        """Return the descriptions and the errors of *names*; missing topics are left out."""
        descriptions: dict[str, TopicDescription] = {}
        errors: dict[str, RequestRefusedError] = {}
        for batch in _batches(names):
            futures = self._admin.client.describe_topics(
                TopicCollection(batch),
                include_authorized_operations=True,
                request_timeout=REQUEST_TIMEOUT_S,
            )
            found, refused = self._answers(futures, "describe topic {}", "Describe")
            for description in found.values():
                free_leaked_topic_id(description)
            descriptions |= found
            errors |= {n: error for n, error in refused.items() if error.code not in MISSING_CODES}
        return descriptions, errors

    def _answers(
        self, futures: Mapping[Any, Future[Any]], action: str, operation: str
    ) -> tuple[dict[str, Any], dict[str, RequestRefusedError]]:
        """Return the answer or the error of each topic.

        *action* completes "the cluster refused to ...", with `{}` for the topic's name. The user
        needs the permission for *operation*.
        """
        answers: dict[str, Any] = {}
        refused: dict[str, RequestRefusedError] = {}
        for key, future in futures.items():
            name = key.name if isinstance(key, ConfigResource) else key
            needed = Permission(operation, "topic", name)
            try:
                answers[name] = self._admin.wait_result(future, action.format(name), needed)
            except RequestRefusedError as error:
                refused[name] = error
        return answers, refused

    def _await_partitions(self, least: Mapping[str, int]) -> CreatedTopics:
        """Wait until *least* partitions of each topic have a leader; return ids and errors."""
        results: CreatedTopics = {}
        give_up_at = time.monotonic() + REQUEST_TIMEOUT_S
        while (left := least.keys() - results.keys()) and time.monotonic() < give_up_at:
            found, refused = self._describe(left)
            for name, description in found.items():
                if sum(map(_has_leader, description.partitions)) >= least[name]:
                    results[name] = topic_id_text(description.topic_id)
            for name, error in refused.items():
                if isinstance(error, PermissionMissingError):
                    results[name] = error
            if len(results) < len(least):
                time.sleep(0.02)
        for name in left:
            results[name] = TargetTopicError(
                f"cluster {self._admin.alias}: fewer than {least[name]} partitions of topic {name} "
                f"have a leader {REQUEST_TIMEOUT_S:.0f} s after they were created"
            )
        return results


def _config_change(topic: str, configs: Mapping[str, str | None]) -> ConfigResource:
    delete, put = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    entries = [
        ConfigEntry(name, value, incremental_operation=delete if value is None else put)
        for name, value in configs.items()
    ]
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)


def _config_value(entry: ConfigEntry) -> ConfigValue:
    return ConfigValue(
        value=entry.value,
        source=ConfigSource(entry.source).name,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
    )


def _create_batches(wanted: Iterable[TopicSpec]) -> Iterator[list[TopicSpec]]:
    """Yield *wanted* in batches of one request each."""
    batch: list[TopicSpec] = []
    partitions = 0
    for topic in wanted:
        partitions += max(1, topic.partitions)
        if batch and (len(batch) == BATCH_SIZE or partitions > BATCH_PARTITIONS):
            yield batch
            batch, partitions = [], max(1, topic.partitions)
        batch.append(topic)
    if batch:
        yield batch


def _topic(found: TopicDescription) -> Topic:
    return Topic(
        name=found.name,
        topic_id=topic_id_text(found.topic_id),
        partitions=len(found.partitions),
        is_internal=bool(found.is_internal),
        in_sync_counts={
            each.id: len(each.isr) if _has_leader(each) else 0
            for each in found.partitions
            if not _has_leader(each) or len(each.isr) < len(each.replicas)
        },
        authorized_operations=frozenset(each.name for each in found.authorized_operations or ()),
    )


def _has_leader(partition: Any) -> bool:  # noqa: ANN401 - the client's class has no public name
    return partition.leader is not None and partition.leader.id >= 0


def _batches(names: Iterable[str]) -> Iterable[list[str]]:
    ordered = sorted(set(names))
    return (ordered[i : i + BATCH_SIZE] for i in range(0, len(ordered), BATCH_SIZE))
