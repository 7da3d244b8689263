"""Snapshot the source groups' committed offsets to the table `group_offsets`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltamirror.context import MirrorContext
from resources.delta.table import CLOCK_APP_ID
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition
from schemas.tables import GROUP_OFFSETS

log = logging.getLogger(__name__)

OWN_PREFIX = "deltamirror."
"""Prefix of the groups that keep deltamirror's progress. They are never snapshotted."""

_COMMIT = itemgetter("group", "topic", "topic_id", "partition", "committed", "metadata")


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """Result of a snapshot: the number of groups, and of *changed* offsets that were written.

    *read_errors* has a line for each group that could not be read.
    """

    groups: int
    changed: int
    read_errors: tuple[str, ...] = ()


def snapshot_groups(context: MirrorContext, alias: str) -> GroupSnapshot:
    """Append the offsets that groups of the source cluster *alias* committed since the last call.

    It covers the groups that a flow's filter matches, and the topics that this flow mirrors. A
    group that cannot be read is in `read_errors`. Raises DeltamirrorError if the cluster or the
    lake is down.
    """
    flows = [each for each in context.config.flows if each.flow.source == alias]
    cluster = context.cluster(alias)
    table = context.lake.cluster_table(alias, GROUP_OFFSETS)
    # Topic ids are read before and after: an offset must not get another incarnation's topic id.
    before = _topic_ids(cluster)
    # A group that the user may not describe is not listed. If the configuration names it, reading
    # it reports the missing permission.
    listed = cluster.groups()
    named = {name for flow in flows for name in flow.groups.names}
    groups = [
        group
        for group in sorted({*listed, *named})
        if not group.startswith(OWN_PREFIX) and any(flow.groups.matches(group) for flow in flows)
    ]
    found: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
    read_errors: list[str] = []
    for group in groups:
        try:
            commits = cluster.group_commits(group)
        except DeltamirrorError as error:
            log.warning("%s", error)
            read_errors.append(str(error))
            continue
        own_flows = [flow for flow in flows if flow.groups.matches(group)]
        for at, commit in commits.items():
            if any(flow.replicates(at.topic) for flow in own_flows):
                found[group, at] = commit
    after = _topic_ids(cluster)
    known = {_COMMIT(row) for row in latest_commits(table.rows()).to_pylist()}
    now_ms = table.next_time_ms()
    rows = [
        {
            "group": group,
            "topic": at.topic,
            "topic_id": after[at.topic],
            "partition": at.partition,
            "committed": offset,
            "metadata": metadata,
            "seen_at_ms": now_ms,
        }
        for (group, at), (offset, metadata) in found.items()
        if at.topic in after and after[at.topic] == before.get(at.topic)
    ]
    rows = [row for row in rows if _COMMIT(row) not in known]
    if rows:
        table.append(rows, txn_versions={CLOCK_APP_ID: now_ms})
    return GroupSnapshot(sum(group in listed for group in groups), len(rows), tuple(read_errors))


def latest_commits(offsets: pa.Table, as_of_ms: int | None = None) -> pa.Table:
    """Return the newest row of *offsets* for each group and partition.

    Rows seen after *as_of_ms* (ms since 1970; None: no limit) are ignored.
    """
    if as_of_ms is not None:
        offsets = offsets.filter(pc.field("seen_at_ms") <= as_of_ms)
    return latest_rows(offsets, "seen_at_ms")


def latest_rows(rows: pa.Table, time_column: str) -> pa.Table:
    """Return the newest of *rows* for each group and partition, in their order."""
    keys = ["group", "topic", "partition"]
    newest = rows.group_by(keys).aggregate([(time_column, "max")])
    newest = newest.rename_columns([*keys, time_column])
    return rows.join(newest, keys=[*keys, time_column], join_type="left semi").sort_by(
        [(key, "ascending") for key in keys]
    )


def flow_commits(
    context: MirrorContext,
    flow_config: FlowConfig,
    as_of_ms: int | None = None,
    group: str | None = None,
) -> list[dict[str, Any]]:
    """Return the newest snapshotted commits of the groups and topics that the flow replicates.

    *as_of_ms* (ms since 1970) leaves out commits seen after it. *group* selects one group.
    """
    table = context.lake.cluster_table(flow_config.flow.source, GROUP_OFFSETS)
    offsets = table.rows(where=None if group is None else pc.field("group") == group)
    return [
        row
        for row in latest_commits(offsets, as_of_ms).to_pylist()
        if flow_config.groups.matches(row["group"]) and flow_config.replicates(row["topic"])
    ]


def _topic_ids(cluster: KafkaCluster) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in cluster.topics().items()}
