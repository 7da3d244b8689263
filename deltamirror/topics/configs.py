"""Sync the configs of source topics to their remote topics (sync.topic.configs.*)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from deltamirror.context import MirrorContext
from pipeline.topics.configs import AlterTopic, plan_topic_settings
from schemas.config.config import FlowConfig

log = logging.getLogger(__name__)


def configs_to_alter(
    context: MirrorContext, flow: FlowConfig, topics: Collection[str]
) -> list[AlterTopic]:
    """Return the changes that a sync of *flow* would make now; *topics* are the source's topics.

    It reads both clusters and changes nothing. Raises UnreachableError, RequestRefusedError.
    """
    names = {flow.remote_topic(topic): topic for topic in topics if flow.replicates(topic)}
    target = context.cluster(flow.flow.target)
    existing = target.topics(names) if names else {}
    if not existing:
        return []
    source = context.cluster(flow.flow.source)
    return plan_topic_settings(
        flow,
        source.topic_configs([names[remote] for remote in existing]),
        target.topic_configs(existing),
    )


class TopicConfigSync:
    """Sync the topic configs of *flow*: call `sync` periodically. Not thread-safe."""

    def __init__(self, context: MirrorContext, flow: FlowConfig) -> None:
        self._context, self._flow = context, flow
        self._refused: dict[str, str] = {}

    def sync(self) -> None:
        """Alter the configs that differ, and log the changes.

        A refused topic does not stop the others. It is logged once, and again if the reason
        changes. Raises UnreachableError, RequestRefusedError.
        """
        topics = self._context.cluster(self._flow.flow.source).topics()
        steps = configs_to_alter(self._context, self._flow, topics)
        target = self._context.cluster(self._flow.flow.target)
        errors = target.alter_topic_configs({step.name: step.configs for step in steps})
        refused = {topic: str(error) for topic, error in errors.items()}
        for step in steps:
            topic, reason = step.name, refused.get(step.name)
            change = ", ".join(
                f"{name} {_value_text(step.before[name])} -> {_value_text(value)}"
                for name, value in step.configs.items()
            )
            if reason is None:
                log.info("configs of %s on %s: %s", topic, target.alias, change)
            elif self._refused.get(topic) != reason:
                log.warning("the configs of %s were not changed (%s): %s", topic, change, reason)
        self._refused = refused


def _value_text(value: str | None) -> str:
    return "the default" if value is None else value
