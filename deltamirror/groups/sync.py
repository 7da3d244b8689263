"""Sync committed offsets to groups that are inactive on the target (sync.group.offsets.*)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from deltamirror.context import MirrorContext
from deltamirror.groups.plan import GroupPlan, plan_groups
from pipeline.offset_map.translate import forward_commits
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors.base import GroupActiveError, RequestRefusedError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSyncResult:
    """Result of a sync: the number of partitions *moved* of each group, and the skipped groups.

    *active* groups have members on the target. For *refused* groups the target refused the commit.
    """

    moved: dict[str, int] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def sync_groups(context: MirrorContext, flow_config: FlowConfig) -> GroupSyncResult:
    """Commit on the target the offsets at which the flow's groups resume, from their last snapshot.

    Only groups without members are set, and only forward. This holds for each group protocol
    (classic, KIP-848, Streams): the broker refuses to set the offsets of an active group. Raises
    DeltamirrorError if the target or the lake is down.
    """
    cluster = context.cluster(flow_config.flow.target)
    done = GroupSyncResult()
    for plan in plan_groups(context, flow_config):
        if plan.is_active:
            done.active.append(plan.group)
            continue
        try:
            moved = _advance_offsets(cluster, plan)
        except GroupActiveError:
            done.active.append(plan.group)
        except RequestRefusedError as refused:
            log.warning("%s: %s", flow_config.flow, refused)
            done.refused.append(plan.group)
        else:
            if moved:
                done.moved[plan.group] = moved
    return done


def _advance_offsets(cluster: KafkaCluster, plan: GroupPlan) -> int:
    """Move the group's offsets forward; return in how many partitions."""
    wanted = {
        each.at.target: (each.resumes_at, each.metadata)
        for each in plan.partitions
        if each.resumes_at is not None and each.action == "set"
    }
    if not wanted:
        return 0
    # Read again: members may have joined, committed and left since the plan was made.
    forward = forward_commits(wanted, cluster.group_offsets(plan.group))
    cluster.commit_offsets(plan.group, forward)
    return len(forward)
