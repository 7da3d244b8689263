"""Write a flow's progress as MirrorMaker 2's source offsets, so that it resumes exactly there."""

from __future__ import annotations

from dataclasses import dataclass

from deltamirror.context import MirrorContext
from deltamirror.control import PAUSE, ControlTable
from deltamirror.mm2.import_flow import check_mm2_stopped, offsets_topic
from deltamirror.staging.segment_index import SegmentIndex, last_only
from resources.coordination.lease import Lease
from resources.kafka.compacted_topic import CompactedTopic
from resources.kafka.mm2_topics import Mm2Topics
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.source import TopicRecreatedError
from schemas.kafka.partition import TopicPartition
from schemas.replay.slot_work import Progress
from schemas.staging.frontier import base_id

OFFSETS_TOPIC_PARTITIONS = 25
"""Partitions of Connect's offsets topic if it has to be created (offset.storage.partitions)."""


@dataclass(frozen=True, slots=True)
class Mm2Export:
    """The next offset that MirrorMaker 2 will copy, by source partition, and errors of the rest."""

    flow: str
    next_offsets: dict[TopicPartition, int]
    errors: tuple[DeltamirrorError, ...]


def export_mm2(context: MirrorContext, config: FlowConfig) -> Mm2Export:
    """Write the flow's progress to MirrorMaker 2's offsets topic, and pause the flow.

    Raises MirrorMakerRunningError if MirrorMaker 2 runs, because it reads its offsets at its start;
    LeaseHeldError if a deltamirror process replays the flow; UnreachableError,
    RequestRefusedError, TargetTopicError, LakeError.
    """
    flow = config.flow
    with Lease(context.lake.root, f"replay {flow.name}"):
        cluster = context.cluster(flow.target)
        check_mm2_stopped(cluster, flow)
        progress, errors = _progress(context, config)
        producer = context.config.clusters[flow.target].producer
        topic = CompactedTopic(cluster, offsets_topic(flow), producer, OFFSETS_TOPIC_PARTITIONS)
        topic.ensure_exists(config.replication_factor)
        copied = {at: each.next_offset - 1 for at, each in progress.items() if each.next_offset}
        # Pause first: replay at the same time as MirrorMaker 2 would copy all records twice.
        ControlTable(context.lake.control).add_request(PAUSE, flow.name)
        Mm2Topics.write_source_offsets(topic, flow.source, copied)
    return Mm2Export(flow.name, {at: last + 1 for at, last in copied.items()}, tuple(errors))


def _progress(
    context: MirrorContext, config: FlowConfig
) -> tuple[dict[TopicPartition, Progress], list[DeltamirrorError]]:
    """Return the progress of each partition of the flow, and an error of each re-created one."""
    flow = config.flow
    segment_index = SegmentIndex(context.lake.segments(flow.source), last_only)
    segment_index.refresh()
    mine = [p for p in segment_index.partitions() if config.replicates(p.topic)]
    targets = {TopicPartition(config.remote_topic(p.topic), p.partition): p for p in mine}
    found = context.cluster(flow.target).committed_offsets(flow.progress_group, list(targets))
    topics = context.cluster(flow.source).topics({p.topic for p in mine})
    progress: dict[TopicPartition, Progress] = {}
    errors: list[DeltamirrorError] = []
    for target, partition in targets.items():
        commit, topic = found[target], topics.get(partition.topic)
        at = Progress.read(*commit) if commit is not None else None
        if at is None or topic is None:
            continue
        if base_id(at.incarnation) == topic.topic_id:
            progress[partition] = at
        else:
            end = segment_index.frontiers[partition].last_stable
            errors.append(TopicRecreatedError(partition, frontier=at.next_offset, end=end))
    return progress, errors
