"""An access rule of a topic, as its cluster's authorizer holds it."""

from __future__ import annotations

import shlex
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


@dataclass(frozen=True, slots=True)
class Permission:
    """An *operation* (`Read`, as kafka-acls.sh has it) on a *resource*.

    *resource* is `topic`, `group`, `transactional-id` or `cluster`, whose only *name* is Kafka's
    `kafka-cluster`; with *is_prefix* all whose
    names begin with *name* are meant.
    """

    operation: str
    resource: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """Return it as a sentence has it: `Read on topic orders`."""
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.is_prefix else ''}"

    @property
    def arguments(self) -> str:
        """Return it as kafka-acls.sh takes it."""
        pattern = "--resource-pattern-type prefixed " if self.is_prefix else ""
        named = f"--{self.resource}"
        if self.resource != "cluster":
            named += f" {shlex.quote(self.name)}"
        return f"--operation {self.operation} {pattern}{named}"

    def is_missed_by(self, code: str) -> bool:
        """Return whether Kafka's error *code* may be about this: `TOPIC_AUTHORIZATION_FAILED`."""
        return code == f"{self.resource.replace('-', '_').upper()}_AUTHORIZATION_FAILED"
