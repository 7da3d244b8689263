"""A topic and its settings, as its cluster describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in its present life: *topic_id* is `none` on clusters that give topics no ids.

    *in_sync_counts* are the partitions that have fewer replicas in sync than they should, with how
    many they have: 0 where there is no leader. *authorized_operations* are the operations that our
    user may do, in Kafka's names (`READ`); empty: the cluster does not tell.
    """

    name: str
    topic_id: str
    partitions: int
    is_internal: bool
    in_sync_counts: Mapping[int, int] = field(default_factory=dict)
    authorized_operations: frozenset[str] = field(default=frozenset(), compare=False)

    def is_denied(self, operation: str) -> bool:
        """Return whether our user may not do *operation*, as far as it is known."""
        return bool(self.authorized_operations) and operation not in self.authorized_operations


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that a cluster is to make; a *replication_factor* of -1 is the brokers' default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a topic: *source* says whose word it is, in Kafka's names.

    `DYNAMIC_TOPIC_CONFIG` is the topic's own, `DYNAMIC_BROKER_CONFIG` and
    `DYNAMIC_DEFAULT_BROKER_CONFIG` its brokers', `STATIC_BROKER_CONFIG` their files',
    `DEFAULT_CONFIG` Kafka's. The value of a sensitive setting is never told (None).
    """

    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
