"""Which settings a remote topic takes over from its source topic, when it is made and later on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.config.config import FlowConfig
from schemas.kafka.topic import ConfigValue

# A record arrives with the timestamp it had, however old or far ahead: a target that stamps anew,
# or refuses what is more than an hour ahead (Kafka 4's default), would alter or lose it.
UNCHANGED_TIMESTAMPS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
"""Whose word a setting is that was made for the topic itself."""


@dataclass(frozen=True)
class AlterTopic:
    """The settings of the remote topic *name* of *source_topic* are to change.

    *configs* holds those that do and what each is to be; None: the topic has it no longer of its
    own, and its cluster's default rules. *before* holds what each is now.
    """

    name: str
    source_topic: str
    configs: Mapping[str, str | None]
    before: Mapping[str, str | None]


def configs_for_creation(flow: FlowConfig, configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return the settings that a remote topic is made with.

    Those that somebody chose for the source topic or for all topics of a running cluster, and with
    `use.defaults.from=source` Kafka's defaults too. Timestamps are always left as they are.
    """
    chosen = {
        name: config.value
        for name, config in configs.items()
        if config.value is not None
        and _is_synced(flow, name, config)
        and (flow.uses_source_defaults or not config.is_default)
    }
    return {**chosen, **UNCHANGED_TIMESTAMPS}


def plan_topic_settings(
    flow: FlowConfig,
    source_configs: Mapping[str, Mapping[str, ConfigValue]],
    target_configs: Mapping[str, Mapping[str, ConfigValue]],
) -> list[AlterTopic]:
    """Return what is to change on the target, in the order of the source topics' names.

    *source_configs* by source topic, *target_configs* by remote topic; a topic that is missing in
    either is left alone. What each setting is to be is MirrorMaker 2's answer (4.3,
    MirrorSourceConnector.syncTopicConfigs, KIP-894), which it sends whole each time; this is
    what differs from it. Settings of timestamps are never changed, whoever made the topic.
    """
    steps = []
    for topic in sorted(source_configs):
        remote = flow.remote_topic(topic)
        there = target_configs.get(remote)
        if there is None:
            continue
        configs = _diff_configs(_wanted_configs(flow, source_configs[topic]), there)
        if configs:
            before = {name: there[name].value if name in there else None for name in configs}
            steps.append(AlterTopic(remote, topic, configs, before))
    return steps


def _wanted_configs(flow: FlowConfig, configs: Mapping[str, ConfigValue]) -> dict[str, str | None]:
    """Return what each setting of a remote topic is to be; None: whatever is default there."""
    return {
        name: None if config.is_default and not flow.uses_source_defaults else config.value
        for name, config in sorted(configs.items())
        if _is_synced(flow, name, config) and name not in UNCHANGED_TIMESTAMPS
    }


def _diff_configs(
    wanted: Mapping[str, str | None], there: Mapping[str, ConfigValue]
) -> dict[str, str | None]:
    """Return what of *wanted* is not so already: as the topic's own where it is to be something.

    A value that the target's brokers have by themselves today may change with them tomorrow.
    """
    own = {
        name: config.value
        for name, config in there.items()
        if config.source == DYNAMIC_TOPIC_CONFIG
    }
    return {name: value for name, value in wanted.items() if own.get(name) != value}


def _is_synced(flow: FlowConfig, name: str, config: ConfigValue) -> bool:
    """Return whether a remote topic's setting follows its source topic's.

    Not what a broker's file says (it is meant for that broker), nothing secret or read-only,
    nothing that `config.properties.exclude` names.
    """
    return (
        not (config.is_read_only or config.is_sensitive)
        and config.source != "STATIC_BROKER_CONFIG"
        and not flow.config_properties_exclude.matches(name)
    )
