"""The source's groups carried over to the target by themselves, where nobody uses them there."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from deltamirror.context import MirrorContext
from deltamirror.groups.plan import GroupPlan, plan_groups
from pipeline.offset_map.translate import forward_commits
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors import GroupActiveError, RequestRefusedError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSyncResult:
    """What a sync did, by group: how many partitions it *moved*, and who was left alone.

    *active* groups have members on the target; of *refused* ones the target did not let us.
    """

    moved: dict[str, int] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def sync_groups(context: MirrorContext, flow_config: FlowConfig) -> GroupSyncResult:
    """Set where the flow's groups resume on the target, from their last snapshot.

    Groups without members there, and forward only: so it is whatever their protocol is (classic,
    KIP-848, Streams), for the broker itself refuses to set an active group's offsets. Raises
    DeltamirrorError where the target or the lake is down.
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
    """Move the group forward; return in how many partitions."""
    wanted = {
        each.at.target: (each.resumes_at, each.metadata)
        for each in plan.partitions
        if each.resumes_at is not None and each.action == "set"
    }
    if not wanted:
        return 0
    # Read again: the group may have been at work, and gone, since the plan was made.
    forward = forward_commits(wanted, cluster.group_offsets(plan.group))
    cluster.commit_offsets(plan.group, forward)
    return len(forward)
