"""Lag of partitions and groups of a flow; the table `lag` keeps it over time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.groups.snapshots import flow_commits
from deltamirror.monitoring.flow_status import flow_status
from pipeline.monitoring.lag import consumer_lag
from schemas.config.config import FlowConfig
from schemas.monitoring.flow_state import FlowState
from schemas.staging.frontier import base_id
from schemas.tables import LAG

LAG_COLUMNS = ("topic", "partition", "source_end", "staged", "replayed", "lag", "age_ms")


def write_lag(context: MirrorContext, flow_config: FlowConfig) -> list[dict[str, Any]]:
    """Append the current lag of every partition of the flow to `lag`; return the rows.

    Nothing is appended while a cluster is down, because the lag is unknown then.
    """
    state = flow_status(context, flow_config)
    if state.state == "unreachable":
        return []
    now_ms = int(time.time() * 1000)
    rows = [
        {**{name: getattr(each, name) for name in LAG_COLUMNS}, "measured_at_ms": now_ms}
        for each in state.partitions
    ]
    if rows:
        context.lake.flow_table(flow_config.flow, LAG).append(rows)
    return rows


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's commit as of *seen_at_ms* (ms since 1970) and its consumer lag in offsets."""

    group: str
    topic: str
    partition: int
    committed: int
    lag: int
    seen_at_ms: int


def group_lag(context: MirrorContext, flow_config: FlowConfig, state: FlowState) -> list[GroupLag]:
    """Return the lag of the flow's groups in the partitions of *state*, by group and partition.

    Commits in an earlier incarnation of a topic are left out.
    """
    ends = {
        (each.topic, each.partition, base_id(each.incarnation)): each.source_end
        for each in state.partitions
    }
    return [
        GroupLag(
            row["group"],
            row["topic"],
            row["partition"],
            row["committed"],
            consumer_lag(end, row["committed"]),
            row["seen_at_ms"],
        )
        for row in flow_commits(context, flow_config)
        if (end := ends.get((row["topic"], row["partition"], row["topic_id"]))) is not None
    ]
