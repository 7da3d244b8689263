"""Replication policies: names of remote topics, and how to recognise remote topics.

The rules are those of MirrorMaker 2 4.3: its DefaultReplicationPolicy and its
IdentityReplicationPolicy, with the internal topics of KIP-1074.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

HEARTBEATS_TOPIC = "heartbeats"


class ReplicationPolicy(Protocol):
    """A naming rule of remote topics, as MirrorMaker 2's interface of the same name."""

    @property
    def heartbeats_topic(self) -> str:
        """Return the name of the heartbeats topic."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the downstream name of *topic* of the cluster *source_alias*."""

    def source_of(self, remote: str) -> str | None:
        """Return the alias of the cluster that *remote* came from, or None if it is not remote."""

    def upstream_topic(self, remote: str) -> str | None:
        """Return the upstream name of *remote*, or None if it is not remote."""

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return whether *topic* is a heartbeats topic, also one mirrored over several clusters."""

    def is_internal(self, topic: str) -> bool:
        """Return whether *topic* is internal to Kafka or MirrorMaker 2; it is never replicated."""

    def checkpoints_topic(self, source_alias: str) -> str:
        """Return the topic, on the target, of the checkpoints of *source_alias*."""

    def offset_syncs_topic(self, other_alias: str) -> str:
        """Return the topic of offset syncs with the cluster *other_alias*."""


@dataclass(frozen=True)
class DefaultPolicy:
    """A remote topic is `<source alias><separator><topic>`: `us-east.orders`.

    As in MirrorMaker 2, a topic with a dot counts as remote: `my.topic` comes from `my`.
    """

    separator: str = "."
    internal_separator: str = "."

    @property
    def heartbeats_topic(self) -> str:
        return HEARTBEATS_TOPIC

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def source_of(self, remote: str) -> str | None:
        parts = remote.split(self.separator)
        while parts and not parts[-1]:  # Java's split drops empty strings at the end
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, remote: str) -> str | None:
        source = self.source_of(remote)
        return None if source is None else remote[len(source) + len(self.separator) :]

    def is_heartbeats_topic(self, topic: str) -> bool:
        return _original_topic(self, topic) == self.heartbeats_topic

    def is_internal(self, topic: str) -> bool:
        return (
            topic.startswith(("__", "."))
            or (topic.startswith("mm2") and topic.endswith(f"{self.internal_separator}internal"))
            or topic.endswith(self._checkpoints_suffix)
        )

    def checkpoints_topic(self, source_alias: str) -> str:
        return source_alias + self._checkpoints_suffix

    def offset_syncs_topic(self, other_alias: str) -> str:
        between = self.internal_separator
        return f"mm2-offset-syncs{between}{other_alias}{between}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self.internal_separator}internal"


@dataclass(frozen=True)
class IdentityPolicy(DefaultPolicy):
    """A remote topic keeps its name; every topic counts as one of *source_alias*.

    Only topics that end with `heartbeats` are renamed, because both clusters have one. Cycles
    cannot be recognised by name: two flows in opposite directions copy records without end.
    """

    source_alias: str | None = None

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return super().remote_topic(source_alias, topic) if _looks_like_heartbeats(topic) else topic

    def source_of(self, remote: str) -> str | None:
        return super().source_of(remote) if _looks_like_heartbeats(remote) else self.source_alias

    def upstream_topic(self, remote: str) -> str | None:
        if not _looks_like_heartbeats(remote):
            return remote
        # Use the default rule for the source, because this class returns its own alias.
        source = super().source_of(remote)
        return None if source is None else remote[len(source) + len(self.separator) :]


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Return whether *topic* has already been on the cluster *target_alias*, according to its name.

    `A.B.orders` has been on B. `my.B.events` counts as well, even if its name was not meant so;
    MirrorMaker 2 does not replicate it either.
    """
    source = policy.source_of(topic)
    if source is None:
        return False
    if source == target_alias:
        return True
    upstream = policy.upstream_topic(topic)
    if upstream is None or upstream == topic:
        return False
    return is_cycle(policy, upstream, target_alias)


def _original_topic(policy: ReplicationPolicy, topic: str) -> str:
    upstream = policy.upstream_topic(topic)
    if upstream is None or upstream == topic:
        return topic
    return _original_topic(policy, upstream)


def _looks_like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS_TOPIC)
