"""Status of a flow: from the source's ends, the stage, the target's progress and the status files.

Reading a status creates neither tables nor topics. If a cluster is down, the status is taken from
the lake.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.control import ControlTable, OperatorRequest, is_paused
from pipeline.monitoring.lag import (
    SEGMENT_COLUMNS,
    StagedEnd,
    age_ms,
    newest_staged,
    oldest_waiting_ms,
    replication_lag,
)
from pipeline.offset_map.index import MAP_COLUMNS, build_index
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import UnreachableError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.flow_state import FlowState, PartitionState
from schemas.replay.slot_work import Progress
from schemas.staging.frontier import base_id

WHOLE_FLOW = TopicPartition("", 0)
"""A partition that no request can name, so only requests for the whole flow apply to it."""


@dataclass(slots=True)
class _ClusterAnswers:
    """Answers of the two clusters: topic ids, watermarks and progress; and their errors."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    watermarks: Mapping[TopicPartition, Watermarks | DeltamirrorError] = field(default_factory=dict)
    progress: dict[TopicPartition, Progress] | None = None
    errors: list[DeltamirrorError] = field(default_factory=list)


def flow_status(context: MirrorContext, flow_config: FlowConfig) -> FlowState:
    """Return the flow's current state. A cluster that is down is a state. Raises LakeError."""
    flow = flow_config.flow
    # The stage is read before the clusters, so it is never newer than their answers.
    segments = context.lake.segments(flow.source).rows(SEGMENT_COLUMNS)
    staged = {
        partition: found
        for partition, found in newest_staged(segments).items()
        if flow_config.replicates(partition.topic)
    }
    seen = _ClusterAnswers()
    _read_source(context, flow_config, seen)
    partitions = sorted(set(staged) | set(seen.watermarks))
    _read_target(context, flow_config, partitions, seen)

    incarnations = {each: _current_incarnation(each, staged.get(each), seen) for each in partitions}
    replayed = _replayed(context, flow_config, incarnations, seen)
    oldest = oldest_waiting_ms(
        segments, {incarnations[each]: replayed[each] for each in partitions}
    )
    partition_errors = _partition_errors(context, flow)
    requests = ControlTable(context.lake.control).requests_for(flow.name)
    now_ms = int(time.time() * 1000)
    states = tuple(
        _partition_state(
            incarnations[each],
            flow_config.remote_topic(each.topic),
            seen.watermarks.get(each),
            found if (found := staged.get(each)) and found.source == incarnations[each] else None,
            replayed[each],
            oldest.get(incarnations[each]),
            partition_errors.get(each),
            is_paused(requests, each),
            now_ms,
        )
        for each in partitions
    )
    return _flow_state(context, flow, seen.errors, requests, states)


def _read_source(context: MirrorContext, flow_config: FlowConfig, seen: _ClusterAnswers) -> None:
    try:
        cluster = context.cluster(flow_config.flow.source)
        cluster.probe()
        topics = {
            name: topic
            for name, topic in cluster.topics().items()
            if flow_config.replicates(name) and not topic.is_internal
        }
        seen.watermarks = cluster.watermarks(
            [TopicPartition(t.name, p) for t in topics.values() for p in range(t.partitions)]
        )
        seen.topic_ids = {name: topic.topic_id for name, topic in topics.items()}
    except DeltamirrorError as error:
        seen.errors.append(error)


def _read_target(
    context: MirrorContext,
    flow_config: FlowConfig,
    partitions: Iterable[TopicPartition],
    seen: _ClusterAnswers,
) -> None:
    targets = {
        TopicPartition(flow_config.remote_topic(each.topic), each.partition): each
        for each in partitions
    }
    try:
        cluster = context.cluster(flow_config.flow.target)
        cluster.probe()
        # Progress in an open transaction does not count yet, so do not wait for it.
        committed_offsets = cluster.committed_offsets(
            flow_config.flow.progress_group, targets, require_stable=False
        )
    except DeltamirrorError as error:
        seen.errors.append(error)
        return
    seen.progress = {
        targets[target]: progress
        for target, found in committed_offsets.items()
        if found is not None and (progress := Progress.read(*found)) is not None
    }


