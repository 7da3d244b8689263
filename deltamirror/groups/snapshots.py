"""Snapshot the source groups' committed offsets to the table `group_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

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

Commits = dict[tuple[str, TopicPartition], tuple[int, str]]
"""Offset and metadata by group and partition."""


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
    groups = [group for group in sorted({*listed, *named}) if _is_wanted(group, flows)]
    found: Commits = {}
    read_errors: list[str] = []
    for group in groups:
        try:
            found |= _committed(cluster, group, flows)
        except DeltamirrorError as error:
            log.warning("%s", error)
            read_errors.append(str(error))
    after = _topic_ids(cluster)
    known = {
        (row["group"], row["topic"], row["partition"]): (
            row["topic_id"],
            (row["committed"], row["metadata"]),
        )
        for row in latest_commits(table.rows()).to_pylist()
    }
    now_ms = table.next_time_ms()
    rows = [
        {
            "group": group,
            "topic": topic,
            "topic_id": topic_id,
            "partition": at.partition,
            "committed": commit[0],
            "metadata": commit[1],
            "seen_at_ms": now_ms,
        }
        for (group, at), commit in found.items()
        if (topic_id := after.get(topic := at.topic)) == before.get(topic)
        and topic_id is not None
        and known.get((group, topic, at.partition)) != (topic_id, commit)
    ]
    if rows:
        table.append(rows, txn_versions={CLOCK_APP_ID: now_ms})
    return GroupSnapshot(sum(group in listed for group in groups), len(rows), tuple(read_errors))


def latest_commits(offsets: pa.Table, as_of_ms: int | None = None) -> pa.Table:
    """Return the newest row of *offsets* for each group and partition.

    Rows seen after *as_of_ms* (ms since 1970; None: no limit) are ignored.
    """
    if as_of_ms is not None:
        offsets = offsets.filter(pc.field("seen_at_ms") <= as_of_ms)
    keys = ["group", "topic", "partition"]
    newest = offsets.group_by(keys).aggregate([("seen_at_ms", "max")])
    newest = newest.rename_columns([*keys, "seen_at_ms"])
    return offsets.join(newest, keys=[*keys, "seen_at_ms"], join_type="left semi").sort_by(
        [(key, "ascending") for key in keys]
    )


def _topic_ids(cluster: KafkaCluster) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in cluster.topics().items()}


def _is_wanted(group: str, flows: Iterable[FlowConfig]) -> bool:
    return not group.startswith(OWN_PREFIX) and any(flow.groups.matches(group) for flow in flows)


def _committed(cluster: KafkaCluster, group: str, flows: list[FlowConfig]) -> Commits:
    wanted = [flow for flow in flows if flow.groups.matches(group)]
    return {
        (group, partition): commit
        for partition, commit in cluster.group_commits(group).items()
        if any(flow.replicates(partition.topic) for flow in wanted)
    }
