"""What a topic is called downstream, and how to recognise one that came from elsewhere.

The rules are those of MirrorMaker 2 4.3: its DefaultReplicationPolicy and its
IdentityReplicationPolicy, with the internal topics of KIP-1074.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

HEARTBEATS_TOPIC = "heartbeats"


class ReplicationPolicy(Protocol):
    """Everything that is asked of a naming rule."""

    @property
    def heartbeats_topic(self) -> str:
        """Return the topic that heartbeats are written to."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        """Return what *topic* of the cluster *source_alias* is called downstream."""

    def source_of(self, remote: str) -> str | None:
        """Return the alias of the cluster that *remote* came from. None: it came from nowhere."""

    def upstream_topic(self, remote: str) -> str | None:
        """Return what *remote* is called where it came from. None: it came from nowhere."""

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return whether *topic* is the heartbeats topic of some cluster, at any distance."""

    def is_internal(self, topic: str) -> bool:
        """Return whether *topic* is Kafka's or MirrorMaker 2's own and never replicated."""

    def checkpoints_topic(self, source_alias: str) -> str:
        """Return the topic, on the target, of the checkpoints of *source_alias*."""

    def offset_syncs_topic(self, other_alias: str) -> str:
        """Return the topic of offset syncs with the cluster *other_alias*."""


@dataclass(frozen=True)
class DefaultPolicy:
    """A remote topic is `<source alias><separator><topic>`: `us-east.orders`.

    A dotted topic reads as remote, as in MirrorMaker 2: `my.topic` seems to come from `my`.
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
    """A remote topic keeps its name; every topic is taken for one of *source_alias*.

    Only topics that end with `heartbeats` are renamed, because both clusters have one. Loops
    cannot be recognised by name: two flows in opposite directions send records round for ever.
    """

    source_alias: str | None = None

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return super().remote_topic(source_alias, topic) if _looks_like_heartbeats(topic) else topic

    def source_of(self, remote: str) -> str | None:
        return super().source_of(remote) if _looks_like_heartbeats(remote) else self.source_alias

    def upstream_topic(self, remote: str) -> str | None:
        if not _looks_like_heartbeats(remote):
            return remote
        # The source is asked of the default rule: this class answers with its own alias.
        source = super().source_of(remote)
        return None if source is None else remote[len(source) + len(self.separator) :]


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Return whether *topic* has already been on the cluster *target_alias*, by its name alone.

    `A.B.orders` has been on B. So has `my.B.events` by its name, though nobody meant that:
    MirrorMaker 2 leaves it out too.
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
