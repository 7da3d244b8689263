"""ACLs of topics, and the permissions that deltamirror needs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """An ACL: whether *principal* may do *operation* on *topic* from *host*.

    *topic* is the full name of a topic (Kafka's pattern type LITERAL), or `*` for every topic. A
    *host* of `*` is any host. *operation* and *permission* are Kafka's names: `READ`, `ALLOW`.
    """

    topic: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"{self.permission.lower()} {self.principal} {self.operation} on topic {self.topic} "
            f"from {'any host' if self.host == '*' else self.host}"
        )


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission for an *operation* (`Read`, as in kafka-acls.sh) on a *resource*.

    *resource* is `topic`, `group`, `transactional-id` or `cluster`. The only *name* of `cluster` is
    Kafka's `kafka-cluster`. *is_prefix*: the permission is for all names that begin with *name*.
    """

    operation: str
    resource: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.is_prefix else ''}"

    @property
    def arguments(self) -> str:
        """Return the permission as options of kafka-acls.sh."""
        pattern = "--resource-pattern-type prefixed " if self.is_prefix else ""
        named = f"--{self.resource}"
        if self.resource != "cluster":
            named += f" {shlex.quote(self.name)}"
        return f"--operation {self.operation} {pattern}{named}"

    def is_missed_by(self, code: str) -> bool:
        """Return whether error *code* is of this resource, such as `TOPIC_AUTHORIZATION_FAILED`."""
        return code == f"{self.resource.replace('-', '_').upper()}_AUTHORIZATION_FAILED"
