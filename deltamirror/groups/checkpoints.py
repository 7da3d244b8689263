"""Translate the source groups' committed offsets, and write them as checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.groups.snapshots import flow_commits, latest_rows
from deltamirror.replay.current_map import Commits, read_current_map
from pipeline.offset_map.index import MAP_COLUMNS, MapIndex, build_index
from pipeline.offset_map.translate import translate
from resources.delta.table import CLOCK_APP_ID
from resources.kafka.compacted_topic import CompactedTopic
from schemas.config.config import FlowConfig
from schemas.errors.lake import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import Checkpoint
from schemas.offset_map import GroupTranslation, Translation
from schemas.tables import CHECKPOINTS

Row = dict[str, Any]

_KEY = itemgetter("group", "topic", "partition")
_VALUES = itemgetter("upstream_offset", "target_topic", "downstream_offset", "metadata")


def map_index(
    context: MirrorContext, flow_config: FlowConfig, commits: Commits | None = None
) -> MapIndex:
    """Return a lookup index of the flow's offset map, as `read_current_map` returns it.

    Raises LakeError if the map cannot be read or contradicts itself.
    """
    try:
        return build_index(read_current_map(context, flow_config, MAP_COLUMNS, commits))
    except ValueError as error:
        flow = flow_config.flow
        raise LakeError(f"the offset map of {flow} contradicts itself: {error}") from None


def translate_groups(
    context: MirrorContext,
    flow_config: FlowConfig,
    as_of_ms: int | None = None,
    group: str | None = None,
) -> tuple[list[GroupTranslation], MapIndex]:
    """Return where each group resumes, by group and partition, and the part of the map for them.

    *as_of_ms* and *group* are as in `flow_commits`. If nothing of the incarnation that a group read
    has arrived, its downstream offset is None.
    """
    commits = flow_commits(context, flow_config, as_of_ms, group)
    lowest: dict[TopicPartition, dict[str, int]] = {}
    for row in commits:
        by_id = lowest.setdefault(TopicPartition(row["topic"], row["partition"]), {})
        by_id[row["topic_id"]] = min(row["committed"], by_id.get(row["topic_id"], row["committed"]))
    offset_map = map_index(context, flow_config, lowest)
    found = []
    for row in commits:
        at, incarnation = TopicPartition(row["topic"], row["partition"]), row["topic_id"]
        resumes = translate_offset(offset_map, flow_config, at, row["committed"], incarnation)
        found.append(GroupTranslation(row["group"], resumes, row["metadata"]))
    return found, offset_map


def translate_offset(
    offset_map: MapIndex,
    flow_config: FlowConfig,
    partition: TopicPartition,
    committed: int,
    incarnation: str | None,
) -> Translation:
    """Return the translation of the offset *committed* in source *partition*.

    *incarnation* is as in `MapIndex.mapped_incarnation`. If nothing of it has arrived, the
    downstream offset is None.
    """
    topic, number = partition.topic, partition.partition
    mapped = offset_map.mapped_incarnation(partition, incarnation)
    if mapped is None:
        remote = flow_config.remote_topic(topic)
        return Translation(topic, incarnation or "", number, committed, remote, number, None)
    return Translation(
        topic,
        mapped.incarnation,
        number,
        committed,
        mapped.target_topic,
        mapped.target_partition,
        translate(committed, mapped.runs),
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
        for each in translate_groups(context, flow_config)[0]
        if each.at.downstream_offset is not None
    ]
    latest = latest_rows(table.rows(), "translated_at_ms").to_pylist()
    known = {_KEY(row): _VALUES(row) for row in latest}
    changed = [row for row in rows if known.get(_KEY(row)) != _VALUES(row)]
    if changed:
        if flow_config.emit_checkpoints_interval_s is not None:
            _emit(context, flow_config, changed)
        table.append(changed, txn_versions={CLOCK_APP_ID: now_ms})
    return changed


def _emit(context: MirrorContext, flow_config: FlowConfig, rows: Iterable[Row]) -> None:
    """Write *rows* to `<source>.checkpoints.internal` on the target, as MirrorMaker 2 does."""
    flow = flow_config.flow
    topic = CompactedTopic(
        context.cluster(flow.target),
        flow_config.policy.checkpoints_topic(flow.source),
        context.config.clusters[flow.target].producer,
    )
    topic.ensure_exists(flow_config.checkpoints_replication_factor)
    fields = itemgetter(
        "group", "target_topic", "partition", "upstream_offset", "downstream_offset", "metadata"
    )
    checkpoints = [Checkpoint(*fields(row)) for row in rows]
    topic.write((each.key, each.value) for each in checkpoints)
