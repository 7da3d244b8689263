"""Which access rules of the source's topics hold for the remote topics too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from schemas.config.config import FlowConfig
from schemas.kafka.acl import TopicAcl


def missing_acls(
    flow: FlowConfig, source: Iterable[TopicAcl], target: Collection[TopicAcl]
) -> list[TopicAcl]:
    """Return the rules that the target's topics of *flow* are to get, in order.

    As MirrorMaker 2 does (4.3, MirrorSourceConnector.syncTopicAcls): of the topics that are
    replicated, whether they are there or not, every rule but those that allow writing, as only
    the mirror writes to a remote topic; who may do all may read. What is on the target stays:
    a rule that is gone from the source is not taken away. A rule for `*` goes by that name.
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
