"""Plan the ACLs that remote topics take over from their source topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from schemas.config.config import FlowConfig
from schemas.kafka.acl import TopicAcl


def missing_acls(
    flow: FlowConfig, source: Iterable[TopicAcl], target: Collection[TopicAcl]
) -> list[TopicAcl]:
    """Return the ACLs to create on the target for *flow*, in order.

    The rules are MirrorMaker 2's (4.3, MirrorSourceConnector.syncTopicAcls). ACLs of replicated
    topics are copied, even if the topic does not exist. ALLOW WRITE is not copied, because only
    the mirror writes to a remote topic. ALLOW ALL becomes ALLOW READ. ACLs that were deleted on
    the source are kept on the target. An ACL of `*` is handled as one of a topic named `*`: filter
    and replication policy apply to that name.
    """
    wanted = {
        _remote(flow, acl)
        for acl in source
        if flow.replicates(acl.topic) and (acl.permission, acl.operation) != ("ALLOW", "WRITE")
    }
    return sorted(wanted.difference(target))


def _remote(flow: FlowConfig, acl: TopicAcl) -> TopicAcl:
    may_all = (acl.permission, acl.operation) == ("ALLOW", "ALL")
    operation = "READ" if may_all else acl.operation
    return replace(acl, topic=flow.remote_topic(acl.topic), operation=operation)
