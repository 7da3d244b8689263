"""The settings of remote topics, kept as their source topics' are (sync.topic.configs.*)."""

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
    """Return what a sync of *flow* would change now; *topics* are its source's.

    Asks both clusters and changes nothing. Raises UnreachableError, RequestRefusedError.
    """
    names = {flow.remote_topic(topic): topic for topic in topics if flow.replicates(topic)}
    target = context.cluster(flow.flow.target)
    there = target.topics(names) if names else {}
    if not there:
        return []
    source = context.cluster(flow.flow.source)
    return plan_topic_settings(
        flow,
        source.topic_configs([names[remote] for remote in there]),
        target.topic_configs(there),
    )


class TopicConfigSync:
    """The sync of *flow*: `sync` again and again. Not thread-safe."""

    def __init__(self, context: MirrorContext, flow: FlowConfig) -> None:
        self._context, self._flow = context, flow
        self._refused: dict[str, str] = {}

    def sync(self) -> None:
        """Change what differs, and log what was changed; a topic that is refused stops no other.

        It is told once, and again when the reason is another one. Raises UnreachableError,
        RequestRefusedError.
        """
        topics = self._context.cluster(self._flow.flow.source).topics()
        steps = configs_to_alter(self._context, self._flow, topics)
        target = self._context.cluster(self._flow.flow.target)
        errors = target.alter_topic_configs({step.name: step.configs for step in steps})
        for step in steps:
            if step.name not in errors:
                log.info(
                    "settings of %s on %s: %s", step.name, target.alias, _describe_change(step)
                )
            elif self._refused.get(step.name) != str(errors[step.name]):
                log.warning(
                    "the settings of %s stay as they are (%s): %s",
                    *(step.name, _describe_change(step), errors[step.name]),
                )
        self._refused = {name: str(error) for name, error in errors.items()}


def _describe_change(step: AlterTopic) -> str:
    """Return what a step changes, in a line."""
    return ", ".join(
        f"{name} {_value_text(step.before[name])} -> {_value_text(value)}"
        for name, value in step.configs.items()
    )


def _value_text(value: str | None) -> str:
    return "the default" if value is None else value
