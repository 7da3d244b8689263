"""Dry run: compute what the next run would create, change, stage and replay."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.monitoring.flow_status import flow_status
from deltamirror.monitoring.status_files import error_rows
from deltamirror.staging.segment_index import SegmentIndex, last_only
from deltamirror.topics.acls import acls_to_create
from deltamirror.topics.configs import configs_to_alter
from pipeline.staging.plan import plan_ranges
from pipeline.topics.remote_topics import (
    AddPartitions,
    CreateTopic,
    RefusedTopic,
    missing_topics,
    plan_remote_topics,
)
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic
from schemas.mm2.replication_policy import is_cycle
from schemas.staging.frontier import PartitionSnapshot

Row = dict[str, Any]


def dry_run(context: MirrorContext, flows: Sequence[FlowConfig]) -> dict[str, Any]:
    """Return what a run of *flows* would create, change, stage and replay, as `plan` prints it.

    It changes nothing. Raises UnreachableError if a cluster does not respond.
    """
    topics = {}
    for alias in dict.fromkeys(flow.flow.source for flow in flows):
        context.cluster(alias).probe()
        topics[alias] = context.cluster(alias).topics()
    return {
        "clusters": [_plan_staging(context, alias, topics[alias], flows) for alias in topics],
        "flows": [_plan_flow(context, flow, topics[flow.flow.source]) for flow in flows],
    }


def _plan_staging(
    context: MirrorContext, alias: str, topics: Mapping[str, Topic], flows: Sequence[FlowConfig]
) -> Row:
    """Return the ranges to stage of cluster *alias*, and the partitions that need an operator."""
    chosen = [
        topic
        for name, topic in sorted(topics.items())
        if any(flow.flow.source == alias and flow.replicates(name) for flow in flows)
    ]
    partitions = [TopicPartition(t.name, i) for t in chosen for i in range(t.partitions)]
    answers = context.cluster(alias).watermarks(partitions) if partitions else {}
    seen = {
        p: PartitionSnapshot(topics[p.topic].topic_id, answer)
        for p, answer in answers.items()
        if isinstance(answer, Watermarks)
    }
    lost = {p: a for p, a in answers.items() if isinstance(a, DeltamirrorError)}
    segment_index = SegmentIndex(context.lake.segments(alias), last_only)
    segment_index.refresh()
    frontiers = segment_index.frontiers
    from_latest = context.config.clusters[alias].auto_offset_reset == "latest"
    planned = plan_ranges(seen, frontiers, sys.maxsize, from_latest=from_latest)
    stage = [
        {
            "topic": r.partition.topic,
            "partition": r.partition.partition,
            "start": r.start,
            "end": r.end,
        }
        for r in planned.ranges
    ]
    troubles = error_rows({**lost, **planned.partition_errors})
    return {"cluster": alias, "stage": stage, "troubles": troubles}


def _plan_flow(context: MirrorContext, flow: FlowConfig, topics: Mapping[str, Topic]) -> Row:
    """Return what *flow* would create and replay, and the topics that it does not mirror."""
    context.cluster(flow.flow.target).probe()
    mirrored = {name: topic for name, topic in topics.items() if flow.replicates(name)}
    state = flow_status(context, flow)
    syncs_configs = flow.sync_topic_configs_interval_s is not None
    syncs_acls = flow.sync_topic_acls_interval_s is not None
    to_alter = configs_to_alter(context, flow, mirrored) if syncs_configs else []
    acls = acls_to_create(context, flow) if syncs_acls else []
    return {
        "flow": flow.flow.name,
        "error": state.error,
        **_remote_topics(context, flow, mirrored),
        # A value of None is the target's default.
        "alter": [
            {"topic": step.name, "configs": dict(step.configs), "before": dict(step.before)}
            for step in to_alter
        ],
        "acls": [asdict(acl) for acl in acls],
        "replay": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "target_topic": p.target_topic,
                "start": p.replayed,
                "end": p.source_end,
                "is_paused": p.is_paused,
            }
            for p in state.partitions
            if p.source_end > p.replayed
        ],
        "not_mirrored": [
            {"topic": name, "reason": _reason(flow, name)}
            for name in sorted(topics.keys() - mirrored)
        ],
    }


def _remote_topics(context: MirrorContext, flow: FlowConfig, topics: Mapping[str, Topic]) -> Row:
    """Return the remote topics to create, those to add partitions to, and the refused ones."""
    wanted = {flow.remote_topic(name) for name in topics}
    existing = context.cluster(flow.flow.target).topics(wanted) if wanted else {}
    missing = missing_topics(flow, topics, existing)
    configs = context.cluster(flow.flow.source).topic_configs(missing) if missing else {}
    steps = plan_remote_topics(flow, topics, configs, existing)
    return {
        "create": [
            {"topic": new.name, "partitions": new.partitions, "configs": dict(new.configs)}
            for new in (step.topic for step in steps if isinstance(step, CreateTopic))
        ],
        "widen": [
            {"topic": s.name, "partitions": s.total} for s in steps if isinstance(s, AddPartitions)
        ],
        "refused": [
            {"topic": s.name, "error": str(s.error)} for s in steps if isinstance(s, RefusedTopic)
        ],
    }


def _reason(flow: FlowConfig, topic: str) -> str:
    """Return why *flow* does not replicate *topic*."""
    if flow.policy.is_internal(topic):
        return "internal to Kafka or MirrorMaker"
    if is_cycle(flow.policy, topic, flow.flow.target):
        return f"came from {flow.flow.target}"
    return "not chosen by topics and topics.exclude"
