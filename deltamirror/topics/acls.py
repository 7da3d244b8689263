"""Sync the ACLs of a flow's source topics to its remote topics (sync.topic.acls.*)."""

from __future__ import annotations

import logging

from deltamirror.context import MirrorContext
from pipeline.topics.acls import missing_acls
from schemas.config.config import FlowConfig
from schemas.kafka.acl import TopicAcl

log = logging.getLogger(__name__)

NO_AUTHORIZER = "SECURITY_DISABLED"
"""Error code of a cluster without an authorizer when an ACL is created."""


def acls_to_create(context: MirrorContext, flow: FlowConfig) -> list[TopicAcl]:
    """Return the ACLs that a sync of *flow* would create on the target now.

    It reads both clusters and changes nothing. Raises UnreachableError, RequestRefusedError.
    """
    source = context.cluster(flow.flow.source).topic_acls()
    target = context.cluster(flow.flow.target)
    return missing_acls(flow, source, target.topic_acls()) if source else []


class TopicAclSync:
    """Sync the ACLs of *flow*: call `sync` periodically. Not thread-safe."""

    def __init__(self, context: MirrorContext, flow: FlowConfig) -> None:
        self._context, self._flow = context, flow
        self._logged: dict[str, int] = {}

    def sync(self) -> None:
        """Create the missing ACLs on the target and log them.

        A refused ACL is logged once, and so is a cluster without an authorizer, for which nothing
        is created. Raises UnreachableError, RequestRefusedError.
        """
        alias = self._flow.flow.source
        source = self._context.cluster(alias).topic_acls()
        target = self._context.cluster(self._flow.flow.target)
        if not source:
            message = (
                f"ACLs are not synced: {alias} returns no ACLs of topics. It has none, or it has "
                "no authorizer, or deltamirror's user lacks Describe on the cluster"
            )
            self._log_once({message: logging.INFO})
            return
        missing = missing_acls(self._flow, source, target.topic_acls())
        refused = target.create_acls(missing)
        for acl in missing:
            if acl not in refused:
                log.info("ACL on %s: %s", target.alias, acl)
        messages: dict[str, int] = {}
        for error in refused.values():
            if error.code == NO_AUTHORIZER:
                messages[f"ACLs are not synced: {target.alias} has no authorizer"] = logging.INFO
            else:
                messages[f"an ACL is missing on {target.alias}: {error}"] = logging.WARNING
        self._log_once(messages)

    def _log_once(self, lines: dict[str, int]) -> None:
        """Log *lines* at their levels, except those that the last call contained too."""
        for line, level in lines.items():
            if line not in self._logged:
                log.log(level, "%s", line)
        self._logged = lines
