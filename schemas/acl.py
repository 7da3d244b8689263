"""An access rule of a topic, as its cluster's authorizer holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """Whether *principal* may do *operation* with *topic* from *host*.

    *topic* is one topic's whole name (Kafka's pattern type LITERAL), or `*` for every topic there;
    a *host* of `*` is any. *operation* and *permission* are Kafka's names: `READ`, `ALLOW`.
    """

    topic: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        """Return it as `kafka-acls.sh` would be told."""
        return (
            f"{self.permission.lower()} {self.principal} {self.operation} on topic {self.topic} "
            f"from {'any host' if self.host == '*' else self.host}"
        )
