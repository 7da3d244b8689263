"""Plan the remote topics to create or expand, so that each source partition has a target one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.topics.configs import configs_for_creation
from schemas.config.config import FlowConfig
from schemas.errors.target import TargetTopicError
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class CreateTopic:
    """Create the remote *topic* of *source_topic*."""

    topic: TopicSpec
    source_topic: str


@dataclass(frozen=True)
class AddPartitions:
    """Expand the remote topic *name* of *source_topic* to *total* partitions."""

    name: str
    source_topic: str
    total: int


@dataclass(frozen=True)
class RefusedTopic:
    """The remote topic *name* of *source_topic* cannot be created; other topics still are."""

    name: str
    source_topic: str
    error: TargetTopicError


def missing_topics(
    flow: FlowConfig, source_topics: Mapping[str, Topic], target_topics: Mapping[str, Topic]
) -> list[str]:
    """Return the source topics that *flow* replicates and whose remote topics do not exist."""
    return [
        name
        for name in sorted(source_topics)
        if flow.replicates(name) and flow.remote_topic(name) not in target_topics
    ]


def plan_remote_topics(
    flow: FlowConfig,
    source_topics: Mapping[str, Topic],
    source_configs: Mapping[str, Mapping[str, ConfigValue]],
    target_topics: Mapping[str, Topic],
) -> list[CreateTopic | AddPartitions | RefusedTopic]:
    """Return the steps on the target, in the order of the source topics' names.

    As in MirrorMaker 2 (4.3, MirrorSourceConnector), a remote topic gets the source's number of
    partitions, *flow*'s replication factor and the source's configs. It is never deleted, and
    partitions are never removed. *source_configs* holds the configs of `missing_topics`. A topic
    without them is refused, because a topic with default configs may delete records too early.
    """
    steps: list[CreateTopic | AddPartitions | RefusedTopic] = []
    for name in sorted(filter(flow.replicates, source_topics)):
        remote = flow.remote_topic(name)
        source, there = source_topics[name], target_topics.get(remote)
        if there is None:
            steps.append(_plan_creation(flow, source, source_configs.get(name)))
        elif there.partitions < source.partitions:
            steps.append(AddPartitions(remote, name, source.partitions))
    return steps


def _plan_creation(
    flow: FlowConfig, source: Topic, configs: Mapping[str, ConfigValue] | None
) -> CreateTopic | RefusedTopic:
    topic, remote = source.name, flow.remote_topic(source.name)
    problem = _name_problem(remote)
    if problem is None and configs is None:
        problem = f"the settings of {topic} could not be read on {flow.flow.source}"
    if problem is not None or configs is None:
        message = f"topic {remote} cannot be created on {flow.flow.target}: {problem}"
        return RefusedTopic(remote, topic, TargetTopicError(message))
    carried = configs_for_creation(flow, configs)
    spec = TopicSpec(remote, source.partitions, flow.replication_factor, carried)
    return CreateTopic(spec, topic)


def _name_problem(name: str) -> str | None:
    """Return why Kafka would reject *name* as a topic's name, or None."""
    if len(name) > 249:
        return f"its name has {len(name)} characters, Kafka allows 249"
    if LEGAL_NAME.fullmatch(name) is None or name in {".", ".."}:
        return "its name may contain only ASCII letters, digits, '.', '_' and '-'"
    return None
