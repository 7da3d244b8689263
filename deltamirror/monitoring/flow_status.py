"""Status of a flow: from the source's ends, the stage, the target's progress and the status files.

Reading a status creates neither tables nor topics. If a cluster is down, the status is taken from
the lake.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from deltamirror.context import MirrorContext
from deltamirror.control import ControlTable, is_paused
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.staging.segment_index import last_only, recent_segments
from pipeline.monitoring.lag import (
    SEGMENT_COLUMNS,
    StagedEnd,
    age_ms,
    newest_staged,
    oldest_waiting_ms,
    replication_lag,
)
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import UnreachableError
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.flow_state import FlowState, PartitionState
from schemas.replay.slot_work import Progress
from schemas.staging.frontier import base_id

WHOLE_FLOW = TopicPartition("", 0)
"""A partition that no request can name, so only requests for the whole flow apply to it."""


def flow_status(context: MirrorContext, flow_config: FlowConfig) -> FlowState:
    """Return the flow's current state. A cluster that is down is a state. Raises LakeError."""
    flow = flow_config.flow
    # The stage is read before the clusters, so it is never newer than their answers. The map is
    # never ahead of progress, so no segment is needed that it has passed.
    offset_map, map_error = OffsetMap(context.lake.offset_map(flow), ""), None
    try:
        offset_map.load_ends_if_exists()
    except LakeError as error:  # it is needed only if the target is down
        map_error = error

    def reached(source: SourcePartition) -> int | None:
        if not flow_config.replicates(source.topic):
            return last_only(source)
        return offset_map.reached(_target(flow_config, source), source.topic_id)

    segments = recent_segments(context.lake.segments(flow.source), SEGMENT_COLUMNS, reached)
    staged = {p: s for p, s in newest_staged(segments).items() if flow_config.replicates(p.topic)}
    errors: list[DeltamirrorError] = []
    topic_ids: dict[str, str] = {}
    watermarks: Mapping[TopicPartition, Watermarks | DeltamirrorError] = {}
    try:
        topic_ids, watermarks = _read_source(context, flow_config)
    except DeltamirrorError as error:
        errors.append(error)
    partitions = sorted({*staged, *watermarks})
    progress = None
    try:
        progress = _read_progress(context, flow_config, partitions)
    except DeltamirrorError as error:
        errors.append(error)

    sources = {
        p: _current_incarnation(p, staged.get(p), topic_ids.get(p.topic)) for p in partitions
    }
    if progress is None:
        if map_error is not None:
            raise map_error
        mapped = {
            p: offset_map.newest_progress(_target(flow_config, source), [source.topic_id])
            for p, source in sources.items()
        }
        progress = {p: at for p, at in mapped.items() if at is not None}
    replayed = {
        p: at.next_offset if (at := progress.get(p)) and at.incarnation == source.topic_id else 0
        for p, source in sources.items()
    }
    oldest = oldest_waiting_ms(segments, {sources[p]: replayed[p] for p in partitions})
    replay = context.status_file.read(f"replay {flow.name}")
    staging = context.status_file.read(f"stage {flow.source}")
    messages = {
        TopicPartition(row["topic"], row["partition"]): row["message"]
        for status in (staging, replay)
        for row in (status["troubles"] if status else ())
    }
    requests = ControlTable(context.lake.control).requests_for(flow.name)
    now_ms = int(time.time() * 1000)
    states = []
    for p, source in sources.items():
        seen, end = watermarks.get(p), staged.get(p)
        marks = seen if isinstance(seen, Watermarks) else None
        if end is not None and end.source != source:
            end = None
        known = marks or end
        lag = replication_lag(marks, end, replayed[p])
        partition_state = PartitionState(
            topic=p.topic,
            partition=p.partition,
            target_topic=flow_config.remote_topic(p.topic),
            # Progress is read last, so it may be ahead of the source end and the stage read before.
            source_end=max(known.stable if known else 0, replayed[p]),
            staged=max(end.end if end else 0, replayed[p]),
            replayed=replayed[p],
            lag=lag,
            age_ms=age_ms(now_ms, oldest.get(source), lag),
            error=messages.get(p) or (str(seen) if isinstance(seen, DeltamirrorError) else None),
            is_paused=is_paused(requests, p),
            held_back=marks.high - marks.stable if marks else 0,
            incarnation=source.topic_id,
        )
        states.append(partition_state)

    address = replay.get("metrics") if replay and replay["is_alive"] else None
    if errors:
        is_down = any(isinstance(error, UnreachableError) for error in errors)
        state = "unreachable" if is_down else "failed"
        text = "; ".join(str(error) for error in errors)
        return FlowState(flow.name, state, text, errors[0].hint, tuple(states), address)
    if is_paused(requests, WHOLE_FLOW):
        state = "paused"
    elif replay is None or (replay["state"] == "running" and not replay["is_alive"]):
        state = "stopped"
    else:
        state = replay["state"]
    waiting = [each.error for each in states if each.error]
    first = f"{len(waiting)} of {len(states)} partitions wait: {waiting[0]}" if waiting else None
    error_text = (replay or {}).get("error") or (staging or {}).get("error") or first
    return FlowState(flow.name, state, error_text, None, tuple(states), address)


def _read_source(
    context: MirrorContext, flow_config: FlowConfig
) -> tuple[dict[str, str], Mapping[TopicPartition, Watermarks | DeltamirrorError]]:
    """Return the ids of the source's replicated topics, and the watermarks of their partitions."""
    cluster = context.cluster(flow_config.flow.source)
    cluster.probe()
    topics = [
        topic
        for topic in cluster.topics().values()
        if flow_config.replicates(topic.name) and not topic.is_internal
    ]
    partitions = [TopicPartition(t.name, p) for t in topics for p in range(t.partitions)]
    return {topic.name: topic.topic_id for topic in topics}, cluster.watermarks(partitions)


def _read_progress(
    context: MirrorContext, flow_config: FlowConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Progress]:
    """Return the progress of the source's *partitions* that the target has."""
    targets = {
        TopicPartition(flow_config.remote_topic(p.topic), p.partition): p for p in partitions
    }
    cluster = context.cluster(flow_config.flow.target)
    cluster.probe()
    # Progress in an open transaction does not count yet, so do not wait for it.
    group = flow_config.flow.progress_group
    commits = cluster.committed_offsets(group, targets, require_stable=False)
    return {
        targets[target]: progress
        for target, found in commits.items()
        if found is not None and (progress := Progress.read(*found)) is not None
    }


def _current_incarnation(
    partition: TopicPartition, staged: StagedEnd | None, topic_id: str | None
) -> SourcePartition:
    """Return the partition in its current incarnation: *topic_id* of the source, else as staged."""
    if staged is not None and topic_id in (None, base_id(staged.source.topic_id)):
        return staged.source
    return SourcePartition(partition.topic, str(topic_id), partition.partition)


def _target(flow_config: FlowConfig, source: SourcePartition) -> TopicPartition:
    return TopicPartition(flow_config.remote_topic(source.topic), source.partition)