def _current_incarnation(
    partition: TopicPartition, staged: StagedEnd | None, seen: _ClusterAnswers
) -> SourcePartition:
    """Return the partition in its current incarnation, from the source, else from the stage."""
    topic_id = seen.topic_ids.get(partition.topic)
    if staged is not None and topic_id in (None, base_id(staged.source.topic_id)):
        return staged.source
    return SourcePartition(partition.topic, str(topic_id), partition.partition)


def _replayed(
    context: MirrorContext,
    flow_config: FlowConfig,
    incarnations: Mapping[TopicPartition, SourcePartition],
    seen: _ClusterAnswers,
) -> dict[TopicPartition, int]:
    """Return the next offset to replay of each current incarnation; 0 if replay has not started.

    While the target is down, the end of the offset map is used. It is never ahead of progress.
    """
    if seen.progress is not None:
        progress = seen.progress
        return {
            each: progress[each].next_offset
            if each in progress and progress[each].incarnation == source.topic_id
            else 0
            for each, source in incarnations.items()
        }
    offset_map = build_index(context.lake.offset_map(flow_config.flow).rows(MAP_COLUMNS))
    ends = {
        each: offset_map.mapped_incarnation(each, source.topic_id)
        for each, source in incarnations.items()
    }
    return {each: found.runs.upstream_end if found else 0 for each, found in ends.items()}


def _partition_state(
    source: SourcePartition,
    target_topic: str,
    seen: Watermarks | DeltamirrorError | None,
    staged: StagedEnd | None,
    replayed: int,
    oldest_ms: int | None,
    partition_error: str | None,
    paused: bool,
    now_ms: int,
) -> PartitionState:
    marks = seen if isinstance(seen, Watermarks) else None
    lag = replication_lag(marks, staged, replayed)
    source_end = marks.stable if marks else staged.stable if staged else 0
    return PartitionState(
        topic=source.topic,
        partition=source.partition,
        target_topic=target_topic,
        # Progress is read last, so it may be ahead of the source end and the stage read before.
        source_end=max(source_end, replayed),
        staged=max(staged.end if staged else 0, replayed),
        replayed=replayed,
        lag=lag,
        age_ms=age_ms(now_ms, oldest_ms, lag),
        error=partition_error or (str(seen) if isinstance(seen, DeltamirrorError) else None),
        is_paused=paused,
        held_back=marks.high - marks.stable if marks else 0,
        incarnation=source.topic_id,
    )


def _partition_errors(context: MirrorContext, flow: Flow) -> dict[TopicPartition, str]:
    """Return the partition errors in the status files of the loops."""
    statuses = [
        context.status_file.read(role) for role in (f"stage {flow.source}", f"replay {flow.name}")
    ]
    return {
        TopicPartition(partition_error["topic"], partition_error["partition"]): partition_error[
            "message"
        ]
        for each in statuses
        if each is not None
        for partition_error in each["troubles"]
    }


def _flow_state(
    context: MirrorContext,
    flow: Flow,
    errors: list[DeltamirrorError],
    requests: list[OperatorRequest],
    states: tuple[PartitionState, ...],
) -> FlowState:
    replay = context.status_file.read(f"replay {flow.name}")
    staging = context.status_file.read(f"stage {flow.source}")
    address = replay.get("metrics") if replay is not None and replay["is_alive"] else None
    error_text = _status_error(replay) or _status_error(staging) or _summarize_errors(states)
    if errors:
        down = any(isinstance(error, UnreachableError) for error in errors)
        text = "; ".join(str(error) for error in errors)
        state = "unreachable" if down else "failed"
        return FlowState(flow.name, state, text, errors[0].hint, states, address)
    if is_paused(requests, WHOLE_FLOW):
        return FlowState(flow.name, "paused", error_text, None, states, address)
    if replay is None or (replay["state"] == "running" and not replay["is_alive"]):
        return FlowState(flow.name, "stopped", error_text, None, states)
    return FlowState(flow.name, replay["state"], error_text, None, states, address)


def _summarize_errors(states: tuple[PartitionState, ...]) -> str | None:
    """Return the number of failed partitions, and the error of the first one."""
    errors = [each.error for each in states if each.error]
    return f"{len(errors)} of {len(states)} partitions wait: {errors[0]}" if errors else None


def _status_error(status: Mapping[str, Any] | None) -> str | None:
    return None if status is None else status["error"]
