"""Plan the configs that a remote topic takes over from its source topic, at creation and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.config.config import FlowConfig
from schemas.kafka.topic import ConfigValue

# The target must accept a record's timestamp unchanged. LogAppendTime would alter it, and Kafka 4's
# default rejects records that are more than an hour in the future.
UNCHANGED_TIMESTAMPS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
"""Kafka's config source of a config that is set on the topic itself."""


@dataclass(frozen=True)
class AlterTopic:
    """Change configs of the remote topic *name* of *source_topic*.

    *configs* holds the new values; None: delete the config from the topic, so that its cluster's
    default applies. *before* holds the current values.
    """

    name: str
    source_topic: str
    configs: Mapping[str, str | None]
    before: Mapping[str, str | None]


def configs_for_creation(flow: FlowConfig, configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return the configs with which a remote topic is created.

    They are the configs set on the source topic or dynamically on its brokers, and with
    `use.defaults.from=source` the defaults too. `UNCHANGED_TIMESTAMPS` always apply.
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
    """Return the changes of configs on the target, in the order of the source topics' names.

    *source_configs* are by source topic, *target_configs* by remote topic. A topic that is missing
    in either is not changed. The wanted values are MirrorMaker 2's (4.3,
    MirrorSourceConnector.syncTopicConfigs, KIP-894). MirrorMaker 2 sends all of them each time;
    here only differences are returned. Timestamp configs of an existing topic are never changed.
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
    """Return the wanted configs of a remote topic; None: the target's default."""
    return {
        name: None if config.is_default and not flow.uses_source_defaults else config.value
        for name, config in sorted(configs.items())
        if _is_synced(flow, name, config) and name not in UNCHANGED_TIMESTAMPS
    }


def _diff_configs(
    wanted: Mapping[str, str | None], there: Mapping[str, ConfigValue]
) -> dict[str, str | None]:
    """Return the *wanted* configs that are not set on the topic itself."""
    # An equal default of the brokers does not count, because it can change later.
    own = {
        name: config.value
        for name, config in there.items()
        if config.source == DYNAMIC_TOPIC_CONFIG
    }
    return {name: value for name, value in wanted.items() if own.get(name) != value}


def _is_synced(flow: FlowConfig, name: str, config: ConfigValue) -> bool:
    """Return whether a remote topic's config follows its source topic's."""
    # Configs from a broker's file are meant for that broker.
    return (
        not (config.is_read_only or config.is_sensitive)
        and config.source != "STATIC_BROKER_CONFIG"
        and not flow.config_properties_exclude.matches(name)
    )
