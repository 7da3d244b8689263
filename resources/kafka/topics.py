"""Describe, create, expand and delete topics; read and alter their configs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka as kafka
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
from schemas.errors.base import DeltamirrorError, RequestRefusedError
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

# The client's codes for a missing topic or partition.
MISSING_CODES = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")


def describe_topics(admin: AdminSession, names: Collection[str] | None) -> dict[str, Topic]:
    """Return those of the topics *names* (None: all topics) that exist."""
    if names is None:
        with admin.converted_errors("list topics"):
            names = admin.client.list_topics(timeout=REQUEST_TIMEOUT_S).topics.keys()
    found = _descriptions(admin, names)
    for refused in found.values():
        if isinstance(refused, PermissionMissingError):
            log.info("%s", refused)  # callers that need the topic call `unauthorized_topics`
        elif isinstance(refused, RequestRefusedError):
            log.warning("%s", refused)
    return {n: _topic(each) for n, each in found.items() if isinstance(each, TopicDescription)}


def unauthorized_topics(
    admin: AdminSession, names: Collection[str]
) -> dict[str, PermissionMissingError]:
    """Return those of *names* that the user may not describe, whether they exist or not."""
    found = _descriptions(admin, names)
    return {n: each for n, each in found.items() if isinstance(each, PermissionMissingError)}


def partition_count(admin: AdminSession, name: str) -> int:
    """Return the number of partitions of the topic *name*, 0 if it does not exist."""
    found = describe_topics(admin, [name]).get(name)
    return 0 if found is None else found.partitions


def create_topics(
    admin: AdminSession, wanted: Iterable[TopicSpec]
) -> dict[str, str | TargetTopicError | PermissionMissingError]:
    """Create topics and wait for their leaders; return the id or the error of each."""
    results: dict[str, str | TargetTopicError | PermissionMissingError] = {}
    for batch in _create_batches(wanted):
        futures = admin.client.create_topics(
            [
                NewTopic(t.name, t.partitions, t.replication_factor, config=dict(t.configs))
                for t in batch
            ],
            operation_timeout=REQUEST_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        least = {topic.name: topic.partitions for topic in batch}
        for name, future in futures.items():
            try:
                admin.wait_result(
                    future, f"create topic {name}", Permission("Create", "topic", name)
                )
            except PermissionMissingError as refused:
                results[name] = refused
            except RequestRefusedError as refused:
                if refused.code == "TOPIC_ALREADY_EXISTS":
                    least[name] = 1
                else:
                    results[name] = TargetTopicError(str(refused))
        created = {name: n for name, n in least.items() if name not in results}
        for name, found in _await_partitions(admin, created).items():
            results[name] = found.topic_id if isinstance(found, Topic) else found
    return results


def add_partitions(admin: AdminSession, name: str, total: int) -> None:
    """Increase the partitions of the topic *name* to *total*.

    Raises TargetTopicError, PermissionMissingError.
    """
    future = admin.client.create_partitions(
        [NewPartitions(name, total)],
        operation_timeout=REQUEST_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
    )[name]
    try:
        needed = Permission("Alter", "topic", name)
        admin.wait_result(future, f"increase topic {name} to {total} partitions", needed)
    except PermissionMissingError:
        raise
    except RequestRefusedError as refused:
        # Kafka also returns INVALID_PARTITIONS if another client has just added them.
        if refused.code != "INVALID_PARTITIONS" or partition_count(admin, name) < total:
            raise TargetTopicError(str(refused)) from None
    found = _await_partitions(admin, {name: total})[name]
    if not isinstance(found, Topic):
        raise found


def delete_topics(admin: AdminSession, names: Sequence[str]) -> None:
    """Delete the topics *names*. A missing topic is no error."""
    futures = admin.client.delete_topics(
        list(names), operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    for name, future in futures.items():
        try:
            admin.wait_result(future, f"delete topic {name}", Permission("Delete", "topic", name))
        except RequestRefusedError as refused:
            if refused.code not in MISSING_CODES:
                raise


def describe_configs(
    admin: AdminSession, names: Collection[str]
) -> dict[str, dict[str, ConfigValue]]:
    """Return all configs of the topics *names*; log a warning for a topic without an answer."""
    found: dict[str, dict[str, ConfigValue]] = {}
    for batch in _batches(names):
        futures = admin.client.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in batch],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for resource, future in futures.items():
            try:
                needed = Permission("DescribeConfigs", "topic", resource.name)
                entries = admin.wait_result(
                    future, f"describe the configs of topic {resource.name}", needed
                )
            except RequestRefusedError as refused:
                log.warning("%s", refused)
                continue
            found[resource.name] = {name: _config_value(entry) for name, entry in entries.items()}
    return found


def alter_configs(
    admin: AdminSession, changes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, DeltamirrorError]:
    """Set each topic's *changes* (None deletes the topic's own value); return errors by topic."""
    refused: dict[str, DeltamirrorError] = {}
    for batch in _batches(changes):
        futures = admin.client.incremental_alter_configs(
            [_config_change(name, changes[name]) for name in batch],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for resource, future in futures.items():
            try:
                needed = Permission("AlterConfigs", "topic", resource.name)
                admin.wait_result(future, f"alter the configs of topic {resource.name}", needed)
            except RequestRefusedError as error:
                refused[resource.name] = error
    return refused


def _config_change(topic: str, configs: Mapping[str, str | None]) -> ConfigResource:
    entries = [
        ConfigEntry(
            name,
            value,
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
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


def _descriptions(
    admin: AdminSession, names: Iterable[str]
) -> dict[str, TopicDescription | RequestRefusedError]:
    """Return the description or the error of each of *names*; missing topics are left out."""
    found: dict[str, TopicDescription | RequestRefusedError] = {}
    for batch in _batches(names):
        futures = admin.client.describe_topics(
            kafka.TopicCollection(batch),
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for name, future in futures.items():
            needed = Permission("Describe", "topic", name)
            try:
                found[name] = admin.wait_result(future, f"describe topic {name}", needed)
            except RequestRefusedError as refused:
                if refused.code not in MISSING_CODES:
                    found[name] = refused
    return found


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


def _await_partitions(
    admin: AdminSession, least: Mapping[str, int]
) -> dict[str, Topic | TargetTopicError | PermissionMissingError]:
    """Wait until *least* partitions of each topic have a leader; return the topic or its error."""
    results: dict[str, Topic | TargetTopicError | PermissionMissingError] = {}
    give_up_at = time.monotonic() + REQUEST_TIMEOUT_S
    while (left := least.keys() - results.keys()) and time.monotonic() < give_up_at:
        for name, found in _descriptions(admin, left).items():
            if isinstance(found, PermissionMissingError):
                results[name] = found
            elif (
                isinstance(found, TopicDescription)
                and sum(map(_has_leader, found.partitions)) >= least[name]
            ):
                results[name] = _topic(found)
        if len(results) < len(least):
            time.sleep(0.02)
    for name in left:
        results[name] = TargetTopicError(
            f"cluster {admin.alias}: fewer than {least[name]} partitions of topic {name} have a "
            f"leader {REQUEST_TIMEOUT_S:.0f} s after they were created"
        )
    return results


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
