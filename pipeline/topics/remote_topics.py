"""What has to be made or widened on a target, so that every source partition has its own there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.topics.configs import configs_for_creation
from schemas.config.config import FlowConfig
from schemas.errors import TargetTopicError
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class CreateTopic:
    """The remote *topic* of *source_topic* is to be made."""

    topic: TopicSpec
    source_topic: str


@dataclass(frozen=True)
class AddPartitions:
    """The remote topic *name* of *source_topic* is to have *total* partitions."""

    name: str
    source_topic: str
    total: int


@dataclass(frozen=True)
class RefusedTopic:
    """The remote topic *name* of *source_topic* cannot be; the others go on."""

    name: str
    source_topic: str
    error: TargetTopicError


def missing_topics(
    flow: FlowConfig, source_topics: Mapping[str, Topic], target_topics: Mapping[str, Topic]
) -> list[str]:
    """Return the source topics that *flow* replicates and whose remote topics are not there.

    Only their settings are needed by `plan_remote_topics`.
    """
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
    """Return what is to be done on the target, in the order of the source topics' names.

    As MirrorMaker 2 does (4.3, MirrorSourceConnector): a remote topic has at least the source's
    partitions, *flow*'s replication factor and the source's own settings. It is never made
    smaller and never deleted. *source_configs* holds those of `missing_topics`; a topic without
    them is refused, because one made without its settings may drop what the source keeps.
    """
    steps: list[CreateTopic | AddPartitions | RefusedTopic] = []
    for name in sorted(filter(flow.replicates, source_topics)):
        remote = flow.remote_topic(name)
        partitions = source_topics[name].partitions
        there = target_topics.get(remote)
        if there is None:
            steps.append(_plan_creation(flow, name, remote, partitions, source_configs.get(name)))
        elif there.partitions < partitions:
            steps.append(AddPartitions(remote, name, partitions))
    return steps


def _plan_creation(
    flow: FlowConfig,
    topic: str,
    remote: str,
    partitions: int,
    configs: Mapping[str, ConfigValue] | None,
) -> CreateTopic | RefusedTopic:
    problem = _name_problem(remote)
    if problem is None and configs is None:
        problem = f"the settings of {topic} could not be read on {flow.flow.source}"
    if problem is not None or configs is None:
        message = f"topic {remote} cannot be made on {flow.flow.target}: {problem}"
        return RefusedTopic(remote, topic, TargetTopicError(message))
    carried = configs_for_creation(flow, configs)
    return CreateTopic(TopicSpec(remote, partitions, flow.replication_factor, carried), topic)


def _name_problem(name: str) -> str | None:
    """Return why Kafka would not take *name* as a topic's. None: it would."""
    if len(name) > 249:
        return f"its name has {len(name)} characters, Kafka takes 249"
    if LEGAL_NAME.fullmatch(name) is None or name in {".", ".."}:
        return "its name may hold ASCII letters, digits, '.', '_' and '-' only"
    return None
