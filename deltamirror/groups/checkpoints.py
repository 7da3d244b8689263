"""Translate the source groups' committed offsets, and write them as checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow.dataset as ds

from deltamirror.context import MirrorContext
from deltamirror.groups.snapshots import latest_commits
from pipeline.offset_map.index import MAP_COLUMNS, MapIndex, build_index
from pipeline.offset_map.translate import translate
from resources.delta.table import CLOCK_APP_ID
from resources.kafka.compacted_topic import CompactedTopic
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors.lake import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import Checkpoint
from schemas.offset_map import GroupTranslation, Translation
from schemas.tables import CHECKPOINTS, GROUP_OFFSETS

Row = dict[str, Any]
TranslationValues = tuple[int | str, ...]


def map_index(context: MirrorContext, flow: Flow, topic: str | None = None) -> MapIndex:
    """Return a lookup index of the offset map of *flow*, for one source *topic* or for all.

    Raises LakeError if the map cannot be read or contradicts itself.
    """
    where = None if topic is None else ds.field("topic") == topic
    try:
        return build_index(context.lake.offset_map(flow).rows(MAP_COLUMNS, where))
    except ValueError as error:
        raise LakeError(f"the offset map of {flow} contradicts itself: {error}") from None


def translate_groups(
    context: MirrorContext,
    flow_config: FlowConfig,
    as_of_ms: int | None = None,
    group: str | None = None,
) -> list[GroupTranslation]:
    """Return the downstream offset at which each group resumes, by group and partition.

    *as_of_ms* (ms since 1970) selects the newest commits seen at or before it; None selects the
    newest. *group* selects one group; None selects all that the flow's filter matches. If nothing
    of the incarnation that the group read has arrived, the downstream offset is None.
    """
    where = None if group is None else ds.field("group") == group
    offsets = context.lake.cluster_table(flow_config.flow.source, GROUP_OFFSETS).rows(where=where)
    commits = [
        row
        for row in latest_commits(offsets, as_of_ms).to_pylist()
        if flow_config.groups.matches(row["group"]) and flow_config.replicates(row["topic"])
    ]
    offset_map = map_index(context, flow_config.flow)
    return [
        GroupTranslation(
            row["group"],
            row["seen_at_ms"],
            _translate_commit(row, offset_map, flow_config),
            row["metadata"],
        )
        for row in commits
    ]


def _translate_commit(commit: Row, offset_map: MapIndex, flow_config: FlowConfig) -> Translation:
    partition = TopicPartition(commit["topic"], commit["partition"])
    mapped_incarnation = offset_map.mapped_incarnation(partition, commit["topic_id"])
    return Translation(
        topic=partition.topic,
        topic_id=mapped_incarnation.incarnation if mapped_incarnation else commit["topic_id"],
        partition=partition.partition,
        upstream_offset=commit["committed"],
        target_topic=mapped_incarnation.target_topic
        if mapped_incarnation
        else flow_config.remote_topic(partition.topic),
        target_partition=mapped_incarnation.target_partition
        if mapped_incarnation
        else partition.partition,
        downstream_offset=translate(commit["committed"], mapped_incarnation.runs)
        if mapped_incarnation
        else None,
    )


def write_checkpoints(context: MirrorContext, flow_config: FlowConfig) -> list[Row]:
    """Append changed checkpoints to the table `checkpoints`; return the new rows.

    With `emit.checkpoints.enabled` they are written to the target's checkpoints topic first. After
    a crash in between they are written there again, which is harmless in a compacted topic. Raises
    DeltamirrorError if the target or the lake is down.
    """
    table = context.lake.flow_table(flow_config.flow, CHECKPOINTS)
    now_ms = table.next_time_ms()
    rows = [
        {
            "group": each.group,
            "topic": each.at.topic,
            "partition": each.at.partition,
            "upstream_offset": each.at.upstream_offset,
            "target_topic": each.at.target_topic,
            "downstream_offset": each.at.downstream_offset,
            "metadata": each.metadata,
            "translated_at_ms": now_ms,
        }
        for each in translate_groups(context, flow_config)
        if each.at.downstream_offset is not None
    ]
    known = _newest_values(table.rows().to_pylist())
    changed = [row for row in rows if known.get(_key(row)) != _translation_values(row)]
    if changed:
        if flow_config.emit_checkpoints_interval_s is not None:
            _emit(context, flow_config, changed)
        table.append(changed, txn_versions={CLOCK_APP_ID: now_ms})
    return changed


def _newest_values(rows: list[Row]) -> dict[tuple[str, str, int], TranslationValues]:
    """Return the newest checkpoint of each group and partition."""
    rows.sort(key=lambda row: row["translated_at_ms"])
    return {_key(row): _translation_values(row) for row in rows}


def _key(row: Row) -> tuple[str, str, int]:
    return row["group"], row["topic"], row["partition"]


def _translation_values(row: Row) -> TranslationValues:
    names = ("upstream_offset", "target_topic", "downstream_offset", "metadata")
    return tuple(row[name] for name in names)


def _emit(context: MirrorContext, flow_config: FlowConfig, rows: Iterable[Row]) -> None:
    """Write *rows* to `<source>.checkpoints.internal` on the target, as MirrorMaker 2 does."""
    flow = flow_config.flow
    topic = CompactedTopic(
        context.cluster(flow.target),
        flow_config.policy.checkpoints_topic(flow.source),
        context.config.clusters[flow.target].producer,
    )
    topic.ensure_exists(flow_config.checkpoints_replication_factor)
    checkpoints = [
        Checkpoint(
            row["group"],
            row["target_topic"],
            row["partition"],
            row["upstream_offset"],
            row["downstream_offset"],
            row["metadata"],
        )
        for row in rows
    ]
    topic.write((each.key, each.value) for each in checkpoints)
