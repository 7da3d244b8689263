"""Topics and their configs, as a cluster describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in its current incarnation; *topic_id* is `none` on clusters without topic ids.

    *in_sync_counts* are the under-replicated partitions with their number of in-sync replicas: 0
    without a leader. *authorized_operations* are the operations that deltamirror's user may do, in
    Kafka's names (`READ`); empty: unknown.
    """

    name: str
    topic_id: str
    partitions: int
    is_internal: bool
    in_sync_counts: Mapping[int, int] = field(default_factory=dict)
    authorized_operations: frozenset[str] = field(default=frozenset(), compare=False)

    def is_denied(self, operation: str) -> bool:
        """Return whether deltamirror's user may not do *operation*; False if it is unknown."""
        return bool(self.authorized_operations) and operation not in self.authorized_operations


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create; a *replication_factor* of -1 is the brokers' default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One config of a topic; *source* is Kafka's name of the level that sets it.

    `DYNAMIC_TOPIC_CONFIG` is set on the topic, `DYNAMIC_BROKER_CONFIG` and
    `DYNAMIC_DEFAULT_BROKER_CONFIG` on its brokers, `STATIC_BROKER_CONFIG` in a broker's file;
    `DEFAULT_CONFIG` is Kafka's default. The value of a sensitive config is None.
    """

    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
