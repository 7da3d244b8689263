"""Access rules of a flow's source topics, made for its remote topics too (sync.topic.acls.*)."""

from __future__ import annotations

import logging

from deltamirror.context import MirrorContext
from pipeline.topics.acls import missing_acls
from schemas.config.config import FlowConfig
from schemas.kafka.acl import TopicAcl

log = logging.getLogger(__name__)

NO_AUTHORIZER = "SECURITY_DISABLED"
"""What a cluster without an authorizer says where a rule is to be made."""


def acls_to_create(context: MirrorContext, flow: FlowConfig) -> list[TopicAcl]:
    """Return the rules that a sync of *flow* would make on the target now.

    Asks both clusters and changes nothing. Raises UnreachableError, RequestRefusedError.
    """
    source = context.cluster(flow.flow.source).topic_acls()
    if not source:
        return []
    return missing_acls(flow, source, context.cluster(flow.flow.target).topic_acls())


class TopicAclSync:
    """The sync of *flow*: `sync` again and again. Not thread-safe."""

    def __init__(self, context: MirrorContext, flow: FlowConfig) -> None:
        self._context, self._flow = context, flow
        self._logged: dict[str, int] = {}

    def sync(self) -> None:
        """Make the rules that are missing; log what was made, and once why one was refused.

        Where a cluster has no authorizer nothing is done, which is told once. Raises
        UnreachableError, RequestRefusedError.
        """
        source = self._context.cluster(self._flow.flow.source).topic_acls()
        target = self._context.cluster(self._flow.flow.target)
        if not source:
            self._log_once({_no_acls_message(self._flow.flow.source): logging.INFO})
            return
        missing = missing_acls(self._flow, source, target.topic_acls())
        refused = target.create_acls(missing)
        for acl in missing:
            if acl not in refused:
                log.info("ACL on %s: %s", target.alias, acl)
        partition_errors: dict[str, int] = {}
        for error in refused.values():
            if error.code == NO_AUTHORIZER:
                partition_errors[f"ACLs are not synced: {target.alias} has no authorizer"] = (
                    logging.INFO
                )
            else:
                partition_errors[f"an ACL is missing on {target.alias}: {error}"] = logging.WARNING
        self._log_once(partition_errors)

    def _log_once(self, lines: dict[str, int]) -> None:
        """Log *lines* at their levels, but for those that were so the last time."""
        for line, level in lines.items():
            if line not in self._logged:
                log.log(level, "%s", line)
        self._logged = lines


def _no_acls_message(alias: str) -> str:
    return (
        f"ACLs are not synced: {alias} tells none of whole topics. It has none, or no authorizer, "
        "or deltamirror's user may not see them (Describe on the cluster)"
    )
